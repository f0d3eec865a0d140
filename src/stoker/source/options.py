"""Reads the options, variables and languages of a tree from its CMake files.

Reads declarations and the if() blocks that contain them in the same file. Evaluates nothing: an
option with a computed name is not found, nor is the condition of an include().
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from stoker.model.source import CMakeOption, Minimum, OptionKind, ReadVariable
from stoker.model.value import Value
from stoker.source import conditions
from stoker.source.cmake import ArgumentKind, CMakeCommand, parse_script
from stoker.source.files import TreeFiles

ROOT = "CMakeLists.txt"
_REFERENCE = re.compile(r"\$(?:CACHE)?\{([A-Za-z0-9_]+)\}")
_ENVIRONMENT = re.compile(r"\bENV\{([A-Za-z0-9_]+)\}")
# A literal that names a GPU target: a flag of a compiler, not the name of a file.
_TARGET = re.compile(r"arch=compute_\d|code=sm_\d|--offload-arch=gfx|-arch=sm_\d")
_CUDA_VERSION = re.compile(r"\$?\{?\w*CUDA\w*VERSION\w*\}?", re.IGNORECASE)
# In upper case, perhaps after the name of a package; other names are a file's own business.
_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9]*_)?[A-Z][A-Z0-9_]*")
_SETTERS = {"set", "find_file", "find_library", "find_path", "find_program"}
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}(?=\.\.\.|$)")
_GPU_LANGUAGES = {"CUDA", "HIP"}
# Characters of the condition of an option, and what each part counts besides: of very deep
# nesting only the outer part is told.
_LONGEST, _COST_OF_PART = 1000, 20
_MOST_FILES = 5000


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
    own_targets: tuple[str, ...] = ()  # places of flags that name GPU targets
    packages: frozenset[str] = frozenset()  # those that find_package() looks for
    cuda_minimum: Minimum | None = None


def read_options(files: TreeFiles, folder: str = "") -> CMakeFacts:
    """Return all options that the CMake files declare: the root's first, then those of cmake/, then
    the rest. ``folder`` is where the root's CMakeLists.txt is.
    """
    root = posixpath.join(folder, ROOT)
    facts = _Facts(root)
    for file in _cmake_files(files, root):
        facts.read(file, _commands(files, file))
    return facts.result()


def _cmake_files(files: TreeFiles, root: str) -> Iterator[str]:
    """Yield the tree's own CMake files, then those of the folders it adds by name."""
    own = sorted(
        filter(_is_cmake, files.walk()),
        key=lambda file: (file != root, not file.startswith("cmake/"), file),
    )
    yield from own
    known = set(own)
    waiting = [file for file in own if file == root]
    while waiting and len(known) < _MOST_FILES:
        file = waiting.pop()
        for added in _added_folders(files, file):
            if added not in known:
                known.add(added)
                waiting.append(added)
                yield added


def _added_folders(files: TreeFiles, file: str) -> Iterator[str]:
    """Yield the CMakeLists.txt of each folder that a file adds, such as ``vendor/library``."""
    for command in parse_script(files.text(file) or "").commands:
        if command.name != "add_subdirectory" or not command.arguments:
            continue
        name = command.arguments[0].value
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), name, ROOT))
        if "$" not in name and not path.startswith(("..", "/")) and files.is_file(path):
            yield path


class _Facts:
    """Collects from the files one after another; the first place of a name counts."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._options: list[CMakeOption] = []
        self._places: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        self._languages: set[str] = set()
        self._packages: set[str] = set()
        self._targets: dict[str, None] = {}
        self._project: CMakeProject | None = None
        self._minimum: str | None = None
        self._cuda: Minimum | None = None

    def read(self, file: str, commands: tuple[CMakeCommand, ...]) -> None:
        self._options.extend(_declarations(file, commands))
        self._cuda = self._cuda or _cuda_minimum(file, commands)
        for command in commands:
            where = f"{file}:{command.line}"
            for name in _names_used(command):
                self._places.setdefault(name, where)
            self._languages.update(_gpu_languages(command))
            self._literals(command, where)
        if file == self._root:
            self._project, self._minimum = _project(commands), _minimum(commands)

    def _literals(self, command: CMakeCommand, where: str) -> None:
        for argument in command.arguments:
            if argument.kind is ArgumentKind.BRACKET:
                continue
            for name in _ENVIRONMENT.findall(argument.source):
                self._environment.setdefault(name, where)
            if command.name != "message" and _TARGET.search(argument.source):
                self._targets.setdefault(where)
        if command.name == "find_package" and command.arguments:
            self._packages.add(command.arguments[0].value)

    def result(self) -> CMakeFacts:
        variables = {name for name in self._places if _NAME.fullmatch(name)}
        return CMakeFacts(
            options=tuple(self._options),
            variables=tuple(sorted(variables - {option.name for option in self._options})),
            gpu_languages=frozenset(self._languages),
            project=self._project,
            minimum=self._minimum,
            asks=tuple(self._asks(variables)),
            own_targets=tuple(self._targets),
            packages=frozenset(self._packages),
            cuda_minimum=self._cuda,
        )

    def _asks(self, variables: set[str]) -> Iterator[ReadVariable]:
        for name, where in sorted(self._environment.items()):
            yield ReadVariable(name=name, where=where)
        declared: dict[str, CMakeOption] = {}
        for option in self._options:
            declared.setdefault(option.name, option)
        for name in sorted(variables | declared.keys()):
            if option_ := declared.get(name):
                yield ReadVariable(
                    name=name,
                    where=f"{option_.file}:{option_.line}",
                    environment=False,
                    default=option_.default,
                    within=option_.within,
                )
            else:
                yield ReadVariable(name=name, where=self._places[name], environment=False)


def _cuda_minimum(file: str, commands: Sequence[CMakeCommand]) -> Minimum | None:
    """Return the version of ``if(CUDA_VERSION VERSION_LESS 12.6) message(FATAL_ERROR ...)``."""
    for command, following in pairwise(commands):
        words = [argument.value for argument in command.arguments]
        refuses = following.name == "message" and [
            argument.value for argument in following.arguments[:1]
        ] in (["FATAL_ERROR"], ["SEND_ERROR"])
        match words:
            case [subject, "VERSION_LESS", version] if command.name in ("if", "elseif") and refuses:
                if _CUDA_VERSION.fullmatch(subject) and _VERSION.fullmatch(version):
                    return Minimum(version=version, where=f"{file}:{command.line}")
    return None


def _is_cmake(file: str) -> bool:
    return file.endswith((".cmake", f"/{ROOT}")) or file == ROOT


def _commands(files: TreeFiles, file: str) -> tuple[CMakeCommand, ...]:
    script = parse_script(files.text(file) or "")
    if problem := script.problem:
        files.note(f"{file}:{problem.line}: {problem.message}; what follows was not read")
    return script.commands


def _declarations(file: str, commands: Sequence[CMakeCommand]) -> Iterator[CMakeOption]:
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
            case name if name in ("cmake_dependent_option", "set") or name.endswith("option"):
                if option := _declaration(file, command):
                    yield replace(option, within=_within(blocks))


def _condition(command: CMakeCommand) -> str:
    text = conditions.condition_text(command.arguments)
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
    return conditions.conjunction(parts) if parts else None


def _conditions(blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the conditions from the outermost block to the innermost."""
    for branches in blocks:
        for passed in branches[:-1]:
            yield conditions.negation(passed)
        if branches[-1]:
            yield branches[-1]


def _declaration(file: str, command: CMakeCommand) -> CMakeOption | None:
    condition: str | None = None
    otherwise: str | None = None
    match command.name, [argument.value for argument in command.arguments]:
        case "option", [name, help_text, *rest]:
            kind, type_ = OptionKind.OPTION, "BOOL"
            default = _switch(rest[0] if rest else "")
        case "cmake_dependent_option", [name, help_text, value, depends, otherwise, *_]:
            kind, type_, default = OptionKind.DEPENDENT, "BOOL", _switch(value)
            condition = conditions.conjunction(depends.split(";"))
        case own, [name, help_text, value] if _is_own_option(own) and _NAME.fullmatch(name):
            # A macro of the tree's own, which projects write around option().
            kind, type_, default = OptionKind.OPTION, "STRING", value
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


def _is_own_option(command: str) -> bool:
    return command.endswith("_option") and command != "cmake_dependent_option"


def _switch(value: str) -> str:
    """Return the value that option() makes of a word; a computed value stays as it is written."""
    if "$" in value:
        return value
    return "ON" if value.upper() in {"1", "ON", "YES", "TRUE", "Y"} else "OFF"


def _names_used(command: CMakeCommand) -> Iterator[str]:
    """Return the names that a command reads or sets, among words that are not names."""
    words = [argument.source for argument in command.arguments]
    for argument in command.arguments:
        if argument.kind is not ArgumentKind.BRACKET and "{" in argument.source:
            yield from _REFERENCE.findall(argument.source)
    match command.name, words:
        case (("if" | "elseif" | "while"), _):
            yield from conditions.names_read(words)
        case "cmake_dependent_option", [_, _, _, condition, *_]:
            yield from conditions.names_read(conditions.condition_words(condition))
        case "list", [_, name, *_]:
            yield name
        case "find_package", [name, *_]:
            yield from (f"{name}_ROOT", f"{name}_DIR")
        case setter, [name, *_] if setter in _SETTERS:
            yield name


def _gpu_languages(command: CMakeCommand) -> set[str]:
    if command.name not in {"project", "enable_language"}:
        return set()
    return _GPU_LANGUAGES & {argument.value for argument in command.arguments}


def _minimum(commands: Sequence[CMakeCommand]) -> str | None:
    """Return ``3.18`` of ``cmake_minimum_required(VERSION 3.18...3.31)``."""
    wanted = (command for command in commands if command.name == "cmake_minimum_required")
    values = [argument.value for command in wanted for argument in command.arguments]
    found = _VERSION.match(values[1]) if values[:1] == ["VERSION"] and values[1:] else None
    return found[0] if found else None


def read_project(files: TreeFiles, folder: str = "") -> CMakeProject | None:
    """Return the project() of the tree's root, or of the folder that is its root for CMake."""
    return _project(parse_script(files.text(posixpath.join(folder, ROOT)) or "").commands)


def _project(commands: Sequence[CMakeCommand]) -> CMakeProject | None:
    command = next((command for command in commands if command.name == "project"), None)
    values = [argument.value for argument in command.arguments] if command else []
    if not values or "$" in values[0]:
        return None
    after = values[values.index("VERSION") + 1 :] if "VERSION" in values else []
    version = after[0] if after and "$" not in after[0] else None
    return CMakeProject(name=values[0], version=version)
