"""Finds in a log what failed: errors, lines that only repeat an error, and the start of each step.

Knows how tools speak (compilers, linkers, make, ninja, CMake, pip, Python, docker), and no cause.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from stoker.diagnose.lines import Texts, compiled
from stoker.diagnose.messages import messages
from stoker.diagnose.sieve import Line
from stoker.model.value import Value

_START = r"^\s{0,24}(?:\[ {0,2}\d{1,3}%\] |\[\d{1,6}/\d{1,6}\] )?"


class Level(IntEnum):
    """The kind of tool that printed a line, the innermost first. A success cancels the failures of
    the tools that it started.
    """

    LINE = 0  # any tool
    CONFIGURE = 1
    BUILD = 2
    PACKAGE = 3
    IMAGE = 4
    JOB = 5


_Tables = Mapping[Level, tuple[str, ...]]

# A tool gives up. These lines say that something failed, never what.
_GIVEN_UP: _Tables = {
    Level.CONFIGURE: (
        r"-- Configuring incomplete",
        r"CMake Generate step failed",
    ),
    Level.BUILD: (
        _START + r"FAILED: ",
        r"^CMake Error at \S{1,300}\.cu\.(?:o|obj)(?:\.\w{2,20})?\.cmake:\d{1,6} \(message\)",
        r"ninja: build stopped",
        _START + r"(?:g|mingw32-)?make(?:\.exe)?(?:\[\d+\])?: "
        r"\*\*\* (?!No rule|No targets|internal error|/|.{0,300}\(ignored\))",
        r"collect2(?:\.exe)?: (?:error|fatal error): ld returned",
        r"clang(?:\+\+)?(?:-\d+)?: error: linker command failed",
        r"Error compiling objects for extension",
        r"Error building extension '",
        r"error: command '[^']{0,300}' failed",
        r"error: command failed: ",
        r"CalledProcessError: Command (?!.{0,4}\b(?:where|which)\b)",
        r"cc1(?:plus)?: (?:all|some) warnings being treated as errors",
        r"compilation terminated\.",
        r"\d+ errors? (?:generated|detected in the compilation)",
        r"(?:^|\.exe: )exit status [1-9]\d{0,2}$",
        r"^thread \d{1,9} panic: ",
        r"\b(?:failed|exited|finished) with (?:exit |return )?(?:code|status):? [1-9]\d{0,2}\b",
        r"\bbad exit status: [1-9]",
        r"\bnon-?zero exit (?:code|status|value)",
        r"^(?:# (?:FAIL|ERROR)|Fail|Timeout):\s{1,24}[1-9]\d{0,6}\s{0,8}$",
    ),
    Level.PACKAGE: (
        r"ERROR: (?:Failed building|Failed to build|Could not build)",
        r"error: subprocess-exited-with-error",
        r"error: metadata-generation-failed",
        r"error: (?:legacy-install-failure|failed-wheel-build-for-install)",
        r"did not run successfully",
        r"note: This error originates from a subprocess",
        r"^\s{0,8}[│|] exit code: ",
        r"Failed to (?:download and )?build `",
        r"^\s{0,8}\u00d7 (?:Failed|No solution|Invalid|Missing|Could not|Unable) ",
        r"ERROR Backend subprocess exited",
        r"^\s{0,8}(?:[├|]|\|-)\S{1,3} The build backend returned an error",
        r"^\s{0,8}(?:[╰`])\S{1,3} Call to `[\w.:]{3,80}` failed(?!: \w)",
    ),
    Level.IMAGE: (
        r"ERROR: failed to (?:build: failed to )?solve: (?:process|executor failed|rpc error)",
        r"ERROR: failed to build(?!: failed to solve)",
        r"ERROR: process \"(?!.{0,600}exit code: 137)",
        r"^Error: (?:building at STEP|error building at STEP)",
        r"The command '[^']{0,300}' returned a non-zero code(?!: 137)",
        r"did not complete successfully: exit code(?!: 137)",
    ),
    Level.JOB: (
        r"Process completed with exit code [1-9]",
        r"ERROR: Job failed",
        r"script returned exit code [1-9]",
        r"^Error: buildx failed",
    ),
}
_SUCCEEDED: _Tables = {
    Level.CONFIGURE: (
        r"-- Build files have been written to: ",
        r"^\s{0,24}config\.status: creating ",
    ),
    Level.BUILD: (
        r"^\s{0,24}\[(\d{1,6})/\1\] ",
        r"^\s{0,24}\[100%\] Built target ",
        r"^ninja: no work to do",
        r"^Build succeeded\.",
        r"^100% tests passed",
        r"^OK(?: \([a-z\d =,]{1,80}\))?$",
        r"^(?:# FAIL|Fail):\s{1,24}0\s{0,8}$",
        r"^\s{0,8}Finished .{1,80} target\(s\) in ",
        r"^(?:={2,} )?\d{1,6} passed(?!.{0,80}(?:failed|error))",
    ),
    Level.PACKAGE: (
        r"^\s{0,8}Successfully (?:installed|built) ",
        r"^Finished processing dependencies for ",
        r"^\s{0,4}Installed \d+ packages? in ",
        r"^stoker: built in ",
    ),
    Level.IMAGE: (r"naming to \S{1,300} .{0,20}done$", r"^Successfully tagged "),
    Level.JOB: (r"^Job succeeded", r"^Finished: SUCCESS"),
}
# What go says, but for downloads and changes of its go.mod.
_OF_GO = (
    r"^go: (?!(?:downloading|finding|found|added|upgraded|downgraded|removed|creating|to add"
    r"|warning|extracting|switching|copying|converting|upgrading|no module dependencies|trying)\b"
    r"|module \S{1,200} is deprecated|.{0,200}(?:=>|retracted))\S"
)
_ERROR = (
    r"(?:^|[\s\]\)'])(?:fatal |internal compiler )?[Ee]rror\s{0,4}: ",
    r"\berror (?:[A-Z]{1,4}\d{4}|#\d+)\b",
    r"^\s{0,24}CMake Error",
    r"^Configuration failed because ",
    r"^\s{0,24}(?:[\w.]{1,100})?(?:Error|Exception)(?::|$)",
    r"\bfatal\s{0,4}: ",
    r"^panic: ",  # Go
    r"^\s{0,24}thread '.{1,60}' .{0,20}panicked at ",  # Rust
    r"\brequires \S{1,80} [<>=~]{1,2} ?\d.{0,40}\((?:running|found|have|got)\b",
    r"^\s{0,24}ERROR[: ]",
    r"meson\.build:\d{1,6}:\d{1,6}: ERROR: ",
    r"(?:^|[\s>|:\]])E: [A-Z][a-z']",  # apt and bootstrappers, also behind the name of a tool
    r"^(?:\./)?[\w./@+-]{1,200}\.go:\d{1,6}:\d{1,5}: ",  # Go
    r"^\s{0,8}[╰`]\S{1,3} Call to `[\w.:]{3,80}` failed: \w",  # uv
    r"^e: file://",  # Kotlin
    r"^Error in \w{1,40}:",  # Bazel
    r"^(?:npm ERR!|npm error|gyp ERR!) ",
    r"\*\*\* .{1,300}\.\s{1,4}Stop\.$",  # make, of its Makefile
    _OF_GO,
    r"^autopoint: \*\*\* (?!Stop)",
    r"^You have not agreed to the Xcode",
    r"^\* What went wrong:",  # Gradle
    r"^link: \S{1,200}: |^package \S{1,200} is not in std|^go: no Go |: use of internal package ",
    r"^go: download \S{1,80} for .{1,80} not available",
    r"^(?:java: |Caused by: )java\.|^java\.lang\.\w{1,60}Error\b",
    r"^Your (?:Ruby version is|bundle only supports|lockfile)|^rake aborted!",
    r"^pyproject\.toml changed significantly|^The currently activated Python version",
    r"^##\[error\]",  # GitHub Actions
    r"^Your requirements could not be resolved|is missing from your system",  # composer
    r"\b(?:ninja|make(?:\[\d+\])?): (?:error|fatal|\*\*\*)",
    r"died due to signal",
    r"undefined reference to",
    r"^\s{0,8}>>> (?:referenced by|defined (?:at|in)) ",  # ld.lld, of an error above
    r"^\s{0,8}Imported target \".{1,80}\" includes non-existent path",
    r"unresolved external symbol .{1,300} referenced in function",
    r"(?:错误|エラー|오류|[Ff]ehler|erreur|ошибка)\s{0,2}[:\uff1a]",  # as gcc speaks elsewhere
    r"未定义的引用|référence indéfinie|[Nn]icht definierter Verweis",
    r"^\s{0,24}Undefined symbols for architecture",
    r"\bld: (?!warning)",
    r"\bld\.\w{1,8}: (?!warning)",
    r"relocation truncated to fit",
    r"^\s{0,24}(?:Killed|Aborted|Segmentation fault|Bus error|Illegal instruction)",
    r"(?:Segmentation fault|Killed|Aborted)\s{0,20}(?:\(core dumped\)|$)",
    r"line \d{1,6}: {1,4}\d{1,9} (?:Killed|Aborted|Segmentation fault|Bus error)\b",  # bash
)
_HARMLESS = (
    (  # but not in what an error of a compiler says
        r"^(?!.{1,400}[):]\d{0,7}\s?: (?:fatal )?error(?: C\d{4})?: .{0,2000}\bwarning\b)"
        r".{0,2000}?\bwarning\b(?!.{0,300}\[-Werror)"
    ),
    r"ERROR: pip's dependency resolver",
    r"\bfatal: (?:not a git repository|[Nn]o (?:names|tags) found|no tag exactly)",
    r"Performing Test \w",
    r"^\s{0,24}-- ",
    r"\(ignored\)",
)
# A warning that ends no step, whatever it is about.
_WARNING = (
    r"(?:^|[\s>|:\]])W: [A-Z][a-z']",
    r"^\s{0,24}(?:\S{1,60}: )?(?:[Ww]arning|WARNING): (?!.{0,300}-Werror)",
)
# What the last lines of a log that failed say, whatever the tool.
_COMPLAINT = (
    r"(?<![\w./=-])(?:[Ee]rror|ERROR|FAILED|[Ff]ailed|[Ff]atal|[Cc]annot|[Cc]ould not|[Uu]ndefined"
    r"|[Uu]nable to|[Nn]ot (?:installed|supported)|[Nn]o (?:valid|suitable|usable|compatible)"
    r"|[Pp]lease (?:download|install)"
    r"|unexpected|[Nn]ot found|No such file|is missing|[Ee]xclude all"
    r"|[Dd]enied|[Rr]efused|[Aa]borted)(?![\w-]|\.\w|: 0\b)"
)
# Notes that compilers print below an error, or below a warning.
_NOTES = (
    (
        r": note: {1,3}(?:initializing argument|no known conversion|candidate|declared here"
        r"|expected .{1,200} but argument is of type)"
    ),
)
# A file that was included, as compilers list it above a message in any language, and a message.
_INCLUDES = r"\.(?:[ch]\w{0,2}|[ch]\+\+|cuh?|inl|ipp|tcc|mm?):\d{1,7}(?::\d{1,5})?[,:]$"
_PLACED = r"\.\w{1,5}:\d{1,7}:\d{1,5}: "
_LAST = 12  # lines with text at the end of a log
_QUOTES = r"\s{0,9}\d{0,7} ?\|"  # source that a compiler shows below its message
_OF_CMAKE = (r"^\s{0,24}CMake Error",)  # old ones say after it that files were written
_STEP = (
    _START + r"FAILED: ",
    r"^\s{0,24}CMake Error",
    r"^\s{0,24}Traceback \(most recent call last\)",
)
_TRACEBACK = (r"^\s{0,24}Traceback \(most recent call last\)",)
_NINJA_STEP = (_START + r"FAILED: ",)
# What a tool says that it could not make: an object, a target, a package.
_MADE = (
    _START + r"FAILED: (?:\[code=\d{1,3}\] )?(?P<what>\S{1,200})",
    r"make(?:\[\d+\])?: \*\*\* \[(?:[^\]\n]{1,200}:\d{1,6}: )?(?P<what>[^\]\n]{1,200})\] Error",
    r"Failed building wheel for (?P<what>[\w.-]{1,80})",
    r"Failed to (?:download and )?build [`'](?P<what>[^`'\n]{1,120})[`']",
    r"could not compile `(?P<what>[\w-]{1,80})`",
    r"failed to run custom build command for `(?P<what>[\w .+-]{1,80})`",
    r"CMake Error at (?P<what>[^\s:]{1,200}:\d{1,6})",
)
_CHAIN = (r"another exception occurred", r"direct cause of the following exception")
_PROGRESS = re.compile(r"\s{0,24}\[\d{1,6}/\d{1,6}\] ").match
_NEAR = 60  # lines between things that have to do with one another, in one failing step
_SHOWN = 12  # lines of an error without a cause; more, up to the next error
_MOST_SHOWN = 60
_ABOVE = 2  # lines that belong to an error and come first: the function, the include
_MOST_ABOVE = 40  # lines of a traceback before its error


class LogSteps(Value, frozen=True, kw_only=True):
    """The classification of a log's lines; all numbers are indices into them."""

    step: tuple[int, ...]  # the number of the step of each line
    fences: tuple[int, ...]  # where one step of ninja ends and the next begins
    errors: tuple[int, ...]  # without the echoes and the harmless
    echoes: frozenset[int]
    tracebacks: tuple[int, ...]  # their first lines
    cut: frozenset[int]  # where the log ends within a traceback
    refusals: dict[int, range]  # errors of CMake that no success took back, with their messages
    warnings: tuple[range, ...]  # the messages of CMake's warnings
    notices: frozenset[int]  # their lines
    warned: frozenset[int]  # warnings of any tool where an error comes before them
    last_failure: dict[Level, int]
    last_success: dict[Level, int]

    @property
    def failed(self) -> bool:
        """Whether there is a failure that no later success cancelled."""
        return any(not self._taken_back(*failure) for failure in self.last_failure.items())

    def _taken_back(self, level: Level, line: int) -> bool:
        return _succeeded_after(line, level, self.last_success)

    def taken_back(self, line: int) -> bool:
        """Return whether anything succeeded after a line."""
        return self._taken_back(Level.LINE, line)

    @property
    def first_error(self) -> int | None:
        """The first error that nothing took back, or the first line that says that it failed.

        An error of CMake comes first: others in the log of a configure are what programs printed.
        """
        left = [line for line in self.errors if not self.taken_back(line)]
        return next(iter([*self.refusals, *left, *self.errors, *sorted(self.echoes)]), None)

    def near(self, line: int) -> range:
        """Return the lines that may be related to a line."""
        after = bisect_right(self.fences, line)
        begin = self.fences[after - 1] if after else 0
        end = self.fences[after] if after < len(self.fences) else len(self.step)
        return range(max(begin, line - _NEAR), min(end, line + _NEAR + 1))

    def block(self, error: int) -> range:
        """Return the lines to show for an error: the whole message, with its traceback."""
        begin, end = error, error + 1
        if error in self.refusals:
            others = set(self.errors)
            while begin - 1 in others:  # printed by what CMake ran
                begin -= 1
            return range(begin, self.refusals[error].stop)
        while begin > max(0, error - _ABOVE) and self.step[begin - 1] == self.step[error]:
            begin -= 1
        head = max((line for line in self.tracebacks if line <= error), default=-1)
        if head >= 0 and self.step[head] == self.step[error] and error - head <= _MOST_ABOVE:
            begin = min(begin, head)
        others = set(self.errors)
        while end < min(len(self.step), begin + _MOST_SHOWN) and self.step[end] == self.step[error]:
            if end >= begin + _SHOWN and end in others:
                break
            end += 1
        return range(begin, end)


# All of them, so that the index of patterns has their literals.
PATTERNS = (
    *(pattern for table in (_GIVEN_UP, _SUCCEEDED) for row in table.values() for pattern in row),
    *_ERROR,
    *_HARMLESS,
    *_WARNING,
    *_NOTES,
    *_OF_CMAKE,
    *_STEP,
    *_TRACEBACK,
    *_NINJA_STEP,
    *_MADE,
    *_CHAIN,
)


def find_steps(lines: Sequence[Line], texts: Texts) -> LogSteps:
    levels, successes = _levels(_GIVEN_UP, texts), _levels(_SUCCEEDED, texts)
    echoes = set(levels)
    named = {*_with(_ERROR, texts), *_last_words(lines)} - echoes - successes.keys()
    errors = sorted(line for line in named if _counts(lines[line]))
    cut = _cut_traceback(lines, texts) or ([] if errors or levels else _cut_includes(lines))
    errors = sorted({*(errors or _orphans(texts)), *cut})
    of_cmake = set(_with(_OF_CMAKE, texts))
    levels |= {line: Level.BUILD if line in of_cmake else Level.LINE for line in errors}
    found, last_success = messages(lines, texts), _last(successes)
    return LogSteps(
        step=tuple(_numbered(lines, texts, echoes)),
        fences=tuple(_fences(lines, texts)),
        errors=tuple(errors),
        echoes=frozenset(echoes),
        tracebacks=tuple(_with(_TRACEBACK, texts)),
        cut=frozenset(cut),
        refusals={
            span.start: span
            for span in found["Error"]
            if not _succeeded_after(span.start, Level.BUILD, last_success)
        },
        warnings=tuple(found["Warning"]),
        notices=frozenset(line for span in found["Warning"] for line in span),
        warned=frozenset(line for line in _with(_WARNING, texts) if errors and line > errors[0]),
        last_failure=_last(levels),
        last_success=last_success,
    )


def _orphans(texts: Texts) -> list[int]:
    """Return the notes of a compiler that belong to no warning: their error was cut off."""
    return [] if texts.having("warning: ") else _with(_NOTES, texts)


def _cut_traceback(lines: Sequence[Line], texts: Texts) -> list[int]:
    """Return the last line of a log that ends within a traceback, whose error was cut off."""
    heads = _with(_TRACEBACK, texts)
    end = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].text.strip()), -1)
    if not heads or end <= heads[-1]:
        return []
    within = [line.text for line in lines[heads[-1] + 1 : end + 1] if line.text.strip()]
    least = len(lines[heads[-1]].text) - len(lines[heads[-1]].text.lstrip())
    inside = all(len(text) - len(text.lstrip()) > least for text in within)
    return [end] if inside else []


def _cut_includes(lines: Sequence[Line]) -> list[int]:
    """Return the last line of a log that ends below a list of includes, whose message was cut
    off.
    """
    last = [index for index in range(len(lines)) if lines[index].text.strip()][-_LAST:]
    listed = [index for index in last if compiled(_INCLUDES).search(lines[index].text)]
    below = last[last.index(listed[-1]) + 1 :] if listed else []
    said = any(compiled(_PLACED).search(lines[index].text) for index in below)
    return last[-1:] if listed and not said else []


def failed_step(texts: Texts) -> str:
    """Return what could not be made first: an object, a target or a package; empty if no tool
    says it.
    """
    found = [hit for text in _MADE for hit in texts.search(text, most=1).items()]
    return min(found, key=lambda hit: hit[0])[1]["what"] if found else ""


def _last_words(lines: Sequence[Line]) -> list[int]:
    """Return the lines at the end of a log that complain."""
    last = [index for index in range(len(lines) - 1, -1, -1) if lines[index].text][:_LAST]
    texts = {index: lines[index].text for index in last}
    return [
        index
        for index, text in texts.items()
        if compiled(_COMPLAINT).search(text) and not compiled(_QUOTES).match(text)
    ]


def _with(patterns: Iterable[str], texts: Texts) -> list[int]:
    """Return the lines in which one of the patterns is found, in order."""
    return sorted({index for pattern in patterns for index in texts.search(pattern)})


def _levels(table: _Tables, texts: Texts) -> dict[int, Level]:
    """Return the level of each line that a table knows."""
    found: dict[int, Level] = {}
    for level, patterns in table.items():
        for index in _with(patterns, texts):
            found.setdefault(index, level)
    return found


def _last(levels: Mapping[int, Level]) -> dict[Level, int]:
    return {levels[index]: index for index in sorted(levels)}


def _succeeded_after(line: int, level: Level, successes: Mapping[Level, int]) -> bool:
    return any(at > line for outer, at in successes.items() if outer >= level)


def _fences(lines: Sequence[Line], texts: Texts) -> Iterator[int]:
    """Yield where ninja reports a failed step, with the line before if that names its command."""
    for index in _with(_NINJA_STEP, texts):
        named = index > 0 and _PROGRESS(lines[index - 1].text)
        yield index - 1 if named else index


def _counts(line: Line) -> bool:
    return not any(compiled(pattern).search(line.text) for pattern in _HARMLESS)


def _numbered(lines: Sequence[Line], texts: Texts, echoes: set[int]) -> Iterator[int]:
    """Yield the number of the step of each line. A step begins where a tool says so, and after the
    echoed commands of another.
    """
    steps, chains = set(_with(_STEP, texts)), set(_with(_CHAIN, texts))
    number, chained = 0, False
    for index, line in enumerate(lines):
        begins = index in steps and not chained
        if begins or (index - 1 in echoes and index not in echoes):
            number += 1
        if line.text:
            chained = index in chains
        yield number
