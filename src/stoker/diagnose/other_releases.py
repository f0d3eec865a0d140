"""Finds names that another release of a library has: removed since then, or not added yet.

The error of a compiler, linker or Python says that the installed release lacks the name; the table
of knowledge/library_names.py says which releases have it. It is read only for such an error that
nothing else explains. Ranks nothing.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from stoker.diagnose.interfaces import is_of, unknown_names
from stoker.diagnose.lines import compiled
from stoker.diagnose.missing_headers import NO_HEADER
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.diagnose.unlinked import UNDEFINED
from stoker.knowledge.library_names import (
    NamedLibrary,
    NameRow,
    named_library,
    rows_ending,
    rows_of,
)
from stoker.knowledge.owners import owner_of_path
from stoker.model.value import Value, version_numbers

_MOST = 40  # names that are looked up
_DISTINCT = 8  # letters of a name that is looked for without its namespace
_RECENT = "2023"  # a name that came and went is taken for removed if it went since then
_SURE, _LIKELY, _PERHAPS = 0.95, 0.88, 0.76
# What namespaces of one release are called, such as fmt::v11, and parameters of templates.
_OF_RELEASE = r"::(?:v\d+|lts_\d+|json_abi_\w+|_V2|dnn\d_v\d+|__\w+|\w+_abi_v\d+)(?=::)|<.*>|^::"
_NO_ATTRIBUTE = (
    r"module ['\"](?P<module>[\w.]{1,80})['\"] has no attribute ['\"](?P<name>\w{1,80})['\"]",
    (
        r"cannot import name ['\"](?P<name>\w{1,80})['\"] from (?:partially initialized module )?"
        r"['\"](?P<module>[\w.]{1,80})['\"]"
    ),
    r"No module named ['\"](?P<module>[\w.]{1,80})['\"]",
)
# An error about an object; others may be about a namespace.
_OF_CLASS = r"has no member named|no member named ['\"\u2018]\w{1,80}['\"\u2019] in (?!namespace)"
# Extensions that were put into the source tree of PHP: all but those that it has itself.
_ADDED = (
    r"/ext/(?!(?:bcmath|bz2|calendar|com_dotnet|ctype|curl|date|dba|dl_test|dom|enchant|exif|ffi"
    r"|fileinfo|filter|ftp|gd|gettext|gmp|hash|iconv|imap|intl|json|ldap|lexbor|libxml|mbstring"
    r"|mysqli|mysqlnd|oci8|odbc|opcache|openssl|pcntl|pcre|pdo\w*|pgsql|phar|posix|pspell|random"
    r"|readline|reflection|session|shmop|simplexml|skeleton|snmp|soap|sockets|sodium|spl|sqlite3"
    r"|standard|sysv\w{3}|tidy|tokenizer|uri|xml\w*|xsl|zend_test|zip|zlib)/)[a-z][\w-]{1,40}/"
)
PATTERNS = _NO_ATTRIBUTE
# How a version stands beside the name of a library: fmt-12.0.0, numpy==2.1, fmt/12.0.0, and what
# CMake and Meson print.
_SHOWN_VERSION = (
    r"\b(?:lib)?(?:NAMES)(?:-(?:cpp|dev|devel|cxx))?"
    r"(?:==|[-_/@= ]v?|: v?|.{0,120}?\((?:found|Required).{0,30}?version \"|.{0,20} found: YES "
    r"|::(?:lts_|v))"
    r"(\d+(?:\.\d+){0,3})(?!\w)"
)


class _Lacking(Value, frozen=True, kw_only=True):
    """A name that an error says is lacking."""

    line: int
    file: str = ""
    name: str
    is_header: bool = False
    is_linked: bool = False  # the linker says it
    is_member: bool = False  # of a class that is there, so that no include is missing


def other_releases(search: LogSearch, explained: Collection[int]) -> Iterator[Match]:
    """Yield the errors about a name that the table has, without the lines that are ``explained``
    already and the steps whose cause is known.
    """
    lacking = [
        one
        for one in _lacking(search)
        if one.line not in explained
        and search.steps.step[one.line] not in search.settled
        and not search.steps.taken_back(one.line)
    ]
    agreed = _agreed(lacking)
    for one in lacking:
        yield from _of_other_release(search, one, agreed)


def _lacking(search: LogSearch) -> Iterator[_Lacking]:
    for line, file, owner, name in unknown_names(search):
        full = _plain("::".join(filter(None, (owner, name))))
        of_class = bool(compiled(_OF_CLASS).search(search.lines[line].text))
        yield _Lacking(line=line, file=file, name=full, is_member=of_class)
    for line, groups in search.hits([NO_HEADER], most=_MOST):
        header = next(iter(groups.values()), "")
        yield _Lacking(line=line, name=header, is_header=True)
    for line, groups in search.hits(UNDEFINED, most=_MOST):
        symbol = groups["symbol"].partition("(")[0]
        yield _Lacking(line=line, name=_plain(symbol), is_linked=True)
    for line, groups in search.hits(_NO_ATTRIBUTE, most=_MOST):
        name = ".".join(filter(None, (groups["module"], groups.get("name"))))
        yield _Lacking(line=line, name=name)


def _plain(name: str) -> str:
    """Return a name without parameters of templates, and namespaces that are of one release."""
    return compiled(_OF_RELEASE).sub("", name.removeprefix("struct ")).strip(" :&*")


def _agreed(lacking: Sequence[_Lacking]) -> frozenset[str]:
    """Return the libraries of which a release removed more than one name that stands without its
    namespace: that they are there is shown by this alone.
    """
    names = {one.name for one in lacking if re.fullmatch(r"\w{5,}", one.name)}
    removed = [
        {(row.library, row.removed) for row in rows_ending(name) if row.removed} for name in names
    ]
    counts = Counter(pair for pairs in removed for pair in pairs)
    return frozenset(library for (library, _), count in counts.items() if count > 1)


def _of_other_release(
    search: LogSearch, lacking: _Lacking, agreed: Collection[str]
) -> Iterator[Match]:
    rows = _rows(search, lacking, agreed)
    for row in rows:
        library = named_library(row.library)
        file = search.lines[lacking.line].text if lacking.is_linked else lacking.file
        own = is_of(library.name, file) and not compiled(_ADDED).search(file)
        if own or _is_its_own(library, lacking.file):
            continue
        has = _version(search, library)
        is_telling = lacking.is_header and row.removed and _is_recent(library, row)
        is_vague = library.plain or (lacking.is_header and not is_telling)
        if is_vague and not (has or _is_shown(search, library, lacking)):
            continue
        if match := _match(lacking, row, library, has):
            yield match
            return


def _rows(search: LogSearch, lacking: _Lacking, agreed: Collection[str]) -> tuple[NameRow, ...]:
    """Return the rows of a name, of the module or namespace that it is in, or of the only library
    that has such a name in a namespace, if the log shows that library.
    """
    name = lacking.name
    if rows := rows_of(name):
        return rows
    if "::" not in name and "." in name and not lacking.is_header:
        parents = (name[: found.start()] for found in reversed([*re.finditer(r"\.", name)]))
        return next(filter(None, map(rows_of, parents)), ())
    if "::" in name or lacking.is_header:
        return ()
    rows = rows_ending(name)
    if of_agreed := [row for row in rows if row.library in agreed and row.removed]:
        return tuple(of_agreed[:1])
    if len(name) < _DISTINCT:
        return ()
    if len({row.library for row in rows}) != 1:
        return ()
    library = named_library(rows[0].library)
    return rows[:1] if _is_shown(search, library, lacking) else ()


def _match(lacking: _Lacking, row: NameRow, library: NamedLibrary, has: str) -> Match | None:
    """Return what happened to a name; nothing if the release that the log shows has it."""
    groups = {"library": library.name, "name": lacking.name, "pip": library.pip, "has": has}
    groups = {name: text for name, text in groups.items() if text}
    if library.name == "Python":
        groups["python"] = library.name
    moved, _, header = row.moved.partition(" ")
    if has and row.is_in(has):
        is_moved = moved and not row.removed and version_numbers(has) >= version_numbers(moved)
        return _moved(lacking, groups, moved, header, _LIKELY) if is_moved else None
    is_newer = has and row.removed and version_numbers(has) >= version_numbers(row.removed)
    if is_newer or (not has and row.removed and (not row.added or _is_recent(library, row))):
        last = library.before(row.removed)
        more = {"removed": row.removed, "last": last} | ({"header": header} if header else {})
        strength = _SURE if is_newer else _LIKELY
        return symptom("name-removed", lacking.line, strength, groups | more)
    if row.added and (has or not row.removed):
        strength = _SURE if has else _LIKELY if lacking.is_member else _PERHAPS
        cause = "linked-library-older" if lacking.is_linked else "name-not-added-yet"
        return symptom(cause, lacking.line, strength, groups | {"added": row.added})
    if moved and not row.removed and not lacking.is_member and not lacking.is_header:
        return _moved(lacking, groups, moved, header, _PERHAPS)
    return None


def _moved(
    lacking: _Lacking, groups: dict[str, str], moved: str, header: str, strength: float
) -> Match:
    more = {"moved": moved, "header": header, "file": lacking.file}
    return symptom("name-moved", lacking.line, strength, groups | more)


def _is_recent(library: NamedLibrary, row: NameRow) -> bool:
    """Return whether a name was removed lately; no release of some libraries has a date."""
    dated = any(library.releases.values())
    return not dated or library.releases.get(row.removed, "") >= _RECENT


def _is_its_own(library: NamedLibrary, file: str) -> bool:
    """Return whether a file is one of the library itself."""
    owner = owner_of_path(file) if file else None
    names = {library.name.lower(), *(word.lower() for word in library.shown)}
    is_installed = any(f"/include/{name}/" in file.lower() for name in names)
    return is_installed or bool(owner and owner.name.lower().removeprefix("lib") in names)


def _is_shown(search: LogSearch, library: NamedLibrary, lacking: _Lacking) -> bool:
    """Return whether another line of the log has a header, a name or a folder of a library."""
    telling = (word for word in library.begins if len(word) > 4 or word[-1:] in (":", "/"))
    words = [*telling, *(f"/{word}/" for word in library.shown)]
    own = search.lines[lacking.line].text
    places = {at for word in words for at in search.texts.having(word)} - {lacking.line}
    others = (search.lines[at].text for at in places)
    return any(lacking.name not in text and text != own for text in others)


def _version(search: LogSearch, library: NamedLibrary) -> str:
    """Return the newest release of a library that the log shows; empty if it shows none."""
    if known := search.versions(library.name):
        return known
    names = {library.name, library.name.lower(), library.name.upper(), *library.shown}
    words = "|".join(sorted(map(re.escape, names)))
    pattern = re.compile(_SHOWN_VERSION.replace("NAMES", words))
    lines = {at for name in names for at in search.texts.having(name)}
    texts = (search.lines[at].text for at in lines)
    found = {_here(one[1], library) for text in texts for one in pattern.finditer(text)}
    releases = [version_numbers(one) for one in library.releases]
    least, most = releases[0], (releases[-1][0] + 1, 1000)
    fitting = [one for one in found if least <= version_numbers(one) < most]
    return max(fitting, key=version_numbers, default="")


def _here(version: str, library: NamedLibrary) -> str:
    """Return the number of a release as the table has it."""
    found = re.match(library.numbered, version) if library.numbered else None
    return found[1] if found else version
