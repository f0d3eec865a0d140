"""Reads the CMake language: commands and their arguments, in one pass. No command is evaluated."""

import re
from enum import StrEnum

from stoker.model.value import Value

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

    @property
    def words(self) -> list[str]:
        """The values of the arguments."""
        return [argument.value for argument in self.arguments]


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


def parse_script(text: str) -> Script:
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
