"""Libraries that nvcc makes, slimmed: NVIDIA's own tool lists what is left, the loader loads it."""

from pathlib import Path

import pytest

from conftest import Need
from slim_libraries import listed_by, slim, wrapped
from stoker.model.slimming import SlimLayout
from stoker.outside import process

pytestmark = pytest.mark.network

# Unless it is compressed, the table takes a few pages even where they are large.
TABLE = "__device__ unsigned table[50000] = {1};"
TWICE = "__device__ float twice(float number) { return 2 * number; }"
FIRST = """
__device__ float twice(float);
__global__ void scale(float* data) { data[threadIdx.x] = twice(data[threadIdx.x]) + table[1]; }
extern "C" void launch(float* data) { scale<<<1, 32>>>(data); }
"""
SECOND = """
__global__ void shift(float* data) { data[threadIdx.x] += 1; }
extern "C" void launch_shift(float* data) { shift<<<1, 32>>>(data); }
"""
THIRD = """
__global__ void only_old(float* data) { data[threadIdx.x] -= 1; }
extern "C" void launch_old(float* data) { only_old<<<1, 32>>>(data); }
"""
TWO = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"]
OLD = ["-gencode=arch=compute_80,code=sm_80"]


def _build(need: Need, folder: Path, *flags: str, linked: bool) -> Path:
    command = [need("nvcc"), "-Xcompiler", "-fPIC", f"-rdc={str(linked).lower()}", *flags]
    if linked:
        sources = {"first": (TABLE + FIRST, TWO), "second": (TWICE + SECOND, TWO)}
    else:
        sources = {"first": (TABLE + TWICE + FIRST, TWO), "second": (SECOND, TWO)}
        sources["third"] = (THIRD, OLD)
    for name, (text, archs) in sources.items():
        (folder / f"{name}.cu").write_text(text)
        unit = [f"{name}.cu", "-c", "-o", f"{name}.o"]
        process.check([*command, *archs, *unit], timeout=280, cwd=folder)
    objects = [f"{name}.o" for name in sources]
    target = ["-shared", "-o", "libmill.so", "-cudart=static", "-lrt", "-ldl", "-lpthread"]
    link = TWO if linked else ["-nodlink"]
    process.check([*command, *link, *objects, *target], timeout=280, cwd=folder)
    return folder / "libmill.so"


def _archs(starts: list[bytes]) -> list[int]:
    """The architecture of the first entry of each region."""
    assert all(start.startswith(b"\x50\xed\x55\xba") for start in starts)
    return [int.from_bytes(start[44:48], "little") for start in starts]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ["--no-compress"],
        ["-Xfatbin=-compress-all", "--compress-mode=speed"],
        ["-Xfatbin=-compress-all", "--compress-mode=size"],
    ],
    ids=["plain", "lz4", "zstd"],
)
def test_translation_units(need: Need, tmp_path: Path, cuobjdump: str, flags: list[str]) -> None:
    """The third unit has nothing for the target: a stub stays."""
    path = _build(need, tmp_path, *flags, linked=False)
    assert len(listed_by(cuobjdump, path)) == 7
    for pin in (False, True):
        made = tmp_path / f"pin-{pin}.so"
        summary = slim(path, made, "sm_90", pin=pin).summary
        assert (summary.kept, summary.dropped, summary.stubs) == (3, 4, 1)
        assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
        assert summary.after_bytes <= summary.before_bytes - (
            0x10000 if "--no-compress" in flags else 0
        )
        assert sorted(listed_by(cuobjdump, made)) == ["sm_80.cubin", "sm_90.cubin", "sm_90.cubin"]
        assert sorted(_archs(wrapped(made))) == [80, 90, 90]


@pytest.mark.slow
def test_linked_device_code(need: Need, tmp_path: Path, cuobjdump: str) -> None:
    """Regions that were linked, and what they were linked from."""
    path = _build(need, tmp_path, "--no-compress", linked=True)
    before = listed_by(cuobjdump, path)
    for pin in (False, True):
        made = tmp_path / f"pin-{pin}.so"
        summary = slim(path, made, "sm_90", pin=pin).summary
        assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
        kept = [name for name in before if name == "sm_90.cubin"]
        assert len(kept) == 3
        assert listed_by(cuobjdump, made) == kept
        assert _archs(wrapped(made)) == [90, 90, 90]
