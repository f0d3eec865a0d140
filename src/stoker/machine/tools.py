"""Everything here that a build could use: programs, CUDA toolkits, libraries, a Python.

Facts only. All programs are asked at once, so one that hangs costs its timeout_s and no more.
"""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, product
from pathlib import Path

from stoker.knowledge.libraries import table
from stoker.knowledge.tools import programs
from stoker.machine.cuda import best_first, find_nvccs, read_toolkit
from stoker.machine.file_tree import FileTree, newest_first
from stoker.machine.interpreter import Interpreter, ask_interpreter, find_interpreter
from stoker.machine.libraries import find_libraries
from stoker.machine.probe import Probe
from stoker.machine.programs import read_program
from stoker.model.errors import StokerError
from stoker.model.machine import Tool, Toolbox
from stoker.outside import folders, process

ASKED_AT_ONCE = 8
_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
_CONFIGURATIONS = ("DEBUG", "RELEASE", "RELWITHDEBINFO", "MINSIZEREL")


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
        package_prefixes = list(_package_prefixes(interpreter))
        # Those with a dot before their names are still being made.
        toolchains = newest_first((folders.data() / "toolchains").glob("[!.]*"))
        nvccs = find_nvccs(tree, probe, [*toolchains, *package_prefixes])
        cuda = best_first(pool.map(partial(read_toolkit, probe=probe), nvccs))
        homes = [Path(toolkit.home) for toolkit in cuda]
        prefixes = [*homes, *package_prefixes, Path(interpreter.prefix)]
        libraries = find_libraries(tree, environment, interpreter.triple, prefixes)
        return Toolbox(
            tools=_usable_first(tools),
            cuda=cuda,
            libraries=libraries,
            python=interpreter.installation,
            notes=tree.notes,
        )


def _package_prefixes(interpreter: Interpreter) -> Iterator[Path]:
    for folder in map(Path, interpreter.package_folders):
        for pattern in table().search.packages:
            yield from newest_first(folder.glob(pattern))


def _usable_first(found: Iterator[tuple[Tool, ...]]) -> tuple[Tool, ...]:
    return tuple(sorted(chain.from_iterable(found), key=lambda tool: tool.problem is not None))


def read_cmake_variables(cmake: Tool | None) -> frozenset[str]:
    """Return the variables that CMake knows, with ``<LANG>`` and ``<CONFIG>`` filled in."""
    if cmake is None or cmake.problem:
        return frozenset()
    try:
        listed = process.check([cmake.path, "--help-variable-list"], timeout=10)
    except StokerError:
        return frozenset()
    return frozenset(name for line in listed.splitlines() for name in _written_out(line.strip()))


def _written_out(name: str) -> list[str]:
    names = [
        name.replace("<LANG>", language).replace("<CONFIG>", configuration)
        for language, configuration in product(_LANGUAGES, _CONFIGURATIONS)
    ]
    return [name for name in dict.fromkeys(names) if name and "<" not in name]
