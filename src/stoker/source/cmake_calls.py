"""Expands calls of functions and macros that a tree defines around option() and set(... CACHE ...),
so that options with computed names are found.

Replaces parameters, and variables that the function sets from them. Evaluates no condition: all
declarations in the body count.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from stoker.model.value import Value
from stoker.source.cmake import Argument, ArgumentKind, CMakeCommand

_ENDS = {"endfunction": "function", "endmacro": "macro"}
_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_]+)\}")
_MOST_DEPTH = 4  # calls inside calls
_MOST_COMMANDS = 50_000  # of all calls of a tree
_LONGEST = 2000  # characters of a value


class _Definition(Value, frozen=True, kw_only=True):
    parameters: tuple[str, ...]
    body: tuple[CMakeCommand, ...]


class Calls:
    """The functions and macros of a tree that declare options."""

    def __init__(self, commands: Iterable[CMakeCommand]) -> None:
        self._known = _declaring(_definitions(commands))
        self._left = _MOST_COMMANDS

    def expand(self, command: CMakeCommand) -> tuple[CMakeCommand, ...] | None:
        """Return the declarations that a call makes; ``None`` if it is no call that declares."""
        if command.name not in self._known:
            return None
        return tuple(self._called(command, _MOST_DEPTH))

    def _called(self, call: CMakeCommand, depth: int) -> Iterator[CMakeCommand]:
        definition = self._known[call.name]
        given = call.words
        values = dict(zip(definition.parameters, given, strict=False))
        values["ARGN"] = ";".join(given[len(definition.parameters) :])
        values["ARGV"] = ";".join(given)
        for command in definition.body:
            self._left -= 1
            if self._left < 0:
                return
            arguments = tuple(_filled(command.arguments, values))
            filled = replace(command, arguments=arguments, line=call.line)
            if _declares(command):
                yield filled
            elif command.name in self._known and depth:
                yield from self._called(filled, depth - 1)
            else:
                _assign(filled, values)


def _definitions(commands: Iterable[CMakeCommand]) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    head: CMakeCommand | None = None
    body: list[CMakeCommand] = []
    for command in commands:
        if command.name in ("function", "macro") and command.arguments:
            head, body = command, []
        elif head and _ENDS.get(command.name) == head.name:
            name, *parameters = head.words
            definition = _Definition(parameters=tuple(parameters), body=tuple(body))
            found.setdefault(name.lower(), definition)
            head = None
        elif head:
            body.append(command)
    return found


def _declaring(definitions: Mapping[str, _Definition]) -> dict[str, _Definition]:
    """Return the definitions that declare options, themselves or by others that they call."""
    found = {n: d for n, d in definitions.items() if any(_declares(c) for c in d.body)}
    grown = True
    while grown:
        callers = {
            name: definition
            for name, definition in definitions.items()
            if name not in found and any(command.name in found for command in definition.body)
        }
        found |= callers
        grown = bool(callers)
    return found


def _declares(command: CMakeCommand) -> bool:
    """Tell whether a command in a body declares an option whose name is an argument."""
    match command.name, command.words:
        case (("option" | "cmake_dependent_option"), [name, *_]):
            return "${" in name
        case "set", [name, *values]:
            return "${" in name and "CACHE" in values
        case "set_property", ["CACHE", name, *_]:
            return "${" in name
    return False


def _filled(arguments: tuple[Argument, ...], values: Mapping[str, str]) -> Iterator[Argument]:
    """Yield the arguments with values in place of references; unquoted lists are taken apart."""
    for argument in arguments:
        if argument.kind is ArgumentKind.BRACKET or "${" not in argument.source:
            yield argument
            continue
        text = _REFERENCE.sub(lambda found: values.get(found[1], found[0]), argument.source)
        text = text[:_LONGEST]
        if argument.kind is ArgumentKind.UNQUOTED and re.search(r"[;\s]", text):
            # A value with blanks stays one argument, as CMake passes it on.
            parts = text.split(";") if ";" in text else [text]
            yield from (Argument(kind=ArgumentKind.QUOTED, source=f'"{part}"') for part in parts)
        else:
            yield replace(argument, source=text)


def _assign(command: CMakeCommand, values: dict[str, str]) -> None:
    """Keep what a body computes from its parameters."""
    match command.name, command.words:
        case "set", [name, *given] if not {"CACHE", "PARENT_SCOPE"} & set(given):
            values[name] = ";".join(given)
        case "string", ["TOUPPER", text, name]:
            values[name] = text.upper()
        case "string", ["TOLOWER", text, name]:
            values[name] = text.lower()
        case "string", ["REPLACE", old, new, name, *given] if old:
            values[name] = ";".join(given).replace(old, new)[:_LONGEST]
