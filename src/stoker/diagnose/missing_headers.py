"""Explains why a header is not found: its package is not installed, is of another release, or lies
in a folder that is not searched; or the header is of another system. Ranks nothing.
"""

from collections.abc import Iterator

from stoker.diagnose.lines import COMPILER_ERRORS, compiled
from stoker.diagnose.signs import MOST_OF_A_KIND, LogSearch, Match, symptom
from stoker.knowledge.owners import owner_of_name, owner_of_path, platform_of
from stoker.knowledge.providers import (
    ProvidedKind,
    Provider,
    library_of_namespace,
    provider,
)

NO_HEADER = (
    r"(?:fatal error: ['\"\u2018]?|error: '(?=[\w./+-]{2,120}' file not found))"
    r"(?P<header>[\w./+-]{2,120}?)['\"\u2019]?"
    r"(?:: No such file or directory| file not found)"
    r"|Cannot open include file: '(?P<opened>[\w./+-]{2,120})'"
    r"|(?:cannot|could not) open source file \\?\"(?P<quoted>[\w./+-]{2,120})(?:\\?\"|\\$)"
    r"|C1083: [^\"'\n]{5,80}[\"'\u201c](?P<translated>[\w./+-]{2,120}\.\w{1,3})[\"'\u201d]"
)
# What CMake, Meson and configure say of a library that is there.
_IS_FOUND = (
    r"--\s{1,4}Found (?P<name>[A-Za-z][\w+.-]{1,40})",
    r"[Dd]ependency (?P<name>[A-Za-z][\w+.-]{1,40}) found: YES",
    r"checking for (?P<name>[A-Za-z][\w+.-]{1,40})(?: [<>=]{1,2} \S{1,20})?\.\.\. yes",
)
_SEARCHED = r"\s-(?:I|isystem) ?(?P<folders>/\S{1,300}(?: -(?:I|isystem) ?/\S{1,300}){0,20})"
_INSTALLED = r"^(?:/usr/include|/opt/homebrew/(?:include|Cellar|opt)|/usr/local/(?:Cellar|opt))/"
_OF_APPLE = (
    "/opt/homebrew/", "/Library/", "apple-darwin", ".sdk/", "/usr/local/opt/", "/usr/local/Cellar/",
    "AppleClang", "Apple clang",
)  # fmt: skip
_ABOVE = 24  # lines in which includes are listed
_INTERNAL = r"/(?:details?|internal|impl)/"  # headers of a library that no other project should use
# A source that was installed with a package of Python, which compiles it at its first use.
_IN_PACKAGE = r"/(?:site|dist)-packages/(?P<name>[A-Za-z]\w{1,60})/(?!include/)"
_INCLUDED = r"^\s{0,24}(?:In file included )?from (?P<file>[^\s:]{1,300}):\d{1,7}"
_WITHOUT_SOURCES = ("numpy", "torch", "pybind11", "nanobind", "nvidia", "cmake", "include")
# Headers of a package of Python that is a part of PyTorch, and a source that includes another one.
_OF_PLUGIN = r"^(?P<module>torch_\w{2,30})/(?:csrc|include)/"
_SOURCE = r"\.(?:c|cc|cpp|cxx|cu|inc|inl)$"
_PUBLISHED = (
    r"npm (?:error|ERR!)|gyp ERR!|/node_modules/|/registry/src/|/pip-(?:install|build|wheel)-"
)
PATTERNS = (NO_HEADER, *_IS_FOUND, _SEARCHED)


def missing_headers(search: LogSearch) -> Iterator[Match]:
    for line, groups in search.hits([NO_HEADER]):
        opened = groups.get("opened") or groups.get("translated", "")
        named_at = groups.get("header") or groups.get("quoted") or opened
        header = _included(named_at)
        folder = header.partition("/")[0]
        library = library_of_namespace(folder) or owner_of_name(f"{folder}::")
        on_windows = bool(opened)
        known = provider(ProvidedKind.HEADER, header.removeprefix("./"))
        # Of another C library; macOS has packages of some headers of Linux, which are empty forms.
        foreign = on_windows or not known or known.is_c_library or on_apple(search)
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
        elif plugin := compiled(_OF_PLUGIN).match(header):
            yield symptom("plugin-headers-missing", line, 0.84, plugin.groupdict())
        elif not known and _is_left_out(search, line, named_at):
            yield symptom("released-without-file", line, 0.78, {"header": header})
        elif known and known.is_c_library and on_apple(search):
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
            source = compiled(COMPILER_ERRORS[0]).match(search.lines[line].text)
            file = {"file": source["file"]} if source else {}
            if source and (package := _compiled_package(search, line, source["file"])):
                named = {"package": package, "header": header}
                yield symptom("installed-headers-incomplete", line, 0.8, named)
                continue
            yield symptom("file-missing", line, 0.7, {"header": header} | file)


def _compiled_package(search: LogSearch, line: int, file: str) -> str | None:
    """Return the package of Python that an error is within, if a source of this package is compiled
    and not one of another project that includes its headers.
    """
    package = compiled(_IN_PACKAGE).search(file)
    if not package or package["name"].startswith(_WITHOUT_SOURCES):
        return None
    above = (one.text for one in search.lines[max(0, line - _ABOVE) : line])
    users = (found["file"] for text in above if (found := compiled(_INCLUDED).match(text)))
    return package["name"] if all(f"/{package['name']}/" in user for user in users) else None


def _is_left_out(search: LogSearch, line: int, header: str) -> bool:
    """Return whether a published package includes a source that it does not have."""
    near = search.lines[max(0, line - _ABOVE) : line + _ABOVE]
    published = compiled(_PUBLISHED)
    is_source = not header.startswith("/") and compiled(_SOURCE).search(header)
    return bool(is_source) and any(published.search(one.text) for one in near)


def on_apple(search: LogSearch) -> bool:
    """Return whether the log is of macOS, where the C library is a part of the SDK."""
    return any(map(search.texts.having, _OF_APPLE))


def _included(header: str) -> str:
    """Return a header as a source includes it, where it is named with its whole path."""
    return header.rpartition("/include/")[2] if header.startswith("/") else header


def _lacking_header(search: LogSearch, line: int, header: str, known: Provider) -> Match:
    """Return why a header of a known package is not found: the package is not installed, or the log
    shows that it is, and the header is in a folder that is not searched or in no folder.
    """
    library = known.packages.get("apt", "").removeprefix("lib").partition("-")[0]
    names = {library, header.partition("/")[0]}
    names = {name.lower().rstrip("0123456789.") for name in names if "." not in name}
    if not names & _found(search) and not _is_asked_for_by_package(search, line, known):
        return symptom("system-headers-missing", line, 0.84, {"header": header})
    searched = known.root and _is_used(search, f"include/{known.root.rpartition('/')[2]}")
    is_main = header.rpartition("/")[2].partition(".")[0].lower() == library.lower()
    if (known.root and not searched) or (is_main and not known.root):
        groups = {"header": header, "library": library, "folder": known.root or ""}
        groups = {name: text for name, text in groups.items() if text}
        if known.root and "@" not in known.root:
            groups["path"] = known.root
        return symptom("header-folder-not-searched", line, 0.76, groups)
    named = {"library": library, "owner": library, "member": header}
    return symptom("dependency-api-changed", line, 0.76, named)


def _is_used(search: LogSearch, folder: str) -> bool:
    """Return whether a command or a path has a folder, and not only a configure that found it."""
    places = search.texts.having(folder)
    return any(not search.lines[line].text.lstrip().startswith("-- ") for line in places)


def _is_asked_for_by_package(search: LogSearch, line: int, known: Provider) -> bool:
    """Return whether a header of another installed package includes a header that has a folder of
    its own: package managers install with it what it needs.
    """
    source = compiled(COMPILER_ERRORS[0]).match(search.lines[line].text)
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
