"""Finds the signs of known causes in a log, and explains other failures by kind. Ranks nothing.

A symptom says what failed and where, in the words of the tool: an error in a source, a missing file
or library, a traceback. An entry of knowledge/failures that recognises the same failure says more,
and is named instead.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from stoker.diagnose.ages import Versions, may_show
from stoker.diagnose.lines import Texts, compiled
from stoker.diagnose.messages import joined_lines, paragraphs, uv_messages
from stoker.diagnose.sieve import Line
from stoker.diagnose.steps import LogSteps
from stoker.knowledge.failures import Failure, Sign, failures
from stoker.knowledge.providers import ProvidedKind, library_of, provider
from stoker.model.value import Value

_MOST_HITS = 1000  # of one sign that are looked into
_MOST_PARAGRAPHS = 1000  # of messages of CMake and uv: each is put together many times
_Hits = Mapping[int, re.Match[str]]  # by line

# A message continues in the next line: clang does so after `error:`, CMake and nvcc near column 78.
_WRAPS = range(55, 86)  # characters of a line that may have been wrapped
_CONTINUES = re.compile(r"\s{1,24}(?!\d{1,6} \|)[\w'\"`(/<]").match  # and quotes no source

Given = Callable[[str], bool]


_MOST = 200  # errors of one kind that are looked into
_LONGEST = 160  # characters of a message that is repeated in a headline
# How compilers name a place: gcc and clang, nvcc, Microsoft's.
_COMPILER_ERRORS = (
    (
        r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):(?P<line>\d{1,7})(?::\d{1,5})?"
        r": (?:fatal )?error: (?P<message>\S.{0,300})"
    ),
    (
        r"^\s{0,24}(?P<file>[^\s('\"][^('\"\n]{0,300}\.\w{1,5})\((?P<line>\d{1,7})(?:,\d{1,5})?\)"
        r": (?:fatal )?error(?: [A-Z]{0,3}#?[\d-]{1,7}D?)?: (?P<message>\S.{0,300})"
    ),
)
_NO_HEADER = (
    r"fatal error: ['\"\u2018]?(?P<header>[\w./+-]{2,120}?)['\"\u2019]?"
    r"(?:: No such file or directory| file not found)"
    r"|Cannot open include file: '(?P<opened>[\w./+-]{2,120})'"
)
_UNDEFINED = (
    r"undefined reference to [`'\u2018](?P<symbol>[^'\u2019\n]{1,400})['\u2019]",
    r"undefined symbol: (?P<symbol>[^\s'\"][^\n]{0,300}?)(?: \(|$)",
    r"^\s{2,24}\"_?(?P<symbol>[^\"\n]{1,300})\", referenced from:",
)
# The type that a template returns, before its name: it tells nothing of the library that lacks.
_RETURNED = r"^[\w:]{1,100}::\w{1,100}[ *&]{1,4}(?=[\w:]{1,100}::\w)"
_NOT_NAMED = (r"/lib(?P<library>[\w+-]{1,60})\.so[\d.]{0,12}: error adding symbols: DSO missing",)
_NO_LIBRARY = (
    r"cannot find -l:?(?P<library>[\w.+-]{1,60})(?::|\s|$)",
    r"cannot find /[^\s:]{1,300}/lib(?P<library>[\w+-]{1,60})\.(?:a|so)\b",
    r"unable to find library -l(?P<library>[\w.+-]{1,60})",
    r"library (?:not found for -l|')(?P<library>[\w.+-]{1,60})(?:' not found|\s|$)",
)
_NO_RULE = (
    (
        r"No rule to make target [`'\u2018](?P<file>[^'\u2019\n]{1,300})['\u2019]"
        r"(?:, needed by [`'\u2018](?P<for>[^'\u2019\n]{1,300})['\u2019])?"
    ),
    (
        r"ninja: error: '(?P<file>[^'\n]{1,300})'(?:, needed by '(?P<for>[^'\n]{1,300})')?"
        r", missing and no known rule"
    ),
)
_CONFIGURE = (r"(?:^|\s)configure: error: (?P<message>\S.{0,300})",)
# What a message of configure, Meson or CMake says is lacking, by words that name it.
_LACKS = r"not found|\b[Nn]o |missing|(?:not|n't) find|[Rr]equire|[Nn]eed|[Ii]nstall"
_NAMED = (
    r"\b(?P<header>[\w/+-]{2,40}\.h)\b"
    r"|\b(?P<library>(?:lib)?[\w.+-]{3,30}) (?:development |devel )?(?:header|librar|devel|package)"
)
_C_LIBRARY = {"libc6-dev", "linux-libc-dev"}  # packages that are never what is lacking
_MESON = (r"^\s{0,24}(?:\S{1,200}meson\.build:\d+:\d+: )ERROR: (?P<message>\S.{0,300})",)
_EXCEPTION = (
    r"^\s{0,24}(?P<kind>[A-Za-z_][\w.]{0,100}"
    r"(?:Error|Exception|Exit|NotFound|Failed|Warning|Interrupt))(?:: (?P<message>.{1,300}))?$"
)
_FRAME = r'^\s{0,30}File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})'
# Frames of the tools that run a build; the error lies in what they were given.
_TOOLS = (
    r"/lib/python3?[\d.]*/(?!(?:site|dist)-packages/)"
    r"|/(?:pip|setuptools|pyproject_hooks|pep517|build|wheel|distutils|_distutils_hack"
    r"|scikit_build_core|skbuild|mesonpy|hatchling|flit_core|poetry|uv)/"
    r"|<string>|<frozen|^<|in_process"
)
_ECHOES = ("CalledProcessError", "SystemExit", "KeyboardInterrupt", "DeprecationWarning")
# Sources that are not the user's: headers of the system, of packages, and bundled projects.
_FOREIGN = (
    r"^/usr/(?!src/)|^/opt/|/site-packages/|/dist-packages/|/envs/[^/]+/include|/conda/|/cuda[^/]*/"
    r"|/pip-(?:install|download|build-env|wheel|unpack)-|/sdists-v\d|/builds-v\d|/\.cargo/|/go/pkg/mod/"
    r"|(?:^|/)(?:third[_-]?party|_deps|vendor(?:ed)?|extern(?:al)?s?|deps|subprojects|submodules"
    r"|node_modules|vcpkg(?:_installed)?|\.conan2?|bazel-\w+/external)/"
)
PATTERNS = (
    *_COMPILER_ERRORS,
    _NO_HEADER,
    *_NOT_NAMED,
    *_UNDEFINED,
    *_NO_LIBRARY,
    *_NO_RULE,
    *_CONFIGURE,
    *_MESON,
    _EXCEPTION,
)


class Match(Value, frozen=True, kw_only=True):
    """A sign that was found: where, with which other lines, and the groups of its match."""

    cause: Failure
    sign: str  # its pattern
    strength: float
    line: int
    with_lines: tuple[int, ...] = ()
    groups: dict[str, str] = {}
    quiet: bool = False


class LogSearch(Value, frozen=True, kw_only=True):
    """A log and all that is known of its lines. ``given`` tells whether a fact has a value, and
    ``versions`` the version of a product that the log shows.
    """

    lines: Sequence[Line]
    texts: Texts
    steps: LogSteps
    given: Given
    versions: Versions


def find_matches(search: LogSearch) -> list[Match]:
    """Return every place where a sign has all that it requires."""
    wrapped = _Wrapped(search.lines, search.texts)
    return [
        match
        for cause in failures().values()
        for sign in cause.sign
        if (hits := wrapped.search(sign.match))
        and _is_possible(sign, search)
        and (not cause.product or may_show(cause.since, search.versions(cause.product)))
        for line, found in hits.items()
        if (match := _match(cause, sign, line, found, search))
    ]


class _Wrapped:
    """The lines of a log, and those that a tool has wrapped once more as it meant them."""

    def __init__(self, lines: Sequence[Line], texts: Texts):
        self._texts = texts
        self._whole = list(_whole_messages(lines, texts))
        self._more = Texts([text for _, text, _ in self._whole])

    def search(self, pattern: str) -> _Hits:
        found = self._texts.search(pattern, most=_MOST_HITS)
        if not self._whole:
            return found
        hits = dict(found)
        for number, match in self._more.search(pattern, most=_MOST_HITS).items():
            line, _, end = self._whole[number]
            if match.start() <= end:
                hits.setdefault(line, match)
        return hits


def _whole_messages(lines: Sequence[Line], texts: Texts) -> Iterator[tuple[int, str, int]]:
    """Yield the first line of each message that was wrapped, its text, and the length of the first
    line.
    """
    for index, line in enumerate(lines[:-1]):
        if _may_wrap(line.text) and _CONTINUES(rest := lines[index + 1].text):
            yield index, f"{line.text} {rest.lstrip()}", len(line.text)
    wrapped = chain(paragraphs(lines, texts), uv_messages(lines, texts))
    for paragraph in islice(wrapped, _MOST_PARAGRAPHS):
        for begin in paragraph[:-1]:
            whole = joined_lines(lines, range(begin, paragraph.stop))
            yield begin, whole, len(lines[begin].text.strip(" \t│"))


def _may_wrap(text: str) -> bool:
    return text.endswith("error:") or (len(text) in _WRAPS and text[-1] not in ".:;)]}>|^~")


def _is_possible(sign: Sign, search: LogSearch) -> bool:
    """Return whether the log has what a sign needs anywhere, and the machine what it is about."""
    if sign.project and not search.texts.having(sign.project):
        return False
    return (
        all(search.texts.search(pattern, most=1) for pattern in sign.anywhere)
        and not any(search.texts.search(pattern, most=1) for pattern in sign.excludes)
        and all(map(search.given, sign.given))
    )


def _match(
    cause: Failure, sign: Sign, line: int, found: re.Match[str], search: LogSearch
) -> Match | None:
    near = search.steps.near(line)
    beside = [_first_within(search.texts.search(pattern), near) for pattern in sign.needs]
    beside += [min(search.texts.search(pattern, most=1)) for pattern in sign.anywhere]
    if None in beside:
        return None
    if found.end() > len(search.lines[line].text):
        beside.insert(0, line + 1)
    return Match(
        cause=cause,
        sign=sign.match,
        strength=sign.strength,
        line=line,
        with_lines=tuple(index for index in beside if index is not None),
        groups={name: text for name, text in found.groupdict().items() if text},
        quiet=sign.quiet,
    )


def _first_within(hits: _Hits, near: range) -> int | None:
    return next((index for index in hits if index in near), None)


def find_symptoms(search: LogSearch, explained: Collection[int]) -> list[Match]:
    """Return the failures that can be explained by their kind, without the lines that are
    ``explained`` already.
    """
    kinds: tuple[Callable[[LogSearch], Iterable[Match]], ...] = (
        _missing_headers,
        _missing_libraries,
        _undefined_symbols,
        _source_errors,
        _missing_inputs,
        _configure_errors,
        _cmake_errors,
        _exceptions,
    )
    steps = search.steps
    found = (match for kind in kinds for match in kind(search))
    return [
        match for match in found if match.line not in explained and not steps.taken_back(match.line)
    ]


def _hits(search: LogSearch, patterns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    for pattern in patterns:
        for line, match in search.texts.search(pattern, most=_MOST).items():
            yield line, {name: text for name, text in match.groupdict().items() if text}


def _symptom(name: str, line: int, strength: float, groups: Mapping[str, str]) -> Match:
    short = {group: text.strip()[:_LONGEST] for group, text in groups.items()}
    return Match(cause=failures()[name], sign=name, strength=strength, line=line, groups=short)


def _missing_headers(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, [_NO_HEADER]):
        header = groups.get("header") or groups.get("opened", "")
        if provider(ProvidedKind.HEADER, header.removeprefix("./")):
            yield _symptom("system-headers-missing", line, 0.82, {"header": header})
        else:
            source = compiled(_COMPILER_ERRORS[0]).match(search.lines[line].text)
            file = {"file": source["file"]} if source else {}
            yield _symptom("file-missing", line, 0.7, {"header": header} | file)


def _missing_libraries(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, _NO_LIBRARY):
        if "warning: " in search.lines[line].text:
            continue
        yield _symptom("system-library-missing", line, 0.88, groups)


def _undefined_symbols(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, _NOT_NAMED):
        yield _symptom("library-not-linked", line, 0.85, {"symbol": groups["library"]} | groups)
    for line, groups in _hits(search, _UNDEFINED):
        symbol = compiled(_RETURNED).sub("", groups["symbol"])
        if library := library_of(symbol):
            yield _symptom("library-not-linked", line, 0.8, {"symbol": symbol, "library": library})
        else:
            yield _symptom("undefined-reference", line, 0.6, {"symbol": symbol})


def _source_errors(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, _COMPILER_ERRORS):
        if not re.search(_NO_HEADER, search.lines[line].text):
            if compiled(_FOREIGN).search(groups["file"]):
                yield _symptom("dependency-source-error", line, 0.6, {})
            else:
                yield _symptom("source-error", line, 0.65, groups)


def _missing_inputs(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, _NO_RULE):
        if not groups["file"].startswith("/"):  # others are of no step of this build
            yield _symptom("input-not-made", line, 0.6, groups)


def _configure_errors(search: LogSearch) -> Iterator[Match]:
    for line, groups in _hits(search, (*_CONFIGURE, *_MESON)):
        if lacking := _lacking(groups["message"]):
            yield _symptom("system-headers-missing", line, 0.8, lacking)
        else:
            yield _symptom("configure-error", line, 0.6, groups)


def _lacking(message: str) -> dict[str, str]:
    """Return the header or the module of pkg-config that a message says is lacking, if a package is
    known to have it.
    """
    if not compiled(_LACKS).search(message):
        return {}
    for named in compiled(_NAMED).finditer(message):
        name = named["library"] or ""
        for module in (name, name.lower(), f"lib{name.lower()}"):
            if name and provider(ProvidedKind.PKGCONFIG, module):
                return {"pkgconfig": module}
        header = named["header"] or f"{name.lower().removeprefix('lib')}.h"
        known = provider(ProvidedKind.HEADER, header)
        if known and not _C_LIBRARY & set(known.packages.values()):
            return {"header": header}
    return {}


def _cmake_errors(search: LogSearch) -> Iterator[Match]:
    for begin, span in search.steps.refusals.items():
        body = [line for line in span if line > begin and search.lines[line].text.strip()]
        end = next(
            (line for line in body if search.lines[line].text.startswith("Call Stack")), None
        )
        message = joined_lines(search.lines, (line for line in body if end is None or line < end))
        head = search.lines[begin].text.strip()
        if lacking := _lacking(message):
            yield _symptom("system-headers-missing", begin, 0.8, lacking)
        else:
            yield _symptom("cmake-error", begin, 0.6, {"message": message or head})


def _exceptions(search: LogSearch) -> Iterator[Match]:
    """Yield the exceptions that end a traceback, with the last frame outside of the tools."""
    for line, groups in _hits(search, [_EXCEPTION]):
        heads = [head for head in search.steps.tracebacks if head < line]
        if not heads or groups["kind"].endswith(_ECHOES) or line in search.steps.echoes:
            continue
        frames = [
            match
            for one in search.lines[heads[-1] : line]
            if (match := compiled(_FRAME).match(one.text))
        ]
        own = [frame for frame in frames if not compiled(_TOOLS).search(frame["file"])]
        if own:
            yield _symptom("python-error", line, 0.6, groups | own[-1].groupdict())
