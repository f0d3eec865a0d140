"""The tools of this machine: programs, CUDA toolkits, libraries to link, and a Python.

Facts only. All programs are asked at once, so one that hangs costs its timeout and no more.
"""

import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, product
from pathlib import Path

from stoker.knowledge.libraries import library_table
from stoker.knowledge.tools import DOTTED_NUMBER, KnownProgram, launchers, programs
from stoker.machine.cuda import best_first, find_nvccs, read_toolkit
from stoker.machine.file_tree import FileTree, installed_gccs, newest_first
from stoker.machine.libraries import find_libraries
from stoker.machine.python import Probe, ask_interpreter, find_interpreter
from stoker.model.errors import StokerError
from stoker.model.machine import Tool, Toolbox
from stoker.outside import folders, process
from stoker.outside.looking import matching

ASKED_AT_ONCE = 8
_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
_CONFIGURATIONS = ("DEBUG", "RELEASE", "RELWITHDEBINFO", "MINSIZEREL")


def read_program(
    program: KnownProgram, tree: FileTree, probe: Probe, beside: tuple[str, ...]
) -> tuple[Tool, ...]:
    """Return the program on the PATH and, if different, those in the folders ``beside`` it. A
    program that a variable names is the only one: the user wants no other.
    """
    command = probe.environment.get(program.variable, "") if program.variable else ""
    if command.strip():
        return (_read_named(program, command, probe),)
    own = [str(path) for pattern in program.folders for path in tree.matching(pattern)]
    searched = (probe.environment.get("PATH", ""), *beside, *own)
    return tuple(_read(program, path, probe) for path in _find(program.names, searched))


def _find(names: Iterable[str], searched: Iterable[str]) -> list[str]:
    """Return the first of the names in each of the search paths, each file once."""
    found: dict[Path, str] = {}
    for search_path in searched:
        paths = (shutil.which(name, path=search_path) for name in names)
        if path := next(filter(None, paths), None):
            found.setdefault(Path(path).resolve(), path)
    return list(found.values())


def _read(program: KnownProgram, path: str, probe: Probe) -> Tool:
    patterns = (program.version, DOTTED_NUMBER)
    version, problem = probe.ask_version(path, *patterns, option=program.asked)
    return Tool(name=program.name, path=path, version=version, problem=problem)


def _read_named(program: KnownProgram, command: str, probe: Probe) -> Tool:
    """Return the compiler in a command such as ``ccache gcc -m64``."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        return Tool(name=program.name, path=command, problem=f"${program.variable}: {error}")
    word = next((word for word in words if Path(word).name not in launchers()), words[0])
    path = shutil.which(word, path=probe.environment.get("PATH", ""))
    if path is None:
        return Tool(name=program.name, path=word, problem=f"${program.variable} names no program")
    return _read(program, path, probe)


def read_toolbox(
    environment: Mapping[str, str],
    python: str | None = None,
    *,
    root: Path = Path("/"),
    timeout_s: float = 10.0,
) -> Toolbox:
    """Return the installed tools. ``python`` is the interpreter to build for, by default the one
    that runs stoker.
    """
    tree = FileTree(root)
    probe = Probe(environment=environment, timeout_s=timeout_s)
    executable = find_interpreter(python or sys.executable, environment)
    # pip installs programs beside an interpreter, whose folder need not be on the PATH.
    beside = tuple(str(Path(path).parent) for path in (executable, sys.executable))
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        read = partial(read_program, tree=tree, probe=probe, beside=beside)
        tools = pool.map(read, programs())
        interpreter = ask_interpreter(executable, probe)
        package_prefixes = [
            prefix
            for folder in map(Path, interpreter.package_folders)
            for pattern in library_table().search.packages
            for prefix in newest_first(matching(folder, pattern))
        ]
        # Those with a dot before their names are still being made.
        toolchains = newest_first((folders.data() / "toolchains").glob("[!.]*"))
        nvccs = find_nvccs(tree, environment, [*toolchains, *package_prefixes])
        cuda = best_first(pool.map(partial(read_toolkit, probe=probe), nvccs))
        homes = [Path(toolkit.home) for toolkit in cuda]
        prefixes = [*homes, *package_prefixes, Path(interpreter.prefix)]
        libraries = find_libraries(tree, environment, interpreter.triple, prefixes)
        return Toolbox(
            tools=tuple(
                sorted(chain.from_iterable(tools), key=lambda tool: tool.problem is not None)
            ),
            cuda=cuda,
            libraries=libraries,
            python=interpreter.installation,
            gccs=installed_gccs(environment),
            notes=tree.notes,
        )


def read_cmake_variables(cmake: Tool | None) -> frozenset[str]:
    """Return the variables that CMake knows, with ``<LANG>`` and ``<CONFIG>`` filled in."""
    if cmake is None or cmake.problem:
        return frozenset()
    try:
        listed = process.check([cmake.path, "--help-variable-list"], timeout=10)
    except StokerError:
        return frozenset()
    names = (
        line.strip().replace("<LANG>", language).replace("<CONFIG>", configuration)
        for line in listed.splitlines()
        for language, configuration in product(_LANGUAGES, _CONFIGURATIONS)
    )
    return frozenset(name for name in names if name and "<" not in name)
