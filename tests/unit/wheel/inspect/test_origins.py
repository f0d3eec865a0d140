"""The origins of needed libraries: search paths, the system, the driver, required packages."""

import pytest

from stoker.model.artifact import Dependency, LibraryFacts, LibraryOrigin
from stoker.wheel.inspect.origins import by_folder, installed_path, resolve_needed, search_folders


def _library(path: str, *needed: str, rpath: str = "", runpath: str = "") -> LibraryFacts:
    return LibraryFacts(
        path=path,
        size_bytes=1,
        needed=needed,
        soname=path.rpartition("/")[2],
        rpath=tuple(filter(None, rpath.split(":"))),
        runpath=tuple(filter(None, runpath.split(":"))),
    )


def _resolve(*libraries: LibraryFacts, requires: tuple[str, ...] = ()) -> dict[str, Dependency]:
    paths = {installed_path(library.path) for library in libraries}
    names = {path.rpartition("/")[2] for path in paths}
    found = resolve_needed(libraries, names_in=by_folder(paths), files=names, requires=requires)
    return {row.name: row for row in found}


def test_on_the_search_path_or_beside_it() -> None:
    found = _resolve(
        _library("torch/lib/liba.so", "libb.so", rpath="$ORIGIN"),
        _library("torch/lib/libb.so"),
        _library("torch/_C.so", "liba.so", runpath="/nowhere:${ORIGIN}/lib"),
        _library("other/ext.so", "libext2.so"),
        _library("other/deep/libext2.so"),
    )
    assert found["libb.so"].origin is found["liba.so"].origin is LibraryOrigin.FOUND
    assert found["libext2.so"].origin is LibraryOrigin.BESIDE


def test_a_runpath_replaces_the_rpath() -> None:
    library = _library("a/b.so", rpath="$ORIGIN/old", runpath="$ORIGIN/../new")
    assert search_folders(library) == ["new"]


def test_a_library_in_the_data_folder_is_searched_where_it_is_installed() -> None:
    found = _resolve(
        _library("mill-1.data/platlib/mill/ext.so", "libgrind.so", rpath="$ORIGIN/lib"),
        _library("mill/lib/libgrind.so"),
    )
    assert found["libgrind.so"].origin is LibraryOrigin.FOUND


def test_a_path_out_of_the_wheel_is_not_in_it() -> None:
    found = _resolve(_library("a.so", "liba.so", rpath="$ORIGIN/../../etc"), _library("b/liba.so"))
    assert found["liba.so"].origin is LibraryOrigin.BESIDE


def test_the_system_and_the_driver() -> None:
    needed = "libc.so.6", "ld-linux-aarch64.so.1", "libstdc++.so.6", "libcuda.so.1"
    found = _resolve(_library("a.so", *needed))
    assert [found[name].origin for name in needed] == [LibraryOrigin.SYSTEM] * 3 + [
        LibraryOrigin.DRIVER
    ]


def test_required_packages_bring_their_libraries() -> None:
    found = _resolve(
        _library(
            "a.so", "libcublasLt.so.12", "libnvshmem_host.so.3", "libcufft.so.12", "libc10.so"
        ),
        requires=(
            'nvidia-cublas-cu12==12.8.4.1; platform_system == "Linux"',
            "cuda-toolkit[cudart,cufft]==13.0.2",
            "torch>=2.9",
            "not a requirement",
        ),
    )
    packages = {name: row.package for name, row in found.items() if row.origin == "package"}
    assert packages == {
        "libcublasLt.so.12": "nvidia-cublas-cu12",
        "libcufft.so.12": "cuda-toolkit[cufft]",
        "libc10.so": "torch",
    }
    missing = found["libnvshmem_host.so.3"]
    assert missing.origin is LibraryOrigin.MISSING
    assert missing.package == "nvidia-nvshmem-cuNN", "it needs two versions of CUDA"


def test_pytorch_brings_the_libraries_of_its_cuda() -> None:
    """A build of causal-conv1d ended after the last compile: libcudart was called missing."""
    needing = _library("a.so", "libcudart.so.13", "libnvjpeg.so.13")
    found = _resolve(needing, requires=("torch==2.12.1",))
    assert found["libcudart.so.13"].package == "torch"
    assert found["libcudart.so.13"].origin is LibraryOrigin.PACKAGE
    assert found["libnvjpeg.so.13"].origin is LibraryOrigin.MISSING
    found = _resolve(needing, requires=('torch; extra == "test"',))
    assert found["libcudart.so.13"].origin is LibraryOrigin.MISSING


@pytest.mark.parametrize(
    ("needed", "packages"),
    [
        ("libcublas.so.11 libcufft.so.10", "nvidia-cublas-cu11 nvidia-cufft-cu11"),
        ("libcublas.so.12 libnccl.so.2", "nvidia-cublas-cu12 nvidia-nccl-cu12"),
        ("libcufft.so.12 libnccl.so.2", "nvidia-cufft nvidia-nccl-cu13"),
        ("libcudart.so.13 libcurand.so.10", "nvidia-cuda-runtime nvidia-curand"),
        ("libcusolver.so.11", "nvidia-cusolver-cuNN"),
        ("libcusolver.so.12 libcudnn.so.9", "nvidia-cusolver nvidia-cudnn-cu13"),
        ("libtorch_cpu.so", "torch"),
    ],
)
def test_the_package_of_a_missing_library_is_that_of_its_cuda(needed: str, packages: str) -> None:
    """Only the names for CUDA 13 were known, and nvidia-nccl does not exist."""
    found = _resolve(_library("a.so", *needed.split()))
    assert [found[name].package for name in needed.split()] == packages.split()


def test_a_package_for_another_cuda_does_not_have_it() -> None:
    found = _resolve(_library("a.so", "libcublas.so.12"), requires=("nvidia-cublas-cu11",))
    assert found["libcublas.so.12"].origin is LibraryOrigin.MISSING
    found = _resolve(_library("a.so", "libcurand.so.10"), requires=("nvidia-curand-cu12",))
    assert found["libcurand.so.10"].origin is LibraryOrigin.PACKAGE


def test_libraries_of_packages_may_carry_versions() -> None:
    needed = "libc10.so.2.6", "libtorch_cpu.so.2.6", "libtorch_python.so.2.6.0", "libnvperf_host.so"
    found = _resolve(
        _library("plusone.so", *needed, "libc10.so.debug"),
        requires=("torch==2.6.0", "nvidia-cuda-cupti"),
    )
    assert [found[name].package for name in needed] == ["torch"] * 3 + ["nvidia-cuda-cupti"]
    assert found["libc10.so.debug"].origin is LibraryOrigin.MISSING


def test_a_library_without_origin_is_missing() -> None:
    """As in an official wheel, whose libgfortran wants a library that is not bundled."""
    rpath = "$ORIGIN/../../nvidia/cublas/lib:$ORIGIN"
    found = _resolve(
        _library("torch/lib/libgfortran.so.5", "libquadmath.so.0", "libc.so.6", rpath=rpath),
        requires=("nvidia-cublas==13.1.0.3",),
    )
    row = found["libquadmath.so.0"]
    assert (row.origin, row.package) == (LibraryOrigin.MISSING, None)
    assert row.wanted_by == ("torch/lib/libgfortran.so.5",)


def test_missing_ones_come_first() -> None:
    libraries = [_library("a.so", "libc.so.6", "libx.so"), _library("b.so", "libx.so")]
    rows = resolve_needed(libraries, names_in=lambda _: (), files=())
    assert [(row.name, row.wanted_by) for row in rows] == [
        ("libx.so", ("a.so", "b.so")),
        ("libc.so.6", ("a.so",)),
    ]
