"""Errors where a source and a library that it uses do not fit: whose name, or whose declaration.

A library is known by the name itself, or by the file in which the compiler says that it is
declared. Which of the two is older cannot be told from the message.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.signs import LogSearch
from stoker.knowledge.owners import is_in_tree, owner_of_name, owner_of_path
from stoker.knowledge.providers import library_of_namespace

_MOST = 40  # errors that are looked into
_BELOW = 30  # lines of an error in which its notes are
_OF_RUST = "error"  # stands for the file in an error of rustc, whose place is in the next line
_SAID = r"(?P<message>\S.{0,400})"
# An error of a compiler: of gcc and clang, of Microsoft's, of rustc.
_ERRORS = (
    r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):\d{1,7}(?::\d{1,5})?: error: " + _SAID,
    r"^\s{0,24}(?P<file>[^\s('\"][^('\"\n]{0,300}\.\w{1,5})\(\d{1,7}(?:,\d{1,5})?\)"
    r": error(?: [A-Z]{1,3}\d{4})?\s?: " + _SAID,
    rf"^\s{{0,24}}(?P<file>{_OF_RUST})\[E0\d{{3}}\]: {_SAID}",
    r"^\s{0,24}(?P<file>)error: " + _SAID,  # a part of a message
)
# A note whose error was cut off: an argument is not what a declaration in this file wants.
OTHER_ARGUMENT = (
    r"^\s{0,24}(?P<file>[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5}):\d{1,7}(?::\d{1,5})?: note: "
    r"expected ['\"\u2018](?P<name>[^'\"\u2019\n]{1,80})['\"\u2019]"
    r"(?: \{aka ['\"\u2018](?P<aka>[^'\"\u2019\n]{1,80})['\"\u2019]\})?.{0,60} but argument is of "
    r"type ['\"\u2018](?P<given>[^'\"\u2019\n]{1,80})['\"\u2019]"
)
_NOTE = (
    r"^\s{0,24}(?:In file included from )?"
    r"(?P<file>(?:[A-Za-z]:)?[^\s:'\"][^:'\"\n]{0,300}\.\w{1,5})"
    r"(?::\d{1,7}|\(\d{1,7}).{0,12}: (?:note|message)\s?: "
)
_RUST_PLACE = r"^\s{0,12}(?:-->|:::) (?P<file>\S{1,300}?):\d{1,7}:\d{1,5}"
# What an error says if a use and a declaration differ.
_DIFFERS = (
    r"no matching (?:member |overloaded )?function|too (?:few|many) (?:template )?arguments"
    r"|has no member|no member named|cannot convert|could not convert|invalid conversion"
    r"|is not a member|does not override|is private|is protected|no viable|no overloaded function"
    r"|incompatible (?:pointer|type|function)|cannot initialize|pure virtual|abstract class"
    r"|not all trait items implemented|takes \d+ (?:generic )?arguments?|mismatched types"
    r"|no (?:method|field|function)|missing (?:structure )?field|has no field"
    r"|(?:expected|does not take) \d+ arguments?|missing arguments? for parameters?"
    r"|extra (?:trailing closure|arguments?)|incorrect argument label"
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
# The same in the words of rustc, which quotes a type with its parameters.
_RUST_TYPE = r"`(?:&(?:mut )?)?(?P<owner>[A-Za-z_][\w:]{1,80})"
_RUST_LACKS = (
    (
        r"no (?:method|field|variant|(?:function or |variant or )?associated item)(?: named)?"
        r" `(?P<name>\w{1,80})` (?:found |on |exists |for |in |mutable |raw |reference "
        rf"|struct |enum |trait |type |union |pointer |parameter ){{0,6}}{_RUST_TYPE}"
    ),
    rf"attempted to take value of method `(?P<name>\w{{1,80}})` on type {_RUST_TYPE}",
    rf"(?:struct|variant|enum) {_RUST_TYPE}` has no field named `(?P<name>\w{{1,80}})`",
    rf"missing fields? `(?P<name>\w{{1,80}})`.{{0,80}} in initializer of {_RUST_TYPE}",
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
_CUT_OFF = rf"{_OWNER}.{{0,300}} has no member \.\.\.$"  # by who pasted it
# A call with another number of arguments; the function is named, or marked below the message.
_COUNT = (
    r"too (?:few|many) arguments (?:to|in|for)\b"
    r"|(?:function|method) does not take \d+ arguments?"
)
_COUNTED = (
    (
        r"too (?:few|many) arguments (?:to|in|for) (?:function |method |call to ){0,2}"
        rf"{_NAME}{_CLOSE}"
    ),
    # gcc quotes a function of C++ with what it returns
    (
        r"too (?:few|many) arguments (?:to|in|for) (?:function |method |call to ){0,2}"
        rf"{_OPEN}(?:[\w:<>,*&]{{1,60}} {{1,2}}[*&]{{0,2}}){{0,3}}"
        r"(?P<name>[A-Za-z_][\w:]{1,100})(?:<.{0,80}>)?\("
    ),
    rf"^{_NAME}[^\n]{{0,80}}: function does not take \d+ arguments?",
)
_CALLED = r"(?P<name>[A-Za-z_]\w{2,80}(?:::\w{2,80}){0,4}) ?$"
_POINTS = r"^[\s\d|]{0,20}(?P<before>[\s~|]{0,300})\^[\s~^]*$"
_FILLED = (
    r"(?:too many initializers for|excess elements in (?:struct|class) initializer for"
    rf"|no matching constructor for initialization of) {_OWNER}"
)
# nvcc names no type where a list in braces does not fit: the folder of the file may tell whose.
_OTHER_VALUE = (
    r"^(?:a value of type \".{1,120}\" cannot be used to initialize an entity of type"
    r"|too many initializer values|no suitable (?:conversion function|constructor))"
)
# nvcc names neither the name nor what it would be: it marks it in the line that it quotes.
_NO_NAMESPACE = 'name followed by "::" must be a class or namespace name'
_MARK = r"^(?P<before>\s{1,300})\^\s{0,4}$"
# A structure of functions that are loaded later.
_TABLE = r"(?:API|Api|Driver|Lib|Library|Loader|Functions?|Table|Stubs?|Symbols?|Dispatch)\w{0,4}$"
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
# The header of a project that is copied into the tree of another one.
# nvcc names the other place in the message itself.
_TWICE_THERE = (
    r"\"(?P<name>~?[A-Za-z_]\w{1,80})(?:\([^\"]{0,200})?\" (?:\(\w.{0,40}\) )?has already been "
    r"(?:defined|declared).{0,40} at line \d{1,7} of \"?(?P<other>[^\")\n]{3,300})"
)
_COPY = (
    r"(?P<root>(?!/usr/|/opt/)\S{1,200}/)(?P<name>(?!src/|include/|lib/)[\w.+-]{3,40})/(?:include|src)/"
    r"(?:(?P=name)/\S{1,100}|(?P=name)\.(?:h|hpp))$"
)
_QUOTED = (
    # a function with what it returns and its parameters, then any other name
    rf"{_OPEN}[^\n'\"\u2018\u2019(]{{1,120}}[ *&](?P<name>[A-Za-z_~][\w:]{{1,80}})\(",
    rf"{_OPEN}(?P<name>[\w:~<>.]{{2,80}})",
)
_DECLARED = (
    rf"note: {_OPEN}(?P<name>[A-Za-z_~][\w:~]{{1,80}})(?:\(.{{0,80}}\))?{_CLOSE} declared here"
)
_IN_HEADER = r"\.(?:h|hh|hpp|hxx|ipp|tcc|inl)$"
_PROPOSED = r"no member named '\w{2,80}' in '[^'\n]{2,300}'; did you mean '\w{2,80}'"
_USED = "in instantiation of "
PATTERNS = _ERRORS


def misfits(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors about what a library does not have: the line, the library, the name."""
    for line, found in _errors(search):
        message, file = found["message"], found["file"]
        below = _below(search, line)
        said = (
            _by_name(message, file)
            or _by_mark(message, below)
            or _by_count(message, file, below)
            or _by_note(message, file, below)
            or _by_folder(message, file, below)
        )
        if said:
            yield line, said | _copied(message, file, below)
    for line in search.steps.errors:
        note = compiled(OTHER_ARGUMENT).match(search.lines[line].text)
        if note and (owner := owner_of_path(note["file"])):
            member = f"{note['name']} for this argument"
            yield line, as_member(owner.name, member, str(owner))


def mistyped_members(search: LogSearch) -> Iterator[tuple[int, str]]:
    """Yield the errors within a header of a bundled library about a member that its class does not
    have, where clang proposes another member of it and names no use: the line and the library.
    Templates were not looked into before they were used.
    """
    for line, found in _errors(search):
        owner = owner_of_path(found["file"]) if compiled(_IN_HEADER).search(found["file"]) else None
        if not owner or not compiled(_PROPOSED).search(found["message"]):
            continue
        if not any(_USED in one.text for one in _below(search, line)):
            yield line, str(owner)


def unowned_misfits(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors about a type that lacks a member, where nothing tells whose the type is."""
    for line, found in _errors(search):
        named = _first((*_LACKS, *_RUST_LACKS), found["message"])
        root = named["owner"].partition("::")[0] if named else "std"
        if named and found["file"] and root not in _STANDARD and not _has_name(found["file"], root):
            file = {} if found["file"] == _OF_RUST else {"file": found["file"]}
            yield line, {"owner": named["owner"], "member": named["name"]} | file


def unknown_names(search: LogSearch) -> Iterator[tuple[int, str, str, str]]:
    """Yield the errors about a name: the line, the file, the class or namespace that lacks the
    name, which is empty if the error names none, and the name.
    """
    for line, found in _errors(search):
        if named := _first((*_LACKS, *_INCOMPLETE, *_UNKNOWN), found["message"]):
            groups = named.groupdict()
            yield line, found["file"], groups.get("owner", ""), groups.get("name", "")


def collisions(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors about a name that a library declares too: the line, library and name."""
    for line, found in _errors(search):
        named = _first((_TWICE_THERE, _TWICE), found["message"])
        if not named or found["file"] == _OF_RUST:
            continue
        places = [found["file"], *_places(_below(search, line))]
        owners = [_declaring(place) for place in places]
        if there := named.groupdict().get("other"):
            owners.append(_declaring(there) or owner_of_name(named["name"]) or "")
        if len(set(owners)) > 1:
            library = next(filter(None, owners))
            yield line, {"library": library, "member": named["name"]}


def declared_at(search: LogSearch, line: int) -> list[str]:
    """Return the files that the notes below an error name, if it says that a use and a declaration
    differ.
    """
    differs = compiled(_DIFFERS).search(search.lines[line].text)
    return _places(_below(search, line)) if differs else []


def _errors(search: LogSearch) -> Iterator[tuple[int, re.Match[str]]]:
    for pattern in _ERRORS:
        for line, found in search.texts.search(pattern, most=_MOST).items():
            if search.steps.step[line] not in search.settled:
                yield line, found


def _declaring(file: str) -> str:
    """Return whose declaration a file has: of a package, the C or the standard library; empty for a
    file of the project.
    """
    if found := compiled(_OF_SYSTEM).search(file.rpartition(" ")[2]):
        return (
            "the standard library of the compiler"
            if found["cxx"] or found["cxx2"]
            else "the C library"
        )
    owner = owner_of_path(file)
    return str(owner) if owner else ""


def _places(lines: Sequence[Line]) -> list[str]:
    found = (_first((_NOTE, _RUST_PLACE), line.text) for line in lines)
    return [place["file"] for place in found if place]


def _by_name(message: str, file: str) -> dict[str, str]:
    """Return the library of a name that is unknown, or of the type that lacks a member."""
    if found := _first(_LACKS, message):
        kind, member, library = found["owner"], found["name"], _library_of(found["owner"])
    elif found := compiled(_CUT_OFF).search(message):
        kind, member, library = found["owner"], f"such member of {found['owner']}", None
    elif found := _first(_INCOMPLETE, message):
        kind, member, library = found["owner"], f"visible {found['owner']}", None
    elif found := _first(_UNKNOWN, message):
        kind, member, library = found["name"], found["name"], None
    elif compiled(_CONVERTS).search(message) and (found := _known_type(message)):
        kind, library = found["owner"], _library_of(found["owner"])
        member = f"{kind} as it is used here"
    elif (found := compiled(_NO_MATCH).search(message)) and (
        not file or owner_of_path(file) or compiled(_OF_C).fullmatch(found["owner"])
    ):
        kind, library = found["owner"], _library_of(found["owner"])
        member = f"{kind.rpartition('::')[2]} for this call"
    elif found := compiled(_FILLED).search(message):
        kind, library = found["owner"], _library_of(found["owner"])
        member = f"{kind.rpartition('::')[2]} with the parts that are given here"
    else:
        return {}
    root = kind.partition("::")[0]
    library = owner_of_name(kind) or owner_of_name(f"{kind}::") or library
    if root in _STANDARD:
        return {}
    if _has_name(file, root) or (library and is_of(library, file)):
        return _by_member(kind, member)
    return as_member(library, member) if library else {}


def _by_member(kind: str, member: str) -> dict[str, str]:
    """Return the library after which a member of a type of the project's own is called, if the type
    is a table of functions that are loaded later: it has those of the releases that it knows.
    """
    name = member.rstrip("_")
    is_table = compiled(_TABLE).search(kind) and name.isidentifier()
    library = owner_of_name(name) if is_table else None
    return as_member(library, name) if library else {}


def _has_name(file: str, root: str) -> bool:
    """Return whether a file, or a folder of its path, has the name of a namespace or a class."""
    if file.endswith((".yaml", ".yml")):  # code that a user wrote into a configuration
        return False
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


def _by_mark(message: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library of an unknown namespace, to which a mark below the source points."""
    if not message.startswith(_NO_NAMESPACE):
        return {}
    for quoted, line in pairwise(below[:4]):
        if mark := compiled(_MARK).match(line.text):
            name = compiled(r"\w{0,80}").match(quoted.text, len(mark["before"]))
            library = owner_of_name(f"{name[0]}::") if name else None
            return as_member(library, f"visible {name[0]}") if library and name else {}
    return {}


def _by_count(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library of a function that is called with another number of arguments."""
    if not compiled(_COUNT).search(message):
        return {}
    found = _first(_COUNTED, message)
    name = found["name"] if found else _marked_call(below)
    library = owner_of_name(name) if name else None
    is_header = file.endswith((".h", ".hpp", ".cuh")) and file.startswith(("/usr/", "/opt/"))
    if not library or (is_of(library, file) and not is_header):
        return {}
    return as_member(library, f"{name} with these arguments")


def _marked_call(below: Sequence[Line]) -> str:
    """Return the function in whose arguments a mark below the quoted source points."""
    for quoted, line in pairwise(below[:4]):
        mark = compiled(_POINTS).match(line.text)
        end = mark.end("before") if mark else 0
        depth = 0
        for at in range(min(end, len(quoted.text) - 1), -1, -1):
            depth += {")": 1, "(": -1}.get(quoted.text[at], 0) if at < end else 0
            if depth < 0:
                called = compiled(_CALLED).search(quoted.text[:at])
                return called["name"] if called else ""
    return ""


def _by_folder(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library whose structure is filled with values that do not fit: the folder or the
    file is named after it, and the templates that nvcc lists below are of its namespace.
    """
    if not compiled(_OTHER_VALUE).match(message):
        return {}
    listed = " ".join(line.text for line in below)
    for word in compiled(r"[a-z]{3,40}").findall(file.lower().rpartition("/csrc/")[2]):
        library = owner_of_name(f"{word}::") if f"{word}::" in listed else None
        if library and not is_of(library, file):
            return as_member(library, "structure with the fields that are given here")
    return {}


def _by_note(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library in whose file the compiler says that the other side is declared."""
    if not compiled(_DIFFERS).search(message):
        return {}
    places = _places(below)
    if file == _OF_RUST:
        file, places = (places[0], places[1:]) if places else ("", [])
    own = owner_of_path(file)
    if copy := _of_copy(file, places):
        return as_member(copy, _said_member(message, below))
    for owner in filter(None, map(owner_of_path, places)):
        if not own or owner.name != own.name:
            return as_member(owner.name, _said_member(message, below), str(owner))
    return {}


def _said_member(message: str, below: Sequence[Line]) -> str:
    """Return what of a library does not fit, as the error or a note below it names it."""
    noted = (found for line in below if (found := compiled(_DECLARED).search(line.text)))
    quoted = _first(_QUOTED, message) or next(noted, None)
    return f"{quoted['name']} as it is used here" if quoted else "such interface"


def _copied(message: str, file: str, below: Sequence[Line]) -> dict[str, str]:
    """Return the library of which a copy in the tree does not fit its use, if a note names it."""
    differs = compiled(_DIFFERS).search(message)
    copy = _of_copy(file, _places(below)) if differs else ""
    return {"copy": copy} if copy else {}


def _of_copy(file: str, places: Sequence[str]) -> str:
    """Return the library whose header a note names, if a copy of it lies in the tree of the file:
    its folder has the name of the header, and it is one that other projects use too.
    """
    for place in places[:1]:
        found = compiled(_COPY).match(place.replace("\\", "/"))
        root = found["root"] if found else ""
        own = file.replace("\\", "/")
        if not (found and root and own.startswith(root)) or f"/{found['name']}/" in own:
            continue
        name = found["name"]
        if owner_of_name(f"{name}_") or owner_of_name(f"{name}::") or library_of_namespace(name):
            return name
    return ""


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
