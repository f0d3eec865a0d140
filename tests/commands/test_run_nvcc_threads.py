"""`stoker run --nvcc-threads`: a kernel on idle CPUs, with the same device code."""

import hashlib
from pathlib import Path

import pytest

from conftest import Need
from governed import Build
from stoker.outside import process

KERNELS = """
template <int N> __global__ void scale(float *x, float by) {
    for (int i = 0; i < N; i++) x[i * N + threadIdx.x] = x[i] * by + N;
}
void all(float *x) {
    scale<3><<<1, 32>>>(x, 2);
    scale<40><<<1, 32>>>(x, 3);
}
"""
TARGETS = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in (80, 90)]


def device_code(cuobjdump: str, path: Path) -> dict[str, str]:
    folder = path.with_suffix(".cubins")
    folder.mkdir()
    process.check([cuobjdump, "-xelf", "all", path], timeout=120, cwd=folder)
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.network
def test_a_kernel_uses_idle_cpus_and_its_device_code_is_the_same(
    build: Build, need: Need, cuobjdump: str
) -> None:
    nvcc, object_file = need("nvcc"), build.folder / "k.o"
    (build.folder / "k.cu").write_text(KERNELS)
    words = [nvcc, *TARGETS, "-c", "k.cu", "-o", "k.o"]
    # The first run measures its memory, so that the other processes of this machine do not matter.
    first = build.run(*words, options=["--cpus", "2", "--nvcc-threads", "off"])
    assert (first.status, "nvcc used idle CPUs" in first.err) == (0, False)
    before = device_code(cuobjdump, object_file.rename(build.folder / "one.o"))
    done = build.run(*words, options=["--cpus", "2", "--explain"])
    assert done.status == 0
    assert "nvcc used idle CPUs for 1 step" in done.err
    assert "1 step ran with 2 threads, because too few steps were left" in done.err
    after = device_code(cuobjdump, object_file.rename(build.folder / "two.o"))
    assert len(before) == 2
    assert sorted(before.values()) == sorted(after.values())
