"""Reads the options, variables and languages of a tree from its CMake files.

Reads declarations and the if() blocks that contain them in the same file. Evaluates nothing: an
option with a computed name is not found, nor is the condition of an include().
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from stoker.model.source import CMakeOption, OptionKind
from stoker.model.value import Value
from stoker.source import cmake_language
from stoker.source.cmake_language import ArgumentKind, Command, parse
from stoker.source.files import TreeFiles

ROOT = "CMakeLists.txt"
_REFERENCE = re.compile(r"\$(?:CACHE)?\{([A-Za-z0-9_]+)\}")
# In upper case, perhaps after the name of a package; other names are a file's own business.
_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9]*_)?[A-Z][A-Z0-9_]*")
_SETTERS = {"set", "find_file", "find_library", "find_path", "find_program"}
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}(?=\.\.\.|$)")
_GPU_LANGUAGES = {"CUDA", "HIP"}
# Characters of the condition of an option, and what each part counts besides: of very deep
# nesting only the outer part is told.
_LONGEST, _COST_OF_PART = 1000, 20


class CMakeProject(Value, frozen=True, kw_only=True):
    """The root's project(). ``version`` is set only if it is a literal."""

    name: str
    version: str | None


class CMakeFacts(Value, frozen=True, kw_only=True):
    """``variables`` are the names that are read or set but not declared as an option."""

    options: tuple[CMakeOption, ...]
    variables: tuple[str, ...]
    gpu_languages: frozenset[str]
    project: CMakeProject | None
    minimum: str | None = None  # the oldest CMake that the root accepts


def read_options(files: TreeFiles) -> CMakeFacts:
    """Return all options that the CMake files declare: the root's first, then those of cmake/, then
    the rest.
    """
    options: list[CMakeOption] = []
    names: set[str] = set()
    languages: set[str] = set()
    project: CMakeProject | None = None
    minimum: str | None = None
    for file in sorted(filter(_is_cmake, files.walk()), key=_reading_order):
        commands = _commands(files, file)
        options.extend(_declarations(file, commands))
        for command in commands:
            names.update(_names_used(command))
            languages.update(_gpu_languages(command))
        if file == ROOT:
            project, minimum = _project(commands), _minimum(commands)
    variables = {name for name in names if _NAME.fullmatch(name)}
    return CMakeFacts(
        options=tuple(options),
        variables=tuple(sorted(variables - {option.name for option in options})),
        gpu_languages=frozenset(languages),
        project=project,
        minimum=minimum,
    )


def _is_cmake(file: str) -> bool:
    return file.endswith((".cmake", f"/{ROOT}")) or file == ROOT


def _reading_order(file: str) -> tuple[bool, bool, str]:
    return file != ROOT, not file.startswith("cmake/"), file


def _commands(files: TreeFiles, file: str) -> tuple[Command, ...]:
    script = parse(files.text(file) or "")
    if problem := script.problem:
        files.note(f"{file}:{problem.line}: {problem.message}; what follows was not read")
    return script.commands


def _declarations(file: str, commands: Sequence[Command]) -> Iterator[CMakeOption]:
    # For each open if(), the conditions of its branches so far; an else() has none of its own.
    blocks: list[list[str]] = []
    for command in commands:
        match command.name:
            case "if":
                blocks.append([_condition(command)])
            case "elseif" if blocks:
                blocks[-1].append(_condition(command))
            case "else" if blocks:
                blocks[-1].append("")
            case "endif" if blocks:
                blocks.pop()
            case "option" | "cmake_dependent_option" | "set":
                if option := _declaration(file, command):
                    yield replace(option, within=_within(blocks))


def _condition(command: Command) -> str:
    text = cmake_language.condition_text(command.arguments)
    return text if len(text) <= _LONGEST else "..."


def _within(blocks: Sequence[Sequence[str]]) -> str | None:
    """Return the condition under which the innermost branch is reached."""
    parts: list[str] = []
    room = _LONGEST
    for part in _conditions(blocks):
        room -= len(part) + _COST_OF_PART
        if room < 0:
            parts.append("...")
            break
        parts.append(part)
    return cmake_language.conjunction(parts) if parts else None


def _conditions(blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the conditions from the outermost block to the innermost."""
    for branches in blocks:
        for passed in branches[:-1]:
            yield cmake_language.negation(passed)
        if branches[-1]:
            yield branches[-1]


def _declaration(file: str, command: Command) -> CMakeOption | None:
    condition: str | None = None
    otherwise: str | None = None
    match command.name, [argument.value for argument in command.arguments]:
        case "option", [name, help_text, *rest]:
            kind, type_ = OptionKind.OPTION, "BOOL"
            default = _switch(rest[0] if rest else "")
        case "cmake_dependent_option", [name, help_text, value, depends, otherwise, *_]:
            kind, type_, default = OptionKind.DEPENDENT, "BOOL", _switch(value)
            condition = cmake_language.conjunction(depends.split(";"))
        # With FORCE, or as INTERNAL, the tree sets it itself: that is no choice.
        case "set", [name, *values, "CACHE", type_, help_text] if type_ != "INTERNAL":
            kind, default = OptionKind.CACHED, ";".join(values)
        case _:
            return None
    if "$" in name:
        return None
    return CMakeOption(
        name=name,
        kind=kind,
        type=type_,
        default=default,
        condition=condition,
        otherwise=otherwise,
        help=" ".join(help_text.split()),
        file=file,
        line=command.line,
    )


def _switch(value: str) -> str:
    """Return the value that option() makes of a word; a computed value stays as it is written."""
    if "$" in value:
        return value
    return "ON" if value.upper() in {"1", "ON", "YES", "TRUE", "Y"} else "OFF"


def _names_used(command: Command) -> Iterator[str]:
    """Return the names that a command reads or sets, among words that are not names."""
    words = [argument.source for argument in command.arguments]
    for argument in command.arguments:
        if argument.kind is not ArgumentKind.BRACKET and "{" in argument.source:
            yield from _REFERENCE.findall(argument.source)
    match command.name, words:
        case (("if" | "elseif" | "while"), _):
            yield from cmake_language.names_read(words)
        case "cmake_dependent_option", [_, _, _, condition, *_]:
            yield from cmake_language.names_read(cmake_language.condition_words(condition))
        case "list", [_, name, *_]:
            yield name
        case "find_package", [name, *_]:
            yield from (f"{name}_ROOT", f"{name}_DIR")
        case setter, [name, *_] if setter in _SETTERS:
            yield name


def _gpu_languages(command: Command) -> set[str]:
    if command.name not in {"project", "enable_language"}:
        return set()
    return _GPU_LANGUAGES & {argument.value for argument in command.arguments}


def _minimum(commands: Sequence[Command]) -> str | None:
    """Return ``3.18`` of ``cmake_minimum_required(VERSION 3.18...3.31)``."""
    wanted = (command for command in commands if command.name == "cmake_minimum_required")
    values = [argument.value for command in wanted for argument in command.arguments]
    found = _VERSION.match(values[1]) if values[:1] == ["VERSION"] and values[1:] else None
    return found[0] if found else None


def _project(commands: Sequence[Command]) -> CMakeProject | None:
    command = next((command for command in commands if command.name == "project"), None)
    values = [argument.value for argument in command.arguments] if command else []
    if not values or "$" in values[0]:
        return None
    after = values[values.index("VERSION") + 1 :] if "VERSION" in values else []
    version = after[0] if after and "$" not in after[0] else None
    return CMakeProject(name=values[0], version=version)
