"""Reads the options, variables and languages of a tree from its CMake files.

Reads declarations and the if() blocks that contain them in the same file. Evaluates nothing: an
option with a computed name is not found, nor is the condition of an include().
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from stoker.model.source import (
    CMakeOption,
    CudaCode,
    Minimum,
    NamedTarget,
    NativeCode,
    OptionKind,
    ReadVariable,
)
from stoker.model.value import Value
from stoker.source import conditions
from stoker.source.cmake import ArgumentKind, CMakeCommand, parse_script
from stoker.source.cmake_calls import Calls
from stoker.source.cmake_code import (
    compiles_device_code,
    cuda_code,
    named_targets,
    native_code,
    refused_below,
    required_cuda,
    requires_cuda,
)
from stoker.source.cmake_files import ROOT, certain_files, cmake_files
from stoker.source.files import TreeFiles

_REFERENCE = re.compile(r"\$(?:CACHE)?\{([A-Za-z0-9_]+)\}")
_GUARD = re.compile(r"\w+(?=$| AND )")  # the outermost condition, if it is one variable
_ENVIRONMENT = re.compile(r"\bENV\{([A-Za-z0-9_]+)\}")
# In upper case, perhaps after the name of a package; other names are a file's own business.
_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9]*_)?[A-Z][A-Z0-9_]*")
_FINDERS = {"find_file", "find_library", "find_path", "find_program"}
_CHANGES = {"APPEND", "PREPEND", "INSERT", "REMOVE_ITEM", "REMOVE_DUPLICATES", "SORT", "REVERSE"}
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}(?=\.\.\.|$)")
_SUMMARY = re.compile(r"summary[^/]*$", re.IGNORECASE)
_GPU_LANGUAGES = {"CUDA", "HIP"}


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
    asks: tuple[ReadVariable, ...] = ()  # of CMake and of the environment
    own_targets: tuple[NamedTarget, ...] = ()
    native: tuple[NativeCode, ...] = ()
    device_source: str | None = None  # where a source for GPUs is listed
    cuda_code: CudaCode = CudaCode.NONE
    requires_cuda: bool = False  # every configuration does
    cuda_switches: frozenset[str] = frozenset()  # the conditions under which CUDA is enabled
    packages: frozenset[str] = frozenset()  # those that find_package() looks for
    cuda_minimum: Minimum | None = None
    files: tuple[str, ...] = ()
    printed: frozenset[str] = frozenset()  # read by files that print a summary, and nowhere else


def read_options(files: TreeFiles, folder: str = "", *, alone: bool = False) -> CMakeFacts:
    """Return all options that the CMake files declare: the root's first, then those of cmake/, then
    the rest. ``folder`` is where the root's CMakeLists.txt is; ``alone``, if the rest of the tree
    is no part of the build.
    """
    root = posixpath.join(folder, ROOT)
    read = {file: _commands(files, file) for file in cmake_files(files, root, alone=alone)}
    facts = _Facts(root, Calls(command for commands in read.values() for command in commands))
    facts.certain = certain_files(read, root)
    facts.projects = {file for file in read if root not in read and _project(read[file])}
    for file, commands in read.items():
        facts.read(file, commands)
    return replace(facts.result(), files=tuple(read))


class _Facts:
    """Collects from the files one after another; the first place of a name counts."""

    def __init__(self, root: str, calls: Calls) -> None:
        self._root = root
        self._calls = calls
        self.certain: set[str] = {root}  # files that every configuration reads
        self.projects: set[str] = set()  # files with a project(), if the tree has no root
        self._options: list[CMakeOption] = []
        self._choices: dict[str, tuple[str, ...]] = {}
        self._names: set[str] = set()  # read or set
        self._used: set[str] = set()  # read by a file that does not only print
        self._places: dict[str, str] = {}  # of the first read
        self._assigned: set[str] = set()  # by the root, before anything reads them
        self._values: dict[str, str] = {}  # variables that are set to one literal
        self._environment: dict[str, str] = {}
        self._compared: dict[str, dict[str, None]] = {}
        self._overwritten: set[str] = set()  # variables of the environment that a file sets
        self._languages: set[str] = set()
        self._packages: list[tuple[str, CMakeCommand]] = []
        self._targets: dict[NamedTarget, None] = {}
        self._native: list[NativeCode] = []
        self._device_source: str | None = None
        self._cuda_code: set[CudaCode] = set()
        self._requiring: set[str] = set()  # files that cannot be configured without CUDA
        self._cuda_switches: set[str] = set()
        self._project: CMakeProject | None = None
        self._minimum: str | None = None
        self._cuda: Minimum | None = None

    def read(self, file: str, commands: tuple[CMakeCommand, ...]) -> None:
        self._cuda = self._cuda or refused_below(file, commands)
        self._uses(file, commands)
        for each in conditions.enclosed(commands):
            where = f"{file}:{each.command.line}"
            for declaring in self._calls.expand(each.command) or (each.command,):
                self._declare(file, declaring, each.within)
            if each.command.name in ("project", "enable_language"):
                self._languages |= _GPU_LANGUAGES & set(each.command.words)
            named = each if file in self.certain else replace(each, conditional=True)
            self._targets |= dict.fromkeys(named_targets(named, where))
            if use := native_code(each, where):
                self._native.append(use)
            if self._device_source is None and compiles_device_code(each.command):
                self._device_source = where
            if requires_cuda(each):
                self._requiring.add(file)
            if compiled := cuda_code(each.command):
                self._cuda_code.add(compiled)
                guard = _GUARD.match(each.within or "")
                if guard and compiled is not CudaCode.UNKNOWN:
                    self._cuda_switches.add(guard[0])
            if each.command.name == "find_package" and each.command.arguments:
                self._packages.append((file, each.command))
        if file == self._root:
            self._project, self._minimum = _project(commands), _minimum(commands)

    def _uses(self, file: str, commands: tuple[CMakeCommand, ...]) -> None:
        """Note which names are read and set. A name that a file sets before it reads it, outside
        of any block, is no input of the file; one that the root sets is no input at all.
        """
        assigned = set(self._assigned)
        plain = {id(each.command) for each in conditions.enclosed(commands) if not each.conditional}
        for command in commands:
            read, written = set(_names_read(command)), set(_names_set(command))
            self._names |= read | written
            self._used |= set() if _SUMMARY.search(file) else read
            for name in read - assigned:
                self._places.setdefault(name, f"{file}:{command.line}")
            if command.name == "set" and id(command) in plain:
                assigned |= written - read - self._places.keys()
            for name, value in _literal_set(command):
                self._values.setdefault(name, value)
            if command.name in ("if", "elseif") and file in self.certain:
                for name, word in conditions.compared(command.words):
                    self._compared.setdefault(name, {})[word] = None
            writes = command.name in ("set", "unset")
            for argument in command.arguments[:1] if writes else ():
                self._overwritten.update(_ENVIRONMENT.findall(argument.source))
            for argument in command.arguments[writes:]:
                if argument.kind is not ArgumentKind.BRACKET:
                    for name in _ENVIRONMENT.findall(argument.source):
                        self._environment.setdefault(name, f"{file}:{command.line}")
        if file == self._root:
            self._assigned = assigned

    def _declare(self, file: str, command: CMakeCommand, within: str | None) -> None:
        match command.name, command.words:
            case "set_property", ["CACHE", name, "PROPERTY", "STRINGS", *choices]:
                self._choices.setdefault(name, tuple(choices))
            case name, _ if name in ("cmake_dependent_option", "set") or name.endswith("option"):
                if option := _declaration(file, command):
                    self._options.append(replace(option, within=within))

    def result(self) -> CMakeFacts:
        variables = {name for name in self._names if _NAME.fullmatch(name)}
        self._options = [
            replace(option, choices=self._listed(self._choices.get(option.name, ())))
            for option in self._options
        ]
        return CMakeFacts(
            options=tuple(self._options),
            variables=tuple(sorted(variables - {option.name for option in self._options})),
            gpu_languages=frozenset(self._languages),
            project=self._project,
            minimum=self._minimum,
            asks=tuple(self._asks(variables & self._places.keys())),
            own_targets=tuple(self._targets),
            native=tuple(self._native),
            device_source=self._device_source,
            cuda_code=next((kind for kind in CudaCode if kind in self._cuda_code), CudaCode.NONE),
            requires_cuda=bool(self.certain & self._requiring)
            or (bool(self.projects) and self.projects <= self._requiring),
            cuda_switches=frozenset(self._cuda_switches),
            packages=frozenset(command.arguments[0].value for _, command in self._packages),
            printed=frozenset(variables - self._used - {option.name for option in self._options}),
            cuda_minimum=self._cuda or required_cuda(self._packages, self._values),
        )

    def _listed(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        """Return choices one by one, also those of a variable that is set to a literal list."""
        words = (self._values.get(choice[2:-1], choice) for choice in choices)
        return tuple(part for word in words for part in word.split(";") if part)

    def _asks(self, variables: set[str]) -> Iterator[ReadVariable]:
        for name, where in sorted(self._environment.items()):
            if name not in self._overwritten:
                yield ReadVariable(name=name, where=where)
        declared: dict[str, CMakeOption] = {}
        for option in sorted(self._options, key=lambda option: option.within is not None):
            declared.setdefault(option.name, option)
        for name in sorted(variables | declared.keys()):
            if option_ := declared.get(name):
                yield ReadVariable(
                    name=name,
                    where=option_.where,
                    environment=False,
                    default=option_.default,
                    within=option_.within,
                    compared=tuple(self._compared.get(name, ())),
                )
            else:
                yield ReadVariable(
                    name=name,
                    where=self._places[name],
                    environment=False,
                    compared=tuple(self._compared.get(name, ())),
                )


def _commands(files: TreeFiles, file: str) -> tuple[CMakeCommand, ...]:
    script = parse_script(files.text(file) or "")
    if problem := script.problem:
        files.note(f"{file}:{problem.line}: {problem.message}; what follows was not read")
    return script.commands


def _declaration(file: str, command: CMakeCommand) -> CMakeOption | None:
    condition: str | None = None
    otherwise: str | None = None
    match command.name, command.words:
        case "option", [name, help_text, *rest]:
            kind, type_ = OptionKind.OPTION, "BOOL"
            default = _switch(rest[0] if rest else "")
        case "cmake_dependent_option", [name, help_text, value, depends, otherwise, *_]:
            kind, type_, default = OptionKind.DEPENDENT, "BOOL", _switch(value)
            condition = conditions.conjunction(depends.split(";"))
        case "cmake_dependent_option", _:
            return None
        case own, [name, help_text, value] if own.endswith("_option") and _NAME.fullmatch(name):
            # A macro of the tree's own, which projects write around option().
            kind, default = OptionKind.OPTION, value
            type_ = "BOOL" if value in ("ON", "OFF") else "STRING"
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


def _names_read(command: CMakeCommand) -> Iterator[str]:
    """Yield the names that a command reads, among words that are not names."""
    words = [argument.source for argument in command.arguments]
    for argument in command.arguments:
        if argument.kind is not ArgumentKind.BRACKET and "{" in argument.source:
            yield from _REFERENCE.findall(argument.source)
    match command.name, words:
        case (("if" | "elseif" | "while"), _):
            yield from conditions.names_read(words)
        case "cmake_dependent_option", [_, _, _, condition, *_]:
            yield from conditions.names_read(conditions.condition_words(condition))
        case "list", [change, name, *_] if change not in _CHANGES:
            yield name
        case "find_package", [name, *_]:
            yield from (f"{name}_ROOT", f"{name}_DIR")
        case finder, [name, *_] if finder in _FINDERS:
            yield name  # a value from outside is kept


def _names_set(command: CMakeCommand) -> Iterator[str]:
    match command.name, [argument.source for argument in command.arguments]:
        case "set", [name, *_]:
            yield name
        case "list", [change, name, *_] if change in _CHANGES:
            yield name


def _literal_set(command: CMakeCommand) -> Iterator[tuple[str, str]]:
    match command.name, command.words:
        case "set", [name, *values] if values and not any("$" in value for value in values):
            if not {"CACHE", "PARENT_SCOPE"} & set(values):
                yield name, ";".join(values)


def _minimum(commands: Sequence[CMakeCommand]) -> str | None:
    """Return ``3.18`` of ``cmake_minimum_required(VERSION 3.18...3.31)``."""
    wanted = (command for command in commands if command.name == "cmake_minimum_required")
    values = [word for command in wanted for word in command.words]
    found = _VERSION.match(values[1]) if values[:1] == ["VERSION"] and values[1:] else None
    return found[0] if found else None


def read_project(files: TreeFiles) -> CMakeProject | None:
    """Return the project() of the tree's root."""
    return _project(parse_script(files.text(ROOT) or "").commands)


def _project(commands: Sequence[CMakeCommand]) -> CMakeProject | None:
    command = next((command for command in commands if command.name == "project"), None)
    values = command.words if command else []
    if not values or "$" in values[0]:
        return None
    after = values[values.index("VERSION") + 1 :] if "VERSION" in values else []
    version = after[0] if after and "$" not in after[0] else None
    return CMakeProject(name=values[0], version=version)
