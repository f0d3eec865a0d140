"""The GPUs of this machine: NVIDIA's from the driver's own library, AMD's and Intel's from sysfs.

The kernel tells AMD's architecture for each node of its compute topology, as ROCm reads it, and the
PCI identity of Intel's cards, so neither rocminfo nor Level Zero has to be installed.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from stoker.knowledge.gpus import gpus
from stoker.machine.file_tree import FileTree
from stoker.model.machine import Gpu
from stoker.model.value import whole_number

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_CARDS = "/sys/class/drm"
_CARD = re.compile(r"card\d{1,4}")
_INTEL = "0x8086"
_OWN_MEMORY = ("1", "2")  # kinds of memory banks that belong to the GPU


def read_gpus(tree: FileTree) -> tuple[Gpu, ...]:
    """Return all GPUs that something can be built for."""
    return (*nvidia_gpus(tree.note), *amd_gpus(tree), *intel_gpus(tree))


def nvidia_gpus(note: Callable[[str], None]) -> tuple[Gpu, ...]:
    """Return the GPUs that NVIDIA's driver lists; none without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return ()
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not answer: {error}")
        return ()
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        found = [_nvidia_gpu(index, driver, note) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not list its GPUs: {error}")
        return ()
    finally:
        pynvml.nvmlShutdown()
    return tuple(gpu for gpu in found if gpu is not None)


def _nvidia_gpu(index: int, driver: str, note: Callable[[str], None]) -> Gpu | None:
    """Return a GPU, or ``None`` if it has dropped off the bus: the other GPUs still work."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        note(f"GPU {index} does not answer: {error}")
        return None
    memory = 0
    with suppress(pynvml.NVMLError):  # one that shares the machine's memory reports no size
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    capability = f"{major}.{minor}"
    return Gpu(index=index, name=name, capability=capability, memory=memory, driver=driver)


def amd_gpus(tree: FileTree) -> tuple[Gpu, ...]:
    """Return the GPUs of the kernel's compute topology, which also lists CPUs."""
    found: list[Gpu] = []
    for node in _numbered(tree, _NODES):
        properties = _properties(tree, f"{_NODES}/{node}/properties")
        version = whole_number(properties.get("gfx_target_version", "")) or 0
        if not version:
            continue
        arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        minor = properties.get("drm_render_minor", "")
        said = tree.text(f"{_CARDS}/renderD{minor}/device/product_name") if minor.isdigit() else ""
        banks = f"{_NODES}/{node}/mem_banks"
        rows = [_properties(tree, f"{banks}/{bank}/properties") for bank in _numbered(tree, banks)]
        own = [row for row in rows if row.get("heap_type") in _OWN_MEMORY]
        gpu = Gpu(
            index=len(found),
            name=(said or "").strip() or f"AMD {arch}",
            capability=arch,
            memory=sum(whole_number(row.get("size_in_bytes", "")) or 0 for row in own),
            driver=(tree.text("/sys/module/amdgpu/version") or "").strip(),
        )
        found.append(gpu)
    return tuple(found)


def _numbered(tree: FileTree, folder: str) -> list[str]:
    try:
        names = [path.name for path in tree.path(folder).iterdir() if path.name.isdigit()]
    except OSError:
        return []
    return sorted(names, key=int)


def _properties(tree: FileTree, name: str) -> dict[str, str]:
    rows = (line.split(" ", 1) for line in (tree.text(name) or "").splitlines())
    return {row[0]: row[1].strip() for row in rows if row[1:]}


def intel_gpus(tree: FileTree) -> tuple[Gpu, ...]:
    """Return the cards whose PCI identity is known; others are graphics without compute."""
    known = {pci: gpu for gpu in gpus().values() for pci in gpu.pci}
    found: list[Gpu] = []
    try:
        cards = sorted(path.name for path in tree.path(_CARDS).iterdir())
    except OSError:
        return ()
    for card in filter(_CARD.fullmatch, cards):
        device = f"{_CARDS}/{card}/device"
        if (tree.text(f"{device}/vendor") or "").strip() != _INTEL:
            continue
        if gpu := known.get((tree.text(f"{device}/device") or "").strip().lower()):
            name = f"Intel {gpu.names[0]}"
            intel = Gpu(index=len(found), name=name, capability=gpu.arch, memory=0, driver="")
            found.append(intel)
    return tuple(found)
