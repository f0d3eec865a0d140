"""Errors where a source and a library that it uses do not fit: whose name, or whose declaration.

A library is known by the name itself, or by the file in which the compiler says that it is
declared. Which of the two is older cannot be told from the message. Ranks nothing.
"""

import re
from collections.abc import Iterator, Sequence

from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.knowledge.owners import is_in_tree, owner_of_name, owner_of_path
from stoker.knowledge.providers import library_of_namespace

_MOST = 40  # errors that are looked into
_BELOW = 30  # lines of an error in which its notes are
_SAID = r"(?P<message>\S.{0,400})"
# An error of a compiler: of gcc and clang, then of Microsoft's and nvcc.
_ERRORS = (
    r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):\d{1,7}(?::\d{1,5})?: error: " + _SAID,
    r"^\s{0,24}(?P<file>[^\s('\"][^('\"\n]{0,300}\.\w{1,5})\(\d{1,7}(?:,\d{1,5})?\)"
    r": error(?: [A-Z]{1,3}\d{4})?\s?: " + _SAID,
)
_NOTE = (
    r"^\s{0,24}(?:In file included from )?"
    r"(?P<file>(?:[A-Za-z]:)?[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5})"
    r"(?::\d{1,7}|\(\d{1,7}).{0,12}: (?:note|message)\s?: "
)
# What an error says if a use and a declaration differ.
_DIFFERS = (
    r"no matching (?:member |overloaded )?function|too (?:few|many) (?:template )?arguments"
    r"|has no member|no member named|cannot convert|could not convert|invalid conversion"
    r"|is not a member|does not override|is private|is protected|no viable|no overloaded function"
    r"|incompatible (?:pointer|type|function)|cannot initialize|pure virtual|abstract class"
    r"|did not override any base class|use of undefined type|undeclared .{1,100}; did you mean"
    r"|no instance of (?:overloaded|function)|is incompatible with"
)
_OPEN, _CLOSE, _KIND = r"['\"`\u2018]", r"['\"`\u2019]", r"(?:(?:class|struct|union|enum) )?"
_NAME = rf"{_OPEN}(?P<name>[\w:]{{2,100}})"
_OWNER = rf"{_OPEN}(?:const )?{_KIND}(?P<owner>[A-Za-z_][\w:]{{1,120}})"
_MEMBER = rf"{_OPEN}(?P<name>\w{{1,80}}){_CLOSE}"
_UNKNOWN = (
    (
        rf"^{_NAME}{_CLOSE}:? (?:was not declared|undeclared|does not name a type"
        r"|has not been declared|is not a class|identifier not found|is undefined)"
    ),
    (
        r"^(?:use of undeclared identifier|unknown type name|identifier|call to undeclared function"
        rf"|implicit declaration of function|syntax error: identifier"
        rf"|syntax error: missing '.{{1,3}}' before identifier) {_NAME}"
    ),
)
_LACKS = (
    rf"{_OWNER}.{{0,300}} has no member (?:named )?{_MEMBER}",
    rf"no (?:member|type|template) named {_MEMBER} in (?:namespace )?{_OWNER}",
    rf"{_MEMBER}:? (?:is not a member of|in (?:namespace|class|struct)) {_OWNER}",
)
_INCOMPLETE = (
    (
        r"(?:invalid use of|invalid application of .{1,40} to|has) (?:an? )?"
        rf"(?:incomplete|undefined) type {_OWNER}"
    ),
    rf"(?:incomplete definition of|member access into incomplete) type {_OWNER}",
    rf"(?:use of undefined type|uses undefined (?:class|struct|union|class/struct/union)) {_OWNER}",
)
# A value of one type where another is wanted; both are named, and may be of a library.
_CONVERTS = r"(?:conver|initializ|incompatible|assign|no known)"
_TYPE = (
    rf"{_OPEN}(?:const )?{_KIND}(?P<owner>[A-Za-z_][\w:]{{2,120}})[ *&]{{0,4}}(?:const)?{_CLOSE}"
)
# Types that functions of any library take and return: a value of one tells nothing of its library.
_OF_ANY = (
    r"(?:absl|boost|fmt|llvm|tbb|QtPrivate)::(?:\w{1,20}::)?(?:basic_)?(?:string_view|string_ref"
    r"|StringRef|Span|span|optional|variant|any|shared_ptr|Cord|Status|StatusOr|ArrayRef)\b"
)
_NO_MATCH = (
    r"no (?:matching (?:member )?function for call to"
    rf"|instance of (?:overloaded function|function template)) {_OWNER}"
)
_OF_C = r"[a-z][a-z\d]{1,20}(?:_\w{2,60}|[A-Z]\w{2,60})"  # a function of C has one form
# A call with another number of arguments; the last is of gcc, which quotes what is returned too.
_COUNTED = (
    (
        r"too (?:few|many) arguments (?:to|in|for) (?:function |method |call to ){0,2}"
        rf"{_NAME}{_CLOSE}"
    ),
    rf"^{_NAME}[^\n]{{0,80}}: function does not take \d+ arguments?",
    (
        r"too (?:few|many) arguments (?:to|in|for) (?:function |method |call to ){0,2}"
        rf"{_OPEN}(?:[\w:<>,*&]{{1,60}} {{1,2}}[*&]{{0,2}}){{0,3}}"
        r"(?P<name>[A-Za-z_][\w:]{1,100})(?:<.{0,80}>)?\("
    ),
)
_DEEPEST = 2  # parts of the name of a namespace that a library has
_STANDARD = ("std", "__gnu_cxx", "__cxxabiv1")
# A name that is declared twice, and the files of the C library and of C++'s standard library.
_TWICE = (
    r"(?:redefinition of|conflicting (?:types for|declaration(?: of)?)|redeclar\w{2,5}(?: of)?"
    r"|reference to|multiple definition of|typedef redefinition|declaration of|different type for)"
    rf" {_OPEN}?.{{0,60}}?(?P<name>~?[A-Za-z_]\w{{1,80}})(?:\(.{{0,200}}\)|\[.{{0,20}}\])?{_CLOSE}"
    r"(?: (?:is|as) (?:ambiguous|different)|[;,:]|$)"
)
_OF_SYSTEM = (
    r"^/usr/include/(?:[\w-]{1,40}-linux-\w{1,12}/)?(?:(?P<cxx>c\+\+)/|(?:bits|sys|arpa|net\w{0,8})/"
    r"|[a-z]{3,12}\.h$)|/(?P<cxx2>c\+\+)/(?:v1|\d{1,2})/|/SDKs/\w{1,20}[\w.]{0,12}\.sdk/usr/include/"
)
_QUOTED = (
    # a function with what it returns and its parameters, then any other name
    rf"{_OPEN}[^\n'\"\u2018\u2019(]{{1,120}}[ *&](?P<name>[A-Za-z_~][\w:]{{1,80}})\(",
    rf"{_OPEN}(?P<name>[\w:~<>.]{{2,80}})",
)
PATTERNS = _ERRORS


def misfits(search: LogSearch) -> Iterator[Match]:
    """Yield the errors about what a library does not have, and names that one declares too."""
    for line, found in _errors(search):
        message, file, below = found["message"], found["file"], _below(search, line)
        said = _by_name(message, file) or _by_count(message, file) or _by_note(message, file, below)
        if said:
            yield symptom("dependency-api-changed", line, 0.78, said)
        elif library := _also_declared(message, file, below):
            yield symptom("declared-by-library-too", line, 0.74, library)


def _errors(search: LogSearch) -> Iterator[tuple[int, re.Match[str]]]:
    for pattern in _ERRORS:
        for line, found in search.texts.search(pattern, most=_MOST).items():
            if search.steps.step[line] not in search.settled:
                yield line, found


def _by_name(message: str, file: str) -> dict[str, str]:
    """Return the library of a name that is unknown, or of the type that lacks a member."""
    library = None
    if found := _first(_LACKS, message):
        kind, member, library = found["owner"], found["name"], _library_of(found["owner"])
    elif found := _first(_INCOMPLETE, message):
        kind, member = found["owner"], f"visible {found['owner']}"
    elif found := _first(_UNKNOWN, message):
        kind, member = found["name"], found["name"]
    elif compiled(_CONVERTS).search(message) and (found := _known_type(message)):
        kind, library = found["owner"], _library_of(found["owner"])
        member = f"{kind} as it is used here"
    elif (found := compiled(_NO_MATCH).search(message)) and (
        owner_of_path(file) or compiled(_OF_C).fullmatch(found["owner"])
    ):
        kind, library = found["owner"], _library_of(found["owner"])
        member = f"{kind.rpartition('::')[2]} for this call"
    else:
        return {}
    root = kind.partition("::")[0]
    library = owner_of_name(kind) or owner_of_name(f"{kind}::") or library
    is_own = root in _STANDARD or _has_name(file, root) or (library and is_of(library, file))
    return as_member(library, member) if library and not is_own else {}


def _has_name(file: str, root: str) -> bool:
    """Return whether a file, or a folder of its path, has the name of a namespace or a class."""
    own = rf"(?:^|[/\\])(?:lib)?{re.escape(root.lower())}(?:[/\\]|\.\w{{1,5}}$)"
    return bool(re.search(own, file.lower()))


def is_of(library: str, file: str) -> bool:
    """Return whether a file is in the source tree of a library, as the name of a folder tells."""
    name = re.escape(library.lower().partition(" ")[0].removeprefix("lib"))
    release = r"(?:[-_.]v?\d[\d.]*|v?\d+\.[\d.]*)(?:[-_.]?(?:rc|alpha|beta|dev|post|p)\d*)?"
    folder = rf"(?:^|/)(?:lib)?{name}(?:{release}(?:[-.](?:src|git|build))?|-src|-git)/"
    plain = file.replace("\\", "/")
    return bool(re.search(folder, plain.lower())) or is_in_tree(library, plain)


def _known_type(message: str) -> re.Match[str] | None:
    """Return the first type in a message whose library is known by its name."""
    types = compiled(_TYPE).finditer(message)
    known = (one for one in types if not compiled(_OF_ANY).match(one["owner"]))
    return next((one for one in known if owner_of_name(one["owner"])), None)


def _library_of(kind: str) -> str | None:
    """Return the library of a class or a namespace, by the longest part of its name."""
    parts = kind.strip(":").split("::")
    names = ("::".join(parts[:end]) for end in range(min(len(parts), _DEEPEST), 0, -1))
    return next(filter(None, map(library_of_namespace, names)), None)


def _by_count(message: str, file: str) -> dict[str, str]:
    """Return the library of a function that is called with another number of arguments."""
    found = _first(_COUNTED, message)
    library = owner_of_name(found["name"]) if found else None
    is_header = file.endswith((".h", ".hpp", ".cuh")) and file.startswith(("/usr/", "/opt/"))
    if not found or not library or (is_of(library, file) and not is_header):
        return {}
    return as_member(library, f"{found['name']} with these arguments")


def _by_note(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library in whose file the compiler says that the other side is declared."""
    if not compiled(_DIFFERS).search(message):
        return {}
    own = owner_of_path(file)
    for owner in filter(None, map(owner_of_path, _places(below))):
        if not own or owner.name != own.name:
            quoted = _first(_QUOTED, message)
            member = f"{quoted['name']} as it is used here" if quoted else "such interface"
            return as_member(owner.name, member, str(owner))
    return {}


def _also_declared(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library that declares a name too which the source declares."""
    named = compiled(_TWICE).search(message)
    owners = [_declaring(place) for place in (file, *_places(below))]
    if not named or len(set(owners)) < 2:
        return {}
    return {"library": next(filter(None, owners)), "member": named["name"]}


def _declaring(file: str) -> str:
    """Return whose declaration a file has: of a package, the C or the standard library; empty for a
    file of the project.
    """
    if found := compiled(_OF_SYSTEM).search(file.rpartition(" ")[2]):
        is_cxx = found["cxx"] or found["cxx2"]
        return "the standard library of the compiler" if is_cxx else "the C library"
    owner = owner_of_path(file)
    return str(owner) if owner else ""


def _places(lines: Sequence[Line]) -> list[str]:
    """Return the files that the notes below an error name."""
    found = (compiled(_NOTE).search(line.text) for line in lines)
    return [place["file"] for place in found if place]


def as_member(library: str, member: str, owner: str = "") -> dict[str, str]:
    """Return what the texts about a name of a library are filled with."""
    return {"library": library, "owner": owner or library, "member": member}


def _first(patterns: Sequence[str], text: str) -> re.Match[str] | None:
    return next((found for one in patterns if (found := compiled(one).search(text))), None)


def _below(search: LogSearch, line: int) -> Sequence[Line]:
    """Return the lines after an error up to the next one."""
    end = min(len(search.lines), line + 1 + _BELOW)
    errors = (at for at in search.steps.errors if line < at < end)
    return search.lines[line + 1 : next(errors, end)]
