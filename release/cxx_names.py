"""Finds the names that a header of C or C++ declares for its users.

libclang would need the headers that each library includes, as configured, and sees one branch of
each condition. This is no compiler: it follows braces, namespaces and classes, and takes both
branches. What is private, inside functions, or only declared in advance is left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_COMMENT = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w{0,16})\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"^[ \t]*#[^\n]*|[A-Za-z_$][\w$]*|::|\d[\w.]*|[{}();,=<>\[\]:~&*]", re.MULTILINE
)
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_OPENS = re.compile(r"\w*(?:NAMESPACE_BEGIN|BEGIN_NAMESPACE|NS_BEGIN|BEGIN_NS|OPEN_NAMESPACE)\w*")
_CLOSES = re.compile(r"\w*(?:NAMESPACE_END|END_NAMESPACE|NS_END|END_NS|CLOSE_NAMESPACE)\w*")
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*|Py\w+_(?:FUNC|DATA)")
_ACCESS = ("public", "protected", "private")
_CLASSES = ("class", "struct", "union")
# Words whose parentheses hold no parameters of a function.
_NO_FUNCTION = set(
    re.findall(
        r"\w+",
        "__attribute__ __declspec alignas decltype explicit noexcept requires throw sizeof __asm__"
        " asm __launch_bounds__ _Alignas",
    )
)
_LEFT_OUT = set(re.findall(r"\w+", "friend static_assert _Static_assert return if for while goto"))
_KEYWORDS = set(
    re.findall(
        r"\w+",
        "const volatile int char long short unsigned signed float double void bool auto static"
        " inline extern constexpr virtual mutable register final override default delete typename"
        " template class struct union enum operator using typedef namespace public private"
        " protected noexcept nullptr this true false wchar_t size_t new",
    )
)
_ANONYMOUS = "\0"


@dataclass
class _Scope:
    kind: str  # namespace, class, enum, or code
    name: str = ""  # empty if its names are those of the scope around it
    hidden: bool = False  # what follows is private
    is_typedef: bool = False
    parens: int = 0  # open when it began


@dataclass
class _State:
    scopes: list[_Scope] = field(default_factory=list)
    statement: list[str] = field(default_factory=list)
    parens: int = 0

    def copy(self) -> "_State":
        scopes = [_Scope(**vars(one)) for one in self.scopes]
        return _State(scopes, list(self.statement), self.parens)


def declared_names(text: str, namespaces: Mapping[str, str]) -> set[str]:
    """Return the names with their namespaces and classes, such as fmt::localtime, and macros.
    ``namespaces`` are those that macros open, by the macro.
    """
    code = _COMMENT.sub(_blanked, text).replace("\\\r\n", " ").replace("\\\n", " ")
    return set(_Reader(namespaces).read(code))


def words_in(text: str) -> set[str]:
    """Return all words of a header's code, declared or only used."""
    return set(_NAME.findall(_COMMENT.sub(_blanked, text)))


def _blanked(found: re.Match[str]) -> str:
    return '""' if found[0][0] in "\"'R" else " "


class _Reader:
    """Reads the tokens of one header. Each branch of a condition begins with the same state, and
    what follows continues that of the first one.
    """

    def __init__(self, namespaces: Mapping[str, str]):
        self._namespaces = namespaces
        self._ends = {macro.replace("BEGIN", "END") for macro in namespaces} - set(namespaces)
        self._state = _State()
        self._branches: list[tuple[_State, _State | None]] = []
        self._conditions: list[str] = []
        self._anonymous = 0
        self._found: list[str] = []
        self._named: dict[str, str] = {}

    def read(self, code: str) -> Iterator[str]:
        tokens = _TOKEN.findall(code)
        for place, token in enumerate(tokens):
            if "#" in token:
                self._direct(token)
            else:
                self._take(token, tokens[place + 1 : place + 3])
        for name in self._found:
            known = name
            for mark, given in self._named.items():
                known = known.replace(mark, given)
            if _ANONYMOUS not in known:
                yield known

    def _direct(self, line: str) -> None:
        found = _DIRECTIVE.match(line)
        word, rest = (found[1], found[2]) if found else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            self._branches.append((self._state.copy(), None))
            self._conditions.append(rest)
        elif word in ("else", "elif", "elifdef", "elifndef") and self._branches:
            before, first = self._branches.pop()
            self._branches.append((before, first or self._state))
            self._state = before.copy()
        elif word == "endif" and self._branches:
            before, first = self._branches.pop()
            condition = self._conditions.pop()
            # A namespace that only some macro opens is left out, as where that is not defined.
            is_optional = first is None and "__cplusplus" not in condition
            if is_optional and len(self._state.scopes) != len(before.scopes):
                self._state = before
            self._state = first or self._state
        elif word == "define" and (name := _NAME.match(rest)):
            self._found.append(name[0])

    def _take(self, token: str, following: Sequence[str]) -> None:
        state = self._state
        scope = state.scopes[-1] if state.scopes else None
        if scope and scope.kind == "code" and token not in "{}":
            return
        if token == "{":
            self._open()
        elif token == "}":
            self._close()
        elif state.parens == 0 and token == ";":
            self._end()
        elif scope and scope.kind == "enum" and token == "," and state.parens == 0:
            self._enumerator()
        elif token == ":" and state.statement and state.statement[-1] in _ACCESS and scope:
            scope.hidden = state.statement[-1] == "private"
            state.statement = []
        elif token in self._namespaces or _OPENS.fullmatch(token):
            self._open_by_macro(token, following)
        elif (token in self._ends or _CLOSES.fullmatch(token)) and state.scopes:
            if state.scopes[-1].kind == "namespace":
                state.scopes.pop()
            state.statement = []
        else:
            state.parens += (token == "(") - (token == ")")
            state.parens = max(state.parens, 0)
            state.statement.append(token)

    def _open_by_macro(self, macro: str, following: Sequence[str]) -> None:
        """Open a namespace; its name is the argument of the macro, or known by the macro."""
        name = self._namespaces.get(macro, "")
        if following[:1] == ["("] and len(following) > 1:
            name = self._namespaces.get(following[1], following[1])
        for part in name.split("::"):
            self._state.scopes.append(_Scope("namespace", part))
        self._state.statement = []

    def _open(self) -> None:
        state = self._state
        statement = state.statement
        parens, state.parens, state.statement = state.parens, 0, []
        scope = _Scope("code", parens=parens) if parens else self._scope_of(statement)
        if scope.kind == "code":
            if not parens and not (state.scopes and state.scopes[-1].kind == "code"):
                self._declare(statement)
            # A declaration continues after an initializer (`int x{}, y;`), but not after a body.
            state.statement = statement if parens else []
        scope.parens = parens
        state.scopes.append(scope)

    def _scope_of(self, statement: Sequence[str]) -> _Scope:
        words = [*_without_templates(statement)]
        while _MACRO.fullmatch("".join(words[:1])) and words[1:2] == ["("]:
            words = words[_closing(words, 1) + 1 :]
        if "namespace" in words[:2]:
            names = [one for one in words if _NAME.fullmatch(one)]
            names = [one for one in names if one not in ("inline", "namespace")]
            if "inline" in words or not names:
                return _Scope("namespace")
            return _Scope("namespace", "::".join(names) if "::" in words else names[-1])
        if words[:1] == ["extern"] and len(words) <= 2:
            return _Scope("namespace")
        is_typedef = "typedef" in words[:2]
        heads = [at for at, word in enumerate(words) if word in _CLASSES or word == "enum"]
        if not heads or "(" in [*_plain(words[: heads[0]])]:
            return _Scope("code")
        head = words[heads[0] :]
        if head[0] == "enum":
            scoped = len(head) > 1 and head[1] in _CLASSES
            name = _last_name(_before(head[1:], ":"))
            self._add(name)
            return _Scope("enum", name if scoped else "", is_typedef=is_typedef)
        own = _before(head[1:], ":")
        if "(" in [*_plain(own)] or "=" in own:
            return _Scope("code")  # a function that returns a class, or an initialized variable
        name = _last_name(word for word in _without_angles(own) if word != "final")
        if name:
            self._add(name)
        else:
            self._anonymous += 1
            name = f"{_ANONYMOUS}{self._anonymous}{_ANONYMOUS}"
        return _Scope("class", name, hidden=head[0] == "class", is_typedef=is_typedef)

    def _close(self) -> None:
        state = self._state
        if not state.scopes:
            state.statement = []
            return
        scope = state.scopes[-1]
        if scope.kind == "enum":
            self._enumerator()
        state.scopes.pop()
        state.parens = scope.parens
        if scope.kind in ("class", "enum"):
            mark = scope.name if _ANONYMOUS in scope.name else ""
            state.statement = ["typedef" if scope.is_typedef else "}", mark]
        elif scope.kind == "namespace":
            state.statement = []

    def _enumerator(self) -> None:
        names = [one for one in self._state.statement if _NAME.fullmatch(one)]
        if names:
            self._add(names[0])
        self._state.statement = []

    def _end(self) -> None:
        statement, self._state.statement = self._state.statement, []
        if statement[:1] in (["}"], ["typedef"]) and len(statement) > 1 and "\0" in statement[1]:
            names = [one for one in statement[2:] if _NAME.fullmatch(one)]
            if statement[0] == "typedef" and names:
                self._named[statement[1]] = names[-1] if len(names) == 1 else names[0]
            elif not names:  # members of an anonymous union are those of its class
                self._named[f"{statement[1]}::"] = ""
        if not (self._state.scopes and self._state.scopes[-1].kind in ("code", "enum")):
            self._declare(statement)

    def _declare(self, statement: Sequence[str]) -> None:
        for name in _declared([*_without_templates(statement)]):
            self._add(name)

    def _add(self, name: str) -> None:
        scopes = self._state.scopes
        if not name or any(scope.hidden or scope.kind == "code" for scope in scopes):
            return
        spaces = [scope.name for scope in scopes if scope.name]
        if name != (spaces or [""])[-1]:  # no constructors
            self._found.append("::".join([*spaces, name]))


def _declared(words: Sequence[str]) -> Iterator[str]:
    """Yield the names that a statement declares."""
    if not words or words[0] in _LEFT_OUT or "operator" in words or "~" in words:
        return
    if words[0] == "using":
        if "namespace" not in words[:2]:
            yield words[1] if "=" in words else _last_name(words)
        return
    if words[0] == "namespace":
        yield words[1] if len(words) > 1 else ""
        return
    is_typedef = words[0] in ("typedef", "}")
    if not is_typedef and words[0] in (*_CLASSES, "enum") and "(" not in words and "=" not in words:
        plain = [*filter(_NAME.fullmatch, _without_angles(_before(words, ":")))]
        if sum(not _MACRO.fullmatch(word) for word in plain[:-1]) <= 1:
            return  # only declared in advance
    if function := _function(words):
        yield function
        return
    for part in _split(_without_angles(words)):
        yield _last_name(_before(_before(_before(part, "="), "["), ":"))


def _function(words: Sequence[str]) -> str:
    """Return the name before the parameters of a function, or in `(*name)(...)`."""
    plain = [*_without_angles(words)]
    place = 0
    while "(" in plain[place:]:
        opening = plain.index("(", place)
        if "=" in plain[place:opening]:
            return ""
        end = _closing(plain, opening)
        name = plain[opening - 1] if opening else ""
        inside = plain[opening + 1 : end]
        if "*" in inside[:3] and plain[end + 1 : end + 2] == ["("]:
            return _last_name(inside[: inside.index("(")] if "(" in inside else inside)
        is_macro = (_MACRO.fullmatch(name) and "(" in plain[end + 1 :]) or name in _NO_FUNCTION
        if not is_macro:
            is_name = _NAME.fullmatch(name) and name not in _KEYWORDS
            return name if is_name and plain[opening - 2 : opening - 1] != ["::"] else ""
        place = end + 1
    return ""


def _closing(words: Sequence[str], opening: int) -> int:
    depth = 0
    for place in range(opening, len(words)):
        depth += (words[place] == "(") - (words[place] == ")")
        if depth == 0:
            return place
    return len(words)


def _split(words: Iterator[str]) -> Iterator[list[str]]:
    """Yield the parts between commas outside of parentheses."""
    part: list[str] = []
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _plain(words: Sequence[str]) -> Iterator[str]:
    """Yield the words outside of what belongs to macros and attributes before a name."""
    place = 0
    while place < len(words):
        word = words[place]
        takes = word in _NO_FUNCTION or _MACRO.fullmatch(word)
        if takes and words[place + 1 : place + 2] == ["("]:
            place = _closing(words, place + 1)
        else:
            yield word
        place += 1


def _before(words: Sequence[str], mark: str) -> Sequence[str]:
    return words[: words.index(mark)] if mark in words else words


def _last_name(words: Iterator[str] | Sequence[str]) -> str:
    """Return the last name outside of parentheses."""
    last, depth = "", 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and _NAME.fullmatch(word) and word not in _KEYWORDS:
            last = word
    return last


def _without_angles(words: Sequence[str]) -> Iterator[str]:
    depth = 0
    for word in words:
        if word == "<":
            depth += 1
        elif word == ">":
            depth = max(depth - 1, 0)
        elif depth == 0:
            yield word


def _without_templates(words: Sequence[str]) -> Iterator[str]:
    """Yield the words after `template <...>`, without attributes in double brackets."""
    place = 0
    while place < len(words) and words[place] == "template":
        depth, place = 0, place + 1
        while place < len(words):
            depth += (words[place] == "<") - (words[place] == ">")
            place += 1
            if depth <= 0:
                break
    brackets = 0
    for at in range(place, len(words)):
        word = words[at]
        is_attribute = word == "[" and words[at + 1 : at + 2] == ["["] and not brackets
        brackets += 2 if is_attribute else 0
        if brackets and word == "]":
            brackets -= 1
        elif not brackets:
            yield word
