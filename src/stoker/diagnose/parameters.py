"""The values of the parameters in fixes: facts about the machine, and the command that failed.

docs/how-to/add-a-cause.md lists the names. Pure: the machine and the log are handed in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from stoker.diagnose.values import Line
from stoker.knowledge.hardware import cuda_releases
from stoker.model.machine import CudaToolkit, Machine, Toolbox

_MEMORY_OF_A_JOB = 4 * 1024**3  # enough for most compiles of PyTorch and its extensions


# What a log shows of the command that was run, most specific first, and that command.
_COMMANDS = (
    (
        re.compile(
            r"(?:Failed building wheel for|Failed to build) `?(?P<package>[A-Za-z0-9][\w.-]{0,60})"
        ),
        "pip install --no-build-isolation -v {package}",
    ),
    (re.compile(r"\bpip3? (?:install|wheel) "), "pip install --no-build-isolation -v ."),
    (re.compile(r"\bsetup\.py (?:bdist_wheel|develop|install)\b"), "python setup.py bdist_wheel"),
    (re.compile(r"^ninja: (?:build stopped|fatal|error)"), "ninja -C build"),
    (re.compile(r"^(?:g|mingw32-)?make(?:\[\d+\])?: \*\*\* "), "make"),
    (re.compile(r"-- Configuring incomplete"), "cmake -B build"),
)


def command_in(lines: Iterable[Line]) -> dict[str, str]:
    """Return the parameter ``command`` if the log shows how the build was started."""
    best = len(_COMMANDS)
    found: dict[str, str] = {}
    for line in lines:
        for rank, (pattern, command) in enumerate(_COMMANDS[:best]):
            if match := pattern.search(line.text):
                best, found = rank, {"command": command.format(**match.groupdict())}
                break
    return found


def parameters(machine: Machine, toolbox: Toolbox, command: str) -> Mapping[str, str]:
    return dict(_known(machine, toolbox, command))


def _known(machine: Machine, toolbox: Toolbox, command: str) -> Iterator[tuple[str, str]]:
    if command:
        yield "command", command
    jobs = machine.memory.limit.limit // _MEMORY_OF_A_JOB
    yield "jobs", str(max(1, min(machine.cpu.usable, jobs)))
    disks = [disk for disk in machine.disks if not disk.in_memory]
    if disks:
        yield "folder", f"{max(disks, key=lambda disk: disk.free).path.rstrip('/')}/stoker-tmp"
    for toolkit in toolbox.cuda[:1]:
        yield from _of_toolkit(toolkit, machine)


def _of_toolkit(toolkit: CudaToolkit, machine: Machine) -> Iterator[tuple[str, str]]:
    yield "cuda_home", toolkit.home
    if release := cuda_releases().get(toolkit.version or ""):
        yield "gcc", str(release.gcc_max)
    present = sorted({gpu.capability for gpu in machine.gpus if gpu.capability})
    if archs := [arch for arch in present if arch in toolkit.archs] or toolkit.archs[-1:]:
        yield "arch_list", ";".join(archs)
