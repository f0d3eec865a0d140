"""Finds the programs a build may use, each in its role, and asks them for their versions."""

import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from stoker.knowledge.tools import DOTTED_NUMBER, Program, launchers
from stoker.machine.file_tree import FileTree
from stoker.machine.probe import Probe
from stoker.model.machine import Tool


def read_program(
    program: Program, tree: FileTree, probe: Probe, beside: tuple[str, ...]
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
    for folders in searched:
        paths = (shutil.which(name, path=folders) for name in names)
        if path := next(filter(None, paths), None):
            found.setdefault(Path(path).resolve(), path)
    return list(found.values())


def _read(program: Program, path: str, probe: Probe) -> Tool:
    version, problem = probe.ask_version(path, program.version, DOTTED_NUMBER)
    return Tool(name=program.name, path=path, version=version, problem=problem)


def _read_named(program: Program, command: str, probe: Probe) -> Tool:
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
