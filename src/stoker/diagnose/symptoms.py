"""Explains failures by their kind, where no entry of knowledge/failures knows more. Ranks nothing.

A symptom says what failed and where, in the words of the tool: an error in a source, a missing file
or library, a traceback. Two kinds of message say why: one that the project wrote itself for this
case (statements.py), and one about a name that a library does not have.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from stoker.diagnose.found_packages import declined_versions, refused_packages
from stoker.diagnose.header_copies import mixed_headers
from stoker.diagnose.interfaces import (
    collisions,
    declared_at,
    is_hidden_without_gnu,
    misfits,
    missing_name,
    other_call,
    shifted_calls,
    unowned_misfits,
    without_include,
)
from stoker.diagnose.lines import compiled
from stoker.diagnose.loaded import failed_loads
from stoker.diagnose.messages import message_text
from stoker.diagnose.said_programs import missing_programs
from stoker.diagnose.sieve import Line
from stoker.diagnose.signs import MOST_OF_A_KIND, LogSearch, Match, symptom
from stoker.diagnose.statements import (
    conflicting_versions,
    requirements,
    statement,
    statements,
)
from stoker.diagnose.unlinked import failed_links
from stoker.knowledge.owners import (
    owner_of_name,
    owner_of_path,
    platform_of,
    release_of,
)
from stoker.knowledge.providers import (
    ProvidedKind,
    Provider,
    library_of_namespace,
    provider,
)

_FEW = 40  # errors in sources: the first of a step is the one that counts
_SHORT = 160  # characters of a message that names what it needs
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
_INCLUDED = r"^\s{0,24}(?:In file included )?from (?P<file>[^\s:]{1,300}):\d{1,7}"
_SOURCE = r"\.(?:c|cc|cpp|cxx|cu|m|mm|C|f|f90|F90|hip)$"
_ABOVE = 24  # lines in which includes are listed
NO_HEADER = (
    r"fatal error: ['\"\u2018]?(?P<header>[\w./+-]{2,120}?)['\"\u2019]?"
    r"(?:: No such file or directory| file not found)"
    r"|Cannot open include file: '(?P<opened>[\w./+-]{2,120})'"
    r"|C1083: [^\"'\n]{5,80}[\"'\u201c](?P<translated>[\w./+-]{2,120}\.\w{1,3})[\"'\u201d]"
)
# What CMake, Meson and configure say of a library that is there.
_IS_FOUND = (
    r"--\s{1,4}Found (?P<name>[A-Za-z][\w+.-]{1,40})",
    r"[Dd]ependency (?P<name>[A-Za-z][\w+.-]{1,40}) found: YES",
    r"checking for (?P<name>[A-Za-z][\w+.-]{1,40})(?: [<>=]{1,2} \S{1,20})?\.\.\. yes",
)
_SEARCHED = r"\s-(?:I|isystem) ?(?P<folders>/\S{1,300}(?: -(?:I|isystem) ?/\S{1,300}){0,20})"
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
# A file or folder that CMake was given.
_NOT_THERE = (
    r"(?:include could not find (?:load|requested) file: {1,4}|Cannot find source file: {1,4}"
    r"|add_subdirectory given source {1,4}\"(?=[^\"]{1,300}\" which is not an existing)"
    r"|given (?:source|file|path) {1,4}\"(?=[^\"]{1,300}\" (?:that|which) does not exist)"
    r"|^CMake Error: File (?=\S{1,300} does not exist))"
    r"(?P<file>[^\s\"]{1,300})"
)
_CONFIGURE = (r"(?:^|\s)configure: error: (?P<message>\S.{0,300})",)
# What a message of configure, Meson or CMake says is lacking, by words that name it.
_STATED = 0.76  # strength of what a project says itself
_RAISED = 4  # lines before an exception in which the statement that raised it is shown
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
_C_LIBRARY = {"libc6-dev", "linux-libc-dev"}  # packages that are never what is lacking
_MESON = (r"^\s{0,24}(?:\S{1,200}meson\.build:\d+:\d+: )ERROR: (?P<message>\S.{0,300})",)
# Where a tool says that the output of a build is.
_OTHER_LOG = (
    r"(?:[Cc]onsult|[Ss]ee(?: also)?|[Ll]og (?:file )?(?:is|was|in|at|location)|[Ll]ogs?:"
    r"|can be found (?:in|at)|captured in|[Ff]or more (?:information|details),?(?: see)?)"
    r"[: ]{1,3}[\"'`\u2018]?(?P<file>(?:/|[A-Za-z]:[/\\])[^\s\"'`\u2018\u2019]{2,200}?"
    r"(?:\.log|\.out|\.txt))\b"
)
_EXCEPTION = (
    r"^\s{0,24}(?P<kind>[A-Za-z_][\w.]{0,100}"
    r"(?:Error|Exception|Exit|NotFound|Failed|Warning|Interrupt))(?:: (?P<message>.{1,300}))?$"
)
_FRAME = r'^\s{0,30}File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})'
_IMPORT = (
    r"^\s+(?:from (?P<module>[A-Za-z][\w.]{1,100}) import |import (?P<whole>[A-Za-z][\w.]{1,100})$)"
)
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
# Each has a header of its name. Those that Qt 6 removed, or has in other modules, are not meant.
_CLASS_OF_QT = (
    r"(?!Q(?:RegExp|TextCodec|Text(?:De|En)coder|DesktopWidget|StringRef|LinkedList|Matrix|GL|Xml"
    r"|Audio|Media|Sound|Script|Declarative|WebView|WebPage|X11|Win|Mac|Platform|Ssl|State|FinalState)"
    r"|QML|QT_|Q_|QString\b|QObject\b)Q[A-Z][A-Za-z0-9]{2,40}"
)
_INSTALLED = r"^(?:/usr/include|/opt/homebrew/(?:include|Cellar|opt)|/usr/local/(?:Cellar|opt))/"
_INTERNAL = r"/(?:details?|internal|impl)/"  # headers of a library that no other project should use
PATTERNS = (
    *_COMPILER_ERRORS,
    NO_HEADER,
    *_IS_FOUND,
    _SEARCHED,
    *_NO_RULE,
    *_CONFIGURE,
    *_MESON,
    _OTHER_LOG,
    _EXCEPTION,
)


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
        _missing_headers,
        _mixed_headers,
        failed_loads,
        failed_links,
        _source_errors,
        _missing_inputs,
        _configure_errors,
        _unusable_packages,
        _cmake_errors,
        _exceptions,
        _cut_imports,
        _other_logs,
    )
    steps = search.steps
    found = (match for kind in kinds for match in kind(search))
    return [
        match for match in found if match.line not in explained and not steps.taken_back(match.line)
    ]


def _stated(search: LogSearch) -> Iterator[Match]:
    for line, groups in statements(search):
        yield symptom("stated-by-project", line, _STATED, groups)


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
        source = compiled(_COMPILER_ERRORS[0]).match(search.lines[line].text)
        if source and compiled(_CLASS_OF_QT).fullmatch(groups.get("member", "")):
            named = {"member": groups["member"], "file": source["file"]}
            yield symptom("missing-include-qt", line, 0.8, named)
        else:
            yield symptom("dependency-api-changed", line, 0.78, groups)
    for line, groups in shifted_calls(search):
        yield symptom("dependency-api-changed", line, 0.86, groups)
    for line, groups in collisions(search):
        yield symptom("declared-by-library-too", line, 0.74, groups)
    for line, groups in unowned_misfits(search):
        yield symptom("interface-mismatch", line, 0.72, groups)


def _missing_includes(search: LogSearch) -> Iterator[Match]:
    for line, name in without_include(search):
        if not is_hidden_without_gnu(name) or search.texts.having("_GNU_SOURCE"):
            yield symptom("missing-include-c", line, 0.88, {"function": name})
        elif not any(map(search.texts.having, _NOT_GNU)) and not _on_apple(search):
            yield symptom("gnu-source-missing", line, 0.9, {"function": name})


def _mixed_headers(search: LogSearch) -> Iterator[Match]:
    for line, groups in mixed_headers(search):
        yield symptom("headers-of-two-releases", line, 0.82, groups)


def _missing_headers(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits([NO_HEADER]):
        opened = groups.get("opened") or groups.get("translated", "")
        named_at = groups.get("header") or opened
        header = _included(named_at)
        folder = header.partition("/")[0]
        library = library_of_namespace(folder) or owner_of_name(f"{folder}::")
        on_windows = bool(opened)
        known = provider(ProvidedKind.HEADER, header.removeprefix("./"))
        foreign = on_windows or not known
        if foreign and (platform := platform_of(header, on_windows=on_windows)):
            named = {"header": header, "platform": platform}
            windows = {"windows": header} if on_windows else {}
            yield symptom("source-for-other-platform", line, 0.8, named | windows)
        elif library and compiled(_INTERNAL).search(header):
            named = {"library": library, "owner": library, "member": header}
            yield symptom("dependency-api-changed", line, 0.78, named)
        elif known and header != named_at:  # the folder of the library was found
            library = library or known.packages.get("apt", "").removeprefix("lib").partition("-")[0]
            named = {"library": library, "owner": library, "member": header}
            yield symptom("dependency-api-changed", line, 0.76, named)
        elif known and _C_LIBRARY & set(known.packages.values()) and _on_apple(search):
            yield symptom("macos-sdk-missing", line, 0.86, {})
        elif known:
            yield _lacking_header(search, line, header, known)
        elif owner := _searched_owner(search, header) or _shown_owner(
            search, library or owner_of_name(header.rpartition("/")[2].partition(".")[0])
        ):
            named = {"library": owner, "owner": owner, "member": header}
            yield symptom("dependency-api-changed", line, 0.74, named)
        elif owner := _owner_of_header(header):
            named = {"library": owner, "owner": owner, "member": header}
            yield symptom("dependency-api-changed", line, 0.72, named)
        else:
            source = compiled(_COMPILER_ERRORS[0]).match(search.lines[line].text)
            file = {"file": source["file"]} if source else {}
            yield symptom("file-missing", line, 0.7, {"header": header} | file)


def _included(header: str) -> str:
    """Return a header as a source includes it, where it is named with its whole path."""
    return header.rpartition("/include/")[2] if header.startswith("/") else header


def _on_apple(search: LogSearch) -> bool:
    """Return whether the log is of macOS, where the C library is a part of the SDK."""
    return any(map(search.texts.having, ("/opt/homebrew/", "/Library/", "apple-darwin", ".sdk/")))


def _lacking_header(search: LogSearch, line: int, header: str, known: Provider) -> Match:
    """Return why a header of a known package is not found: the package is not installed, or the log
    shows that it is, and the header is in a folder that is not searched or in no folder.
    """
    library = known.packages.get("apt", "").removeprefix("lib").partition("-")[0]
    names = {library, header.partition("/")[0]}
    names = {name.lower().rstrip("0123456789.") for name in names if "." not in name}
    if not names & _found(search) and not _is_asked_for_by_package(search, line, known):
        return symptom("system-headers-missing", line, 0.84, {"header": header})
    searched = known.root and search.texts.having(f"include/{known.root.rpartition('/')[2]}")
    is_main = header.rpartition("/")[2].partition(".")[0].lower() == library.lower()
    if (known.root and not searched) or (is_main and not known.root):
        groups = {"header": header, "library": library, "folder": known.root or ""}
        groups = {name: text for name, text in groups.items() if text}
        if known.root and "@" not in known.root:
            groups["path"] = known.root
        return symptom("header-folder-not-searched", line, 0.76, groups)
    named = {"library": library, "owner": library, "member": header}
    return symptom("dependency-api-changed", line, 0.76, named)


def _is_asked_for_by_package(search: LogSearch, line: int, known: Provider) -> bool:
    """Return whether a header of another installed package includes a header that has a folder of
    its own: package managers install with it what it needs.
    """
    source = compiled(_COMPILER_ERRORS[0]).match(search.lines[line].text)
    if not source or not known.root or not compiled(_INSTALLED).match(source["file"]):
        return False
    return bool(owner_of_path(source["file"]))


def _searched_owner(search: LogSearch, header: str) -> str | None:
    """Return the library that a header is named after, if a command searches a folder of it."""
    owner = owner_of_name(header.rpartition("/")[2].partition(".")[0])
    folders = search.texts.search(_SEARCHED, most=MOST_OF_A_KIND).values() if owner else ()
    named = (owner or "").lower()
    return owner if any(named in match["folders"].lower() for match in folders) else None


def _owner_of_header(header: str) -> str | None:
    """Return the library whose names begin like a header and like the folder that it is in."""
    folder, _, rest = header.partition("/")
    owner = owner_of_name(rest.rpartition("/")[2].partition(".")[0]) if rest else None
    return owner if owner and owner_of_name(f"{folder}_") == owner else None


def _shown_owner(search: LogSearch, library: str | None) -> str | None:
    """Return a library if a path of the log has its name: it is there, and lacks a header."""
    name = (library or "").lower().partition(" ")[0]
    places = (f"/{name}/", f"/include/{name}")
    is_there = name and any(map(search.texts.having, places))
    return library if is_there else None


def _found(search: LogSearch) -> set[str]:
    """Return the names of the libraries that a configure says it found, without their versions."""
    named = (
        match["name"].removeprefix("lib").partition("-")[0].lower().rstrip("0123456789.")
        for pattern in _IS_FOUND
        for match in search.texts.search(pattern, most=MOST_OF_A_KIND).values()
    )
    return set(named)


def _source_errors(search: LogSearch) -> Iterator[Match]:
    no_header = search.texts.search(NO_HEADER, most=MOST_OF_A_KIND)
    for line, groups in search.hits(_COMPILER_ERRORS, most=_FEW):
        if line not in no_header:
            owner = compiled(_FOREIGN).search(groups["file"]) and owner_of_path(groups["file"])
            if owner and owner_of_path(_compiled_file(search, line, groups["file"])) == owner:
                groups = {"owner": str(owner), "message": groups["message"]}
                yield symptom("bundled-source-error", line, 0.66, groups)
            elif (release := release_of(groups["file"])) and not _differ_within(search, line):
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
        if not groups["file"].startswith("/"):  # others are of no step of this build
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
        if known and not _C_LIBRARY & set(known.packages.values()):
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


def _cmake_errors(search: LogSearch) -> Iterator[Match]:
    for begin, span in search.steps.refusals.items():
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


def _exceptions(search: LogSearch) -> Iterator[Match]:
    """Yield the exceptions that end a traceback, with the last frame outside of the tools."""
    for line, groups in search.hits([_EXCEPTION]):
        heads = [head for head in search.steps.tracebacks if head < line]
        if not heads or groups["kind"].endswith(_ECHOES) or line in search.steps.echoes:
            continue
        frames = [
            match
            for one in search.lines[heads[-1] : line]
            if (match := compiled(_FRAME).match(one.text))
        ]
        own = [frame for frame in frames if not compiled(_TOOLS).search(frame["file"])]
        said = statement(groups.get("message", ""))
        if (
            own
            and own[-1] is frames[-1]
            and said
            and _is_raised(search.lines[max(0, line - _RAISED) : line])
        ):
            yield symptom("stated-by-project", line, _STATED, {"file": own[-1]["file"]} | said)
        elif own and (
            other := other_call(
                groups["kind"],
                groups.get("message", ""),
                [frame["file"] for frame in own],
            )
        ):
            yield symptom("dependency-api-changed", line, 0.78, other)
        elif own and (
            lacking := missing_name(groups["kind"], groups.get("message", ""), own[-1]["file"])
        ):
            yield symptom("dependency-api-changed", line, 0.74, lacking)
        elif own:
            yield symptom("python-error", line, 0.6, groups | own[-1].groupdict())


def _cut_imports(search: LogSearch) -> Iterator[Match]:
    """Yield the import with which a log ends whose error was cut off: a package lacks a module, or
    is not there.
    """
    line = search.steps.errors[-1] if search.steps.errors else 0
    found = compiled(_IMPORT).match(search.lines[line].text)
    frame = compiled(_FRAME).match(search.lines[line - 1].text) if line else None
    if not found or not frame:
        return
    module = found["module"] or found["whole"]
    root, _, rest = module.partition(".")
    if f"/{root}/" in frame["file"]:
        return
    if rest:
        named = {"library": root, "owner": root, "member": module}
        yield symptom("dependency-api-changed", line, 0.74, named)
    elif frame["file"].endswith(("setup.py", "<string>")) and root not in sys.stdlib_module_names:
        yield symptom("pip-build-isolation", line, 0.74, {"module": root})


def _is_raised(lines: Sequence[Line]) -> bool:
    """Return whether a traceback ends with a line that raises an error on purpose."""
    return any(line.text.lstrip().startswith("raise ") for line in lines)
