"""Explains failures by their kind, where no entry of knowledge/failures knows more. Ranks nothing.

A symptom says what failed and where, in the words of the tool: an error in a source, a missing file
or library, a traceback. Two kinds of message say why: one that the project wrote itself for this
case (statements.py), and one about a name that a library does not have.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from stoker.diagnose.c_functions import is_hidden_without_gnu, shifted_calls, without_include
from stoker.diagnose.found_packages import declined_versions, incomplete_packages, refused_packages
from stoker.diagnose.interfaces import (
    collisions,
    declared_at,
    misfits,
    mistyped_members,
    unowned_misfits,
)
from stoker.diagnose.lines import COMPILER_ERRORS, compiled
from stoker.diagnose.loaded import failed_loads
from stoker.diagnose.messages import message_text
from stoker.diagnose.missing_headers import NO_HEADER, missing_headers, on_apple
from stoker.diagnose.mixed_ages import headers_not_included, mixed_ages
from stoker.diagnose.said_programs import missing_programs
from stoker.diagnose.signs import MOST_OF_A_KIND, LogSearch, Match, symptom
from stoker.diagnose.statements import (
    STATED,
    conflicting_versions,
    requirements,
    stated_cause,
    statements,
)
from stoker.diagnose.tracebacks import cut_imports, exceptions
from stoker.diagnose.two_releases import mixed_headers
from stoker.diagnose.unlinked import failed_links
from stoker.knowledge.owners import owner_of_path, release_of
from stoker.knowledge.providers import ProvidedKind, provider

_FEW = 40  # errors in sources: the first of a step is the one that counts
_SHORT = 160  # characters of a message that names what it needs
_INCLUDED = r"^\s{0,24}(?:In file included )?from (?P<file>[^\s:]{1,300}):\d{1,7}"
_SOURCE = r"\.(?:c|cc|cpp|cxx|cu|m|mm|C|f|f90|F90|hip)$"
_ABOVE = 24  # lines in which includes are listed
_NO_RULE = (
    (
        r"No rule to make target [`'\u2018](?P<file>[^'\u2019\n]{1,300})['\u2019]"
        r"(?:, needed by [`'\u2018](?P<for>[^'\u2019\n]{1,300})['\u2019])?"
    ),
    (
        r"ninja: error: '(?P<file>[^'\n]{1,300})'(?:, needed by '(?P<for>[^'\n]{1,300})')?"
        r", missing and no known rule"
    ),
    r"NMAKE : fatal error U1073: don't know how to make '(?P<file>[^'\n]{1,300})'",
    (
        r"scons: \*\*\* (?:\[[^\]\n]{1,300}\] )?Source `(?P<file>[^'\n]{1,300})' not found"
        r", needed by target `(?P<for>[^'\n]{1,300})'"
    ),
)
_GOAL = r"[a-z][\w-]{1,40}"  # of make, such as install: no file
# Xcode and Bazel name the inputs of their own steps by full paths.
_NO_INPUT = (
    r"Build input files? cannot be found: '(?P<file>[^',\n]{1,300})'",
    r"ERROR: missing input file '(?P<file>//[^'\n]{1,300})'",
)
# A file or folder that CMake was given.
_NOT_THERE = (
    r"(?:include could not find (?:load|requested) file: {1,4}|Cannot find source file: {1,4}"
    r"|add_subdirectory given source {1,4}\"(?=[^\"]{1,300}\" which is not an existing)"
    r"|given (?:source|file|path) {1,4}\"(?=[^\"]{1,300}\" (?:that|which) does not exist)"
    r"|^CMake Error: File (?=\S{1,300} does not exist))"
    r"(?P<file>[^\s\"]{1,300})"
)
_CONFIGURE = (r"(?:^|\s)configure: error: (?P<message>\S.{0,300})",)
_LACKS = r"not found|\b[Nn]o |missing|(?:not|n't) find|[Rr]equire|[Nn]eed|[Ii]nstall"
_NAMED = (
    r"\b(?P<header>[\w/+-]{2,40}\.h)\b"
    r"|\b(?P<library>(?:lib)?[\w.+-]{3,30}) (?:development |devel )?(?:header|librar|devel|package)"
)
_THING = r"['\"`]?([A-Za-z][\w.+:/-]{1,50}(?: [<>=]{1,2} ?[\d.]{1,12})?)['\"`]?"
_NEEDED = (
    rf"^(?:[Tt]he )?{_THING}(?: \w{{1,12}}){{0,2}} (?:(?:was|is|are|were|could) )?"
    rf"(?:not (?:be )?found|missing|required|needed)\b"
    rf"|(?:[Cc]ould not|[Cc]ouldn't|[Cc]annot|[Uu]nable to) (?:find|locate) (?:the |an? )?{_THING}"
    rf"|^[Mm]issing {_THING}(?: \w{{1,12}})?[.!]?$|^[Nn]o {_THING}(?: \w{{1,12}})? found\b"
)
_VAGUE = (
    r"(?i)(?:requested|compiler|toolchain|librar(?:y|ies)|file|package|module|program|header|tool"
    r"|it|flags?|options?|cannot|can|could|not|configure|support|path|version|value|command|must|this"
    r"|that|you|we|no)$"
)
_NOT_GNU = ("mingw", "MSVC", "reebsd", "reeBSD", "OpenBSD", "openbsd", "NetBSD")  # systems
_MESON = (r"^\s{0,24}(?:\S{1,200}meson\.build:\d+:\d+: )ERROR: (?P<message>\S.{0,300})",)
# Where a tool says that the output of a build is.
_OTHER_LOG = (
    r"(?:[Cc]onsult|[Ss]ee(?: also)?|[Ll]og (?:file )?(?:is|was|in|at|location)|[Ll]ogs?:"
    r"|can be found (?:in|at)|captured in|[Ff]or more (?:information|details),?(?: see)?)"
    r"[: ]{1,3}[\"'`\u2018]?(?P<file>(?:/|[A-Za-z]:[/\\])[^\s\"'`\u2018\u2019]{2,200}?"
    r"(?:\.log|\.out|\.txt))\b"
)
# Sources that are not the user's: headers of the system, of packages, and bundled projects.
_FOREIGN = (
    r"^/usr/(?!src/)|^/opt/|/site-packages/|/dist-packages/|/envs/[^/]+/include|/conda/|/cuda[^/]*/"
    r"|/pip-(?:install|download|build-env|wheel|unpack)-|/sdists-v\d|/builds-v\d|/\.cargo/|/go/pkg/mod/"
    r"|(?:^|/)(?:third[_-]?party|_deps|vendor(?:ed)?|extern(?:al)?s?|deps|subprojects|submodules"
    r"|node_modules|vcpkg(?:_installed)?|\.conan2?|bazel-\w+/external)/"
)
# Each has a header of its name. Those that Qt 6 removed, or has in other modules, are not meant.
_CLASS_OF_QT = (
    r"(?!Q(?:RegExp|TextCodec|Text(?:De|En)coder|DesktopWidget|StringRef|LinkedList|Matrix|GL|Xml"
    r"|Audio|Media|Sound|Script|Declarative|WebView|WebPage|X11|Win|Mac|Platform|Ssl|State|FinalState)"
    r"|QML|QT_|Q_|QString\b|QObject\b)Q[A-Z][A-Za-z0-9]{2,40}"
)
PATTERNS = (*COMPILER_ERRORS, *_NO_RULE, *_NO_INPUT, *_CONFIGURE, *_MESON, _OTHER_LOG)


def find_symptoms(search: LogSearch, explained: Collection[int]) -> list[Match]:
    """Return the failures that can be explained by their kind, without the lines that are
    ``explained`` already.
    """
    kinds: tuple[Callable[[LogSearch], Iterable[Match]], ...] = (
        _stated,
        _versions,
        _programs,
        _misfits,
        _required,
        _missing_includes,
        _not_included,
        mixed_ages,
        missing_headers,
        _mixed_headers,
        failed_loads,
        failed_links,
        _source_errors,
        _missing_inputs,
        _configure_errors,
        _unusable_packages,
        _cmake_errors,
        exceptions,
        cut_imports,
        _other_logs,
    )
    steps = search.steps
    found = (match for kind in kinds for match in kind(search))
    return [
        match for match in found if match.line not in explained and not steps.taken_back(match.line)
    ]


def _stated(search: LogSearch) -> Iterator[Match]:
    for line, groups in statements(search):
        yield symptom(stated_cause(groups), line, STATED, groups)


def _versions(search: LogSearch) -> Iterator[Match]:
    for line, groups in conflicting_versions(search):
        is_old = "tool" in groups
        yield symptom(
            "build-tool-too-old" if is_old else "version-not-accepted", line, 0.82, groups
        )


def _programs(search: LogSearch) -> Iterator[Match]:
    for line, program in missing_programs(search):
        yield symptom("build-tool-missing", line, 0.82, {"program": program})


def _required(search: LogSearch) -> Iterator[Match]:
    for line, groups in requirements(search):
        yield symptom("stated-by-tool", line, 0.71, groups)


def _misfits(search: LogSearch) -> Iterator[Match]:
    for line, groups in misfits(search):
        source = compiled(COMPILER_ERRORS[0]).match(search.lines[line].text)
        if source and compiled(_CLASS_OF_QT).fullmatch(groups.get("member", "")):
            named = {"member": groups["member"], "file": source["file"]}
            yield symptom("missing-include-qt", line, 0.8, named)
        else:
            yield symptom("dependency-api-changed", line, 0.78, groups)
    for line, groups in shifted_calls(search):
        yield symptom("dependency-api-changed", line, 0.86, groups)
    for line, groups in collisions(search):
        yield symptom("declared-by-library-too", line, 0.74, groups)
    for line, owner in mistyped_members(search):
        yield symptom("bundled-source-error", line, 0.8, {"owner": owner})
    for line, groups in unowned_misfits(search):
        yield symptom("interface-mismatch", line, 0.72, groups)


def _missing_includes(search: LogSearch) -> Iterator[Match]:
    for line, name in without_include(search):
        if not is_hidden_without_gnu(name) or search.texts.having("_GNU_SOURCE"):
            yield symptom("missing-include-c", line, 0.88, {"function": name})
        elif not any(map(search.texts.having, _NOT_GNU)) and not on_apple(search):
            yield symptom("gnu-source-missing", line, 0.9, {"function": name})


def _not_included(search: LogSearch) -> Iterator[Match]:
    for line, groups in headers_not_included(search):
        strength = 0.74 if "library" in groups else 0.8
        yield symptom("header-not-included", line, strength, groups)


def _mixed_headers(search: LogSearch) -> Iterator[Match]:
    for line, groups in mixed_headers(search):
        yield symptom("headers-of-two-releases", line, 0.82, groups)


def _source_errors(search: LogSearch) -> Iterator[Match]:
    no_header = search.texts.search(NO_HEADER, most=MOST_OF_A_KIND)
    for line, groups in search.hits(COMPILER_ERRORS, most=_FEW):
        if line not in no_header:
            owner = compiled(_FOREIGN).search(groups["file"]) and owner_of_path(groups["file"])
            if owner and owner_of_path(_compiled_file(search, line, groups["file"])) == owner:
                groups = {"owner": str(owner), "message": groups["message"]}
                yield symptom("bundled-source-error", line, 0.66, groups)
            elif (
                "#error" not in groups["message"]
                and (release := release_of(groups["file"]))
                and not _differ_within(search, line)
            ):
                groups = {"owner": str(release), "message": groups["message"]}
                yield symptom("released-source-error", line, 0.68, groups)
            elif compiled(_FOREIGN).search(groups["file"]):
                yield symptom("dependency-source-error", line, 0.6, {})
            else:
                yield symptom("source-error", line, 0.65, groups)


def _differ_within(search: LogSearch, line: int) -> bool:
    """Return whether an error says that a use does not fit a declaration in the same release: then
    its files are of different ages, and not its tools.
    """
    return str(release_of(search.lines[line].text)) in {
        str(release_of(place)) for place in declared_at(search, line)
    }


def _compiled_file(search: LogSearch, line: int, file: str) -> str:
    """Return the file that was compiled when an error was found in a file that it includes."""
    above = search.lines[max(0, line - _ABOVE) : line]
    chain = [found["file"] for one in above if (found := compiled(_INCLUDED).match(one.text))]
    named = chain[-1] if chain else file
    return named if compiled(_SOURCE).search(named) else ""


def _missing_inputs(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits(_NO_RULE):
        file = groups["file"]
        is_goal = "for" not in groups and compiled(_GOAL).fullmatch(file)
        if not is_goal and not file.startswith("/"):  # others are of no step of this build
            yield symptom("input-not-made", line, 0.6, groups)
    for line, groups in search.hits(_NO_INPUT):
        yield symptom("input-not-made", line, 0.6, groups)


def _configure_errors(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits((*_CONFIGURE, *_MESON)):
        if lacking := _lacking(groups["message"]):
            yield symptom("system-headers-missing", line, 0.8, lacking)
        elif what := _required_thing(groups["message"]):
            yield symptom("requirement-missing", line, 0.76, {"what": what})
        else:
            yield symptom("configure-error", line, 0.6, groups)


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
        if known and not known.is_c_library:
            return {"header": header}
    return {}


def _required_thing(message: str) -> str | None:
    """Return what a short message says is not found or required."""
    found = compiled(_NEEDED).search(message) if len(message) < _SHORT else None
    what = next(filter(None, found.groups()), None) if found else None
    return what if what and not compiled(_VAGUE).match(what) else None


def _unusable_packages(search: LogSearch) -> Iterator[Match]:
    for line, groups in refused_packages(search):
        yield symptom("cmake-package-refuses", line, 0.88, groups)
    for line, groups in declined_versions(search):
        yield symptom("version-not-accepted", line, 0.9, groups)
    for line, is_misplaced, groups in incomplete_packages(search):
        name = "package-prefix-wrong" if is_misplaced else "package-files-missing"
        yield symptom(name, line, 0.93, groups)


def _cmake_errors(search: LogSearch) -> Iterator[Match]:
    for begin, span in search.steps.refusals.items():
        if begin in search.steps.echoes:
            continue
        written = message_text(search.lines, span)
        message = written or search.lines[begin].text.strip()
        if absent := compiled(_NOT_THERE).search(message):
            yield symptom("input-not-made", begin, 0.74, {"file": absent["file"]})
        elif lacking := _lacking(written):
            yield symptom("system-headers-missing", begin, 0.8, lacking)
        elif what := _required_thing(written):
            yield symptom("requirement-missing", begin, 0.76, {"what": what})
        else:
            yield symptom("cmake-error", begin, 0.6, {"message": message})


def _other_logs(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits([_OTHER_LOG], most=1):
        yield symptom("log-elsewhere", line, 0.5, groups)
