"""GPUs of AMD and Intel, as the kernel describes them in sysfs."""

from pathlib import Path

import pytest

from stoker.knowledge.gpus import gpus
from stoker.machine.file_tree import FileTree
from stoker.machine.gpus import amd_gpus, intel_gpus
from stoker.model.machine import Gpu, Machine
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.grammar import parse
from subjects import gpu, linux

NODES = "sys/class/kfd/kfd/topology/nodes"


def _write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def _node(root: Path, number: int, version: int, minor: int = 128) -> None:
    _write(
        root,
        f"{NODES}/{number}/properties",
        f"cpu_cores_count 0\nsimd_count 304\ndrm_render_minor {minor}\n"
        f"gfx_target_version {version}\nvendor_id 4098\n",
    )


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_architectures_of_amd(tmp_path: Path, version: int, arch: str) -> None:
    _node(tmp_path, 1, version)
    (found,) = amd_gpus(FileTree(tmp_path))
    assert found.capability == arch
    assert arch in gpus()


def test_gpus_of_amd_with_name_memory_and_driver(tmp_path: Path) -> None:
    _write(tmp_path, f"{NODES}/0/properties", "cpu_cores_count 64\ngfx_target_version 0\n")
    for number in (2, 10):
        _node(tmp_path, number, 90402, 126 + number)
        bank = f"{NODES}/{number}/mem_banks"
        _write(tmp_path, f"{bank}/0/properties", "heap_type 1\nsize_in_bytes 206141652992\n")
        _write(tmp_path, f"{bank}/1/properties", "heap_type 0\nsize_in_bytes 5\n")
    card = "sys/class/drm/renderD128/device/product_name"
    _write(tmp_path, card, "AMD Instinct MI300X OAM\n")
    _write(tmp_path, "sys/module/amdgpu/version", "6.10.5\n")
    first, second = amd_gpus(FileTree(tmp_path))
    assert first == Gpu(
        index=0,
        name="AMD Instinct MI300X OAM",
        capability="gfx942",
        memory=206141652992,
        driver="6.10.5",
    )
    assert (second.index, second.name) == (1, "AMD gfx942")


def test_cards_of_intel(tmp_path: Path) -> None:
    cards = "sys/class/drm"
    for card, vendor, device in (
        ("card0", "0x8086", "0x4680"),  # graphics of a desktop CPU
        ("card1", "0x8086", "0xe20b"),
        ("card1-HDMI-A-1", "0x8086", "0xe20b"),
        ("card2", "0x10de", "0x2330"),
    ):
        _write(tmp_path, f"{cards}/{card}/device/vendor", f"{vendor}\n")
        _write(tmp_path, f"{cards}/{card}/device/device", f"{device}\n")
    (found,) = intel_gpus(FileTree(tmp_path))
    assert (found.name, found.capability) == ("Intel Arc B580", "bmg")


def test_damaged_files(tmp_path: Path) -> None:
    _write(tmp_path, f"{NODES}/0/properties", "gfx_target_version much\n\ngfx_target_version")
    _write(tmp_path, f"{NODES}/1/properties", "")
    _write(tmp_path, "sys/class/drm/card0/device/vendor", "")
    assert amd_gpus(FileTree(tmp_path)) == ()
    assert intel_gpus(FileTree(tmp_path)) == ()


def _with(*capabilities: str) -> Machine:
    return linux(gpus=tuple(map(gpu, capabilities)))


@pytest.mark.parametrize(
    ("capabilities", "backend", "archs"),
    [
        (("gfx942", "gfx942"), Backend.ROCM, ("gfx942",)),
        (("bmg",), Backend.XPU, ("bmg",)),
        (("gfx1103", "9.0"), Backend.CUDA, ("9.0",)),
        (("gfx9999",), Backend.CPU, ()),
    ],
)
def test_native(capabilities: tuple[str, ...], backend: Backend, archs: tuple[str, ...]) -> None:
    variant = parse("native", _with(*capabilities))
    assert variant.backend is backend
    assert variant.gpus == tuple(GpuTarget(arch=arch) for arch in archs)
