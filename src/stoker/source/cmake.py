"""Reads what CMake reads and writes: its language, and the targets of a build folder.

The language becomes commands and their arguments in one pass; no command is evaluated. Targets come
from CMake's file API, which answers a query when it configures: ``ask`` leaves the query,
``read_targets`` reads the answer. A folder that was configured without a query has none.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from stoker.model.value import Value
from stoker.outside.files import read_json

# Every repetition takes what it matches for good, or has branches that exclude one another:
# nothing is read twice, so a text takes time in proportion to its length whatever it holds.
_BLANK = r"""
    [ \t\r\n]++
  | \# \[ (?P<fence>=*+) \[ (?s:.*?) \] (?P=fence) \]
  | \# (?! \[=*+\[ ) [^\n]*+
"""
# Between commands a template may hold an @NAME@, which configure_file replaces by commands.
_COMMAND = re.compile(
    rf"""
    (?: {_BLANK} | @[A-Za-z0-9_]++@ )*
    (?: (?P<name> [A-Za-z_][A-Za-z0-9_]*+ ) [ \t]*+ \( | (?P<end> \Z ) )?
    """,
    re.VERBOSE,
)
_ARGUMENT = re.compile(
    rf"""
    (?: {_BLANK} )*
    (?: (?P<close> \) )
      | (?P<open> \( )
      | (?P<quoted> " (?: [^"\\]++ | \\ (?s:.) )* " )
      | (?P<bracket> \[ (?P<level>=*+) \[ (?s:.*?) \] (?P=level) \] )
      | (?P<unquoted>
            (?! " | \[=*+\[ )
            (?: [^ \t\r\n()#"\\$]++
              | \\ [^\n]
              | \$ (?: \( [A-Za-z0-9_]*+ \) )?             # $(NAME), as makefiles write it
              | " (?: [^\n\r()#"\\]++ | \\ [^\n] )* "      # -DNAME="some words"
            )+
        )
    )?
    """,
    re.VERBOSE,
)
_NEVER_CLOSED = {"#": "bracket comment", '"': "quoted argument", "[": "bracket argument"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# A semicolon stays escaped: whether it separates is decided where the list is taken apart.
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\n": "", ";": "\\;"}
_COMPARISONS = {
    f"{kind}{comparison}"
    for kind in ("", "STR", "VERSION_")
    for comparison in ("LESS", "GREATER", "EQUAL", "LESS_EQUAL", "GREATER_EQUAL")
}
_NO_VARIABLE_NEXT = _COMPARISONS | {"COMMAND", "MATCHES", "PATH_EQUAL", "POLICY", "TARGET", "TEST"}
_OPERATORS = {
    "AND",
    "OR",
    "NOT",
    "DEFINED",
    "EXISTS",
    "IN_LIST",
    "IS_ABSOLUTE",
    "IS_DIRECTORY",
    "IS_NEWER_THAN",
    "IS_SYMLINK",
}
_CONSTANTS = {"ON", "YES", "TRUE", "Y", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND"}
_NO_VARIABLE = _NO_VARIABLE_NEXT | _OPERATORS | _CONSTANTS
_WORD = re.compile(r"[^\s();\"]+")
_API = Path(".cmake/api/v1")
_KIND = "codemodel"


class ArgumentKind(StrEnum):
    UNQUOTED = "unquoted"  # the parentheses within a condition are unquoted arguments, too
    QUOTED = "quoted"
    BRACKET = "bracket"


class Argument(Value, frozen=True, kw_only=True):
    kind: ArgumentKind
    source: str  # as written, with its quotes or brackets

    @property
    def value(self) -> str:
        """The argument as CMake passes it on, before it replaces any ``${variable}``."""
        if self.kind is ArgumentKind.BRACKET:
            fence = self.source.index("[", 1) + 1
            return self.source[fence:-fence].removeprefix("\n")
        inner = self.source[1:-1] if self.kind is ArgumentKind.QUOTED else self.source
        return _ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner


class CMakeCommand(Value, frozen=True, kw_only=True):
    """A command. ``name`` is in lower case, because CMake ignores case."""

    name: str
    arguments: tuple[Argument, ...]
    line: int


class Problem(Value, frozen=True, kw_only=True):
    line: int
    message: str


class Script(Value, frozen=True, kw_only=True):
    """The commands of a text, up to its first syntax error."""

    commands: tuple[CMakeCommand, ...]
    problem: Problem | None = None


_KINDS = {
    "open": ArgumentKind.UNQUOTED,
    "close": ArgumentKind.UNQUOTED,
    "unquoted": ArgumentKind.UNQUOTED,
    "quoted": ArgumentKind.QUOTED,
    "bracket": ArgumentKind.BRACKET,
}


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])


def parse(text: str) -> Script:
    """Return all commands up to the end, or up to the first text that is not CMake."""
    commands: list[CMakeCommand] = []
    position = counted = 0
    line = 1
    while True:
        start = _match(_COMMAND, text, position)
        begin = start.start("name") if start.lastgroup == "name" else start.end()
        line += text.count("\n", counted, begin)
        counted = begin
        if start.lastgroup == "end":
            return Script(commands=tuple(commands))
        if start.lastgroup != "name":
            problem = Problem(line=line, message=_not_a_command(text, begin))
            return Script(commands=tuple(commands), problem=problem)
        arguments, position, closed = _arguments(text, start.end())
        if not closed:
            problem = _unfinished(text, start["name"], line, begin, position)
            return Script(commands=tuple(commands), problem=problem)
        commands.append(CMakeCommand(name=start["name"].lower(), arguments=arguments, line=line))


def _match(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str]:
    """Return the match; both patterns also match empty text, so there always is one."""
    match = pattern.match(text, position)
    assert match is not None
    return match


def _arguments(text: str, position: int) -> tuple[tuple[Argument, ...], int, bool]:
    """Return the arguments after an opening parenthesis, where they end, and whether it is
    closed.
    """
    arguments: list[Argument] = []
    depth = 1
    while True:
        match = _match(_ARGUMENT, text, position)
        position = match.end()
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif kind not in _KINDS:
            return tuple(arguments), position, False
        if not depth:
            return tuple(arguments), position, True
        arguments.append(Argument(kind=_KINDS[kind], source=match[kind]))


def _not_a_command(text: str, position: int) -> str:
    if text[position] == "#":
        return "the bracket comment is never closed"
    found = text[position : position + 20].splitlines()[0]
    return f"expected a command, found {found!r}"


def _unfinished(text: str, name: str, line: int, begin: int, position: int) -> Problem:
    if position == len(text):
        return Problem(line=line, message=f"{name}( is never closed")
    what = _NEVER_CLOSED.get(text[position])
    return Problem(
        line=line + text.count("\n", begin, position),
        message=f"the {what} is never closed" if what else "a backslash ends the line",
    )


# -- conditions ------------------------------------------------------------------------------------
# CMake conditions as text: conjunctions, negations, and the names they read. Nothing is
# evaluated.


def condition_text(arguments: Iterable[Argument]) -> str:
    """Return a condition on one line, as it is written."""
    text = ""
    for argument in arguments:
        glued = not text or text.endswith("(") or argument.source == ")"
        text += argument.source if glued else f" {argument.source}"
    return text


def conjunction(parts: Iterable[str]) -> str:
    """Return the condition that all parts are true. AND binds more tightly than OR."""
    first, *others = dict.fromkeys(" ".join(part.split()) for part in parts if part) or ["TRUE"]
    if not others:
        return first
    return " AND ".join(f"({part})" if " OR " in part else part for part in (first, *others))


def negation(condition: str) -> str:
    match condition.split():
        case [_]:
            return f"NOT {condition}"
        case ["NOT", name] if not name.startswith("("):
            return name
        case _:
            return f"NOT ({condition})"


def names_read(words: Iterable[str]) -> Iterator[str]:
    """Return the words of a condition that CMake reads as variables, if such variables exist."""
    previous = ""
    for word in words:
        if word not in _NO_VARIABLE and previous not in _NO_VARIABLE_NEXT:
            yield word
        previous = word


def condition_words(condition: str) -> list[str]:
    """Return the words of a condition that is one argument, as the source writes it."""
    return _WORD.findall(condition)


# -- targets ---------------------------------------------------------------------------------------


class _Path(Value, frozen=True):
    path: str


class CMakeTarget(Value, frozen=True, rename="camel"):
    """A target as CMake writes it. Paths below the build folder are relative to it."""

    name: str
    type: str
    artifacts: tuple[_Path, ...] = ()
    sources: tuple[_Path, ...] = ()


class _File(Value, frozen=True, rename="camel"):
    json_file: str
    kind: str = ""


class _Index(Value, frozen=True):
    objects: tuple[_File, ...]


class _Configuration(Value, frozen=True):
    targets: tuple[_File, ...]


class _CodeModel(Value, frozen=True):
    configurations: tuple[_Configuration, ...]


def ask(folder: Path) -> None:
    """Ask the next run of CMake for the targets. A folder that cannot be written is left alone."""
    query = folder / _API / "query" / f"{_KIND}-v2"
    with suppress(OSError):
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()


def read_targets(folder: Path) -> tuple[CMakeTarget, ...]:
    """Return the targets of the first configuration; none where CMake gave no answer."""
    reply = folder / _API / "reply"
    latest = max(reply.glob("index-*.json"), default=None)
    index = read_json(latest, _Index) if latest else None
    models = [_named(reply, file) for file in index.objects if file.kind == _KIND] if index else []
    model = read_json(models[0], _CodeModel) if models else None
    if model is None or not model.configurations:
        return ()
    return tuple(_targets(reply, model.configurations[0]))


def _targets(reply: Path, configuration: _Configuration) -> Iterator[CMakeTarget]:
    for file in configuration.targets:
        if target := read_json(_named(reply, file), CMakeTarget):
            yield target


def _named(reply: Path, file: _File) -> Path:
    return reply / Path(file.json_file).name  # never outside the folder
