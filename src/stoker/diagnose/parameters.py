"""What fixes can be told of the machine of a run; the how-to of adding a cause lists the names.

Pure: from the machine and its tools as they were read.
"""

from collections.abc import Iterator, Mapping

from stoker.knowledge.cuda import cuda_releases
from stoker.model.machine import CudaToolkit, Machine, Toolbox

_MEMORY_OF_A_JOB = 4 * 1024**3  # enough for most compiles of PyTorch and its extensions


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
