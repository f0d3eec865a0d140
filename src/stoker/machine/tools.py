"""The tools of this machine: programs, CUDA toolkits, Python interpreters, and libraries to link.

Which libraries to look for is written in knowledge/libraries.toml. Whether one will do is decided
by ``stoker.plan``.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, product
from pathlib import Path

from stoker.knowledge.packages import (
    DOTTED_NUMBER,
    KnownProgram,
    LibraryRow,
    launchers,
    programs,
    table,
)
from stoker.machine.file_tree import FileTree, newest_first
from stoker.machine.python import Interpreter, Probe, ask_interpreter, find_interpreter
from stoker.model.errors import StokerError
from stoker.model.machine import CudaToolkit, Library, Tool, Toolbox
from stoker.outside import folders, process

# The linker's name is best; pip packages have only the loader's, which ends with a number.
SUFFIXES = (".so", ".dylib", ".so.", ".a")
FILE_NAME = re.compile(r"(lib.+?)(\.so|\.dylib|\.a|\.so\.)[\d.]*", re.ASCII)

Parts = tuple[Path | None, Path | None]  # header and library


HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
SYSTEM_HOMES = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit")
ASKED_AT_ONCE = 8
_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
_CONFIGURATIONS = ("DEBUG", "RELEASE", "RELWITHDEBINFO", "MINSIZEREL")


def find_libraries(
    tree: FileTree, environment: Mapping[str, str], triple: str, prefixes: Iterable[Path]
) -> tuple[Library, ...]:
    """Return the libraries. ``prefixes`` are searched before the system's own; ``triple`` is that
    of ``lib/<triple>``.
    """
    finder = _Finder(tree, environment, triple, prefixes)
    found = (finder.find(row) for row in table().library)
    return tuple(library for library in found if library is not None)


class _Finder:
    """Searches the same folders for every library, so it reads each of them once."""

    def __init__(
        self,
        tree: FileTree,
        environment: Mapping[str, str],
        triple: str,
        prefixes: Iterable[Path],
    ):
        self._tree = tree
        self._environment = environment
        self._triple = triple
        self._indexes: dict[Path, dict[str, Path]] = {}
        search = table().search
        self._includes = [name.format(triple=triple) for name in search.includes]
        self._libraries = [name.format(triple=triple) for name in search.libraries]
        self._first = [*self._named(search.prefix_variables), *prefixes]
        self._last = self._matching(search.prefixes)

    def find(self, row: LibraryRow) -> Library | None:
        """Return the first place that has both parts of a library, else the parts that exist."""
        parts = [self._look(row, folders) for folders in self._places(row)]
        headers = [header for header, _ in parts if header]
        libraries = [library for _, library in parts if library]
        if not headers and not libraries:
            return None
        anywhere = (next(iter(headers), None), next(iter(libraries), None))
        header, library = next((part for part in parts if all(part)), anywhere)
        return Library(
            name=row.name,
            version=_read_version(row, header) if header else None,
            header=str(header) if header else None,
            library=str(library) if library else None,
        )

    def _places(self, row: LibraryRow) -> Iterator[list[Path]]:
        """Return the folders to search together: variables may name the two parts of a library
        separately.
        """
        yield self._named(row.variables)
        for folder in (*self._first, *self._matching(row.places), *self._last):
            yield [folder]

    def _named(self, variables: Iterable[str]) -> list[Path]:
        """Return the folders that environment variables name, or the folders of the files they
        name.
        """
        values = (self._environment.get(variable, "") for variable in variables)
        paths = [Path(word) for value in values for word in re.split("[:;]", value) if word]
        return [
            path.parent if os.access(path, os.F_OK) and path.is_file() else path for path in paths
        ]

    def _matching(self, patterns: Iterable[str]) -> list[Path]:
        filled = (pattern.format(triple=self._triple) for pattern in patterns)
        return [path for pattern in filled for path in self._tree.matching(pattern)]

    def _look(self, row: LibraryRow, folders: list[Path]) -> Parts:
        header = next((path for folder in folders for path in self._headers(row, folder)), None)
        # A library of headers only is found by its header.
        if not row.libraries:
            return header, header
        library = next((path for folder in folders for path in self._files(row, folder)), None)
        return header, library

    def _headers(self, row: LibraryRow, folder: Path) -> Iterator[Path]:
        for name in row.headers:
            for base in _readable(folder, self._includes):
                yield from sorted(base.glob(name))

    def _files(self, row: LibraryRow, folder: Path) -> Iterator[Path]:
        for name in row.libraries:
            inner, _, stem = name.rpartition("/")
            for base in _readable(folder, self._libraries):
                for holder in sorted(base.glob(inner)) if inner else [base]:
                    index = self._index(holder)
                    if path := index.get(stem if "." in stem else f"lib{stem}"):
                        yield path

    def _index(self, folder: Path) -> dict[str, Path]:
        """Return a folder's files by name, and libraries also by their name without suffix."""
        if folder not in self._indexes:
            self._indexes[folder] = _index_of(folder)
        return self._indexes[folder]


def _readable(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    paths = (folder / name for name in names)
    return (path for path in paths if os.access(path, os.R_OK | os.X_OK))


def _index_of(folder: Path) -> dict[str, Path]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    matches = [match for name in names if (match := FILE_NAME.fullmatch(name))]
    best_last = sorted(
        matches, key=lambda match: (SUFFIXES.index(match[2]), len(match[0])), reverse=True
    )
    index = {name: folder / name for name in names}
    return index | {match[1]: folder / match[0] for match in best_last}


def _read_version(row: LibraryRow, header: Path) -> str | None:
    for path in (header, *(header.parent / name for name in row.version_files)):
        with suppress(OSError):
            if version := row.version(path.read_text(errors="replace")):
                return version
    return None


# -- programs --------------------------------------------------------------------------------------
# Finds the programs a build may use, each in its role, and asks them for their versions.


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
    version, problem = probe.ask_version(path, program.version, DOTTED_NUMBER)
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


# -- cuda ------------------------------------------------------------------------------------------
# Finds CUDA toolkits and asks each nvcc for its version. Other modules choose one.


def find_nvccs(tree: FileTree, probe: Probe, homes: Iterable[Path]) -> list[Path]:
    """Return the compilers in the order in which a build searches for them, each file once;
    ``homes`` are last.
    """
    found: dict[Path, Path] = {}
    for nvcc in _candidates(tree, probe, homes):
        if os.access(nvcc, os.X_OK):
            found.setdefault(nvcc.resolve(), nvcc)
    return list(found.values())


def _candidates(tree: FileTree, probe: Probe, homes: Iterable[Path]) -> Iterator[Path]:
    for variable in HOME_VARIABLES:
        if home := probe.environment.get(variable):
            nvcc = Path(home) / "bin/nvcc"
            if not os.access(nvcc, os.X_OK):
                tree.note(f"${variable} is {home}, where there is no bin/nvcc that can be run")
            yield nvcc
    if on_path := shutil.which("nvcc", path=probe.environment.get("PATH", "")):
        yield Path(on_path)
    system = (home for pattern in SYSTEM_HOMES for home in tree.matching(pattern))
    yield from (home / "bin/nvcc" for home in (*system, *homes))


def read_toolkit(nvcc: Path, probe: Probe) -> CudaToolkit:
    version, problem = probe.ask_version(nvcc, r"release (\d+\.\d+)")
    if problem:
        home = nvcc.resolve().parent.parent
        return CudaToolkit(home=str(home), nvcc=str(nvcc), version=None, problem=problem)
    home = _ask_home(nvcc, probe)
    own = home / "bin/nvcc"
    return CudaToolkit(
        home=str(home),
        nvcc=str(own if os.access(own, os.X_OK) else nvcc),
        version=version,
        archs=parse_archs(probe.ask([nvcc, "--list-gpu-code"]).printed),
    )


def best_first(toolkits: Iterable[CudaToolkit]) -> tuple[CudaToolkit, ...]:
    """Return each home once, in the given order, with those that do not work at the end."""
    by_home: dict[str, CudaToolkit] = {}
    for toolkit in toolkits:
        by_home.setdefault(toolkit.home, toolkit)
    return tuple(sorted(by_home.values(), key=lambda toolkit: toolkit.problem is not None))


def _ask_home(nvcc: Path, probe: Probe) -> Path:
    """Return the folder that the compiler reports: the file on the PATH may be a script."""
    printed = probe.ask([nvcc, "--dryrun", "-x", "cu", "/dev/null"]).printed
    found = re.search(r"^#\$ TOP=(.+)$", printed, re.MULTILINE)
    told = Path(found[1].strip()) if found else None
    return told.resolve() if told and told.is_dir() else nvcc.resolve().parent.parent


def parse_archs(printed: str) -> tuple[str, ...]:
    """Return the architectures: ``sm_90a`` is 9.0a, ``sm_120`` is 12.0; the last digit is the minor
    version.
    """
    found = set(re.findall(r"\bsm_(\d{1,3})(\d)([a-z]?)\b", printed, re.ASCII))
    ordered = sorted(found, key=lambda arch: (int(arch[0]), int(arch[1]), arch[2]))
    return tuple(f"{major}.{minor}{suffix}" for major, minor, suffix in ordered)


# -- tools -----------------------------------------------------------------------------------------
# Everything here that a build could use: programs, CUDA toolkits, libraries, a Python.
#
# Facts only. All programs are asked at once, so one that hangs costs its timeout_s and no more.


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
