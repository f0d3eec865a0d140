"""The search path that a library gets, and when its own will do."""

from collections.abc import Mapping, Sequence

import pytest

from built_wheels import built, library
from stoker.knowledge.nvidia_packages import folders
from stoker.model.artifact import ElfKind, LibraryFacts
from stoker.model.errors import UsageError
from stoker.wheel.package.closure import providers
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.package.search_paths import SearchPaths


def paths(
    homes: Mapping[str, Sequence[str]] | None = None,
    *,
    mode: PackageMode = PackageMode.PYPI,
    cuda: int | None = None,
    is_torch: bool = False,
) -> SearchPaths:
    wheel = built(library("torch/lib/libc10.so"), name="torch") if is_torch else built()
    return SearchPaths(
        provider=providers(wheel, PackageRequest(mode=mode)),
        homes=homes or {},
        packages=folders(cuda) if cuda else (),
        is_torch=is_torch,
    )


def test_the_official_wheel_for_cuda_13() -> None:
    official = paths(cuda=13, is_torch=True)
    common = (
        "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nvshmem/lib:"
        "$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/../../nvidia/cusparselt/lib:"
        "$ORIGIN/../../nvidia/cu13/lib"
    )
    assert official.new(library("torch/lib/libc10.so")) == f"{common}:$ORIGIN"
    assert official.new(library("torch/_C.cpython-312.so")) == f"{common}:$ORIGIN:$ORIGIN/lib"
    assert official.of_bundled(library("torch/lib/libgomp.so.1")) == f"{common}:$ORIGIN"
    there = library("torch/lib/libc10.so", rpath=(*common.split(":"), "$ORIGIN"))
    assert official.new(there) is None


def test_the_official_wheel_for_cuda_12() -> None:
    path = paths(cuda=12, is_torch=True).new(library("torch/lib/libc10.so"))
    assert path is not None
    entries = path.split(":")
    assert entries[0] == "$ORIGIN/../../nvidia/cudnn/lib"
    assert entries[12:] == [
        "$ORIGIN/../../cusparselt/lib",
        "$ORIGIN/../../nvidia/nvtx/lib",
        "$ORIGIN/../../nvidia/cufile/lib",
        "$ORIGIN",
    ]


def test_pytorch_with_everything_inside() -> None:
    bundled = paths(mode=PackageMode.BUNDLE, is_torch=True)
    assert bundled.new(library("torch/lib/libc10.so")) == "$ORIGIN"
    assert bundled.new(library("torch/_C.so")) == "$ORIGIN:$ORIGIN/lib"


def test_programs_of_pytorch_are_left_alone() -> None:
    program = library(
        "torch/bin/torch_shm_manager",
        "libc10.so",
        runpath=("$ORIGIN/../lib",),
        kind=ElfKind.PROGRAM,
    )
    assert paths({"libc10.so": ["torch/lib"]}, is_torch=True).new(program) is None


def test_an_extension_looks_at_pytorch_and_nvidia() -> None:
    extension = library("warm/deep/_C.so", "libtorch.so", "libcudart.so.13", "libc.so.6")
    path = paths(cuda=13).new(extension)
    assert path is not None
    assert path.split(":")[0] == "$ORIGIN/../../torch/lib"
    assert path.split(":")[-1] == "$ORIGIN/../../nvidia/cu13/lib"


def test_an_extension_at_the_top_level() -> None:
    assert paths().new(library("_C.so", "libc10.so")) == "$ORIGIN/torch/lib"


def test_only_what_is_needed_is_searched() -> None:
    """NVIDIA's folders are none of the business of a library that needs nothing from there."""
    assert paths(cuda=13).new(library("warm/_C.so", "libtorch.so")) == "$ORIGIN/../torch/lib"
    assert paths(cuda=13).new(library("warm/_C.so", "libc.so.6")) is None


def test_own_libraries_and_those_taken_in() -> None:
    homes = {"libown.so": ["warm/lib"], "libfire.so.1": ["warm.libs"]}
    bundled = paths(homes, mode=PackageMode.BUNDLE)
    both = library("warm/_C.so", "libown.so", "libfire.so.1")
    assert bundled.new(both) == "$ORIGIN/lib:$ORIGIN/../warm.libs"
    assert bundled.of_bundled(library("warm.libs/libash.so", "libfire.so.1")) == "$ORIGIN"


def test_a_wheel_with_a_data_folder() -> None:
    """What is in platlib is installed beside everything else; where a script goes is not known."""
    homes = {"libown.so": ["warm"]}
    inside = library("warm-1.0.data/platlib/warm/sub/_C.so", "libown.so")
    assert paths(homes).new(inside) == "$ORIGIN/.."
    script = library("warm-1.0.data/scripts/tool", "libown.so", kind=ElfKind.PROGRAM)
    assert paths(homes).new(script) is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (library("warm/_C.so", "libown.so", rpath=("$ORIGIN/lib",)), None),
        (library("warm/_C.so", "libown.so", rpath=("${ORIGIN}/./lib",)), None),
        (library("warm/_C.so", "libown.so", runpath=("$ORIGIN/lib",)), "$ORIGIN/lib"),
        (library("warm/_C.so", "libown.so", rpath=("/opt/lib", "$ORIGIN/lib")), "$ORIGIN/lib"),
        (library("warm/_C.so", "libown.so", rpath=("$ORIGIN",)), "$ORIGIN/lib:$ORIGIN"),
        (library("warm/_C.so", "libc.so.6", runpath=("$ORIGIN/any",)), None),
        (library("warm/_C.so", "libc.so.6", runpath=("/opt/lib",)), ""),
    ],
)
def test_when_the_present_path_will_do(facts: LibraryFacts, expected: str | None) -> None:
    """Not if it is DT_RUNPATH and matters, nor if it leads to a folder of the build machine."""
    assert paths({"libown.so": ["warm/lib"]}).new(facts) == expected


def test_of_two_libraries_the_one_beside_is_meant() -> None:
    two = paths({"libown.so": ["warm", "cold"]})
    assert two.new(library("cold/_C.so", "libown.so")) == "$ORIGIN"
    assert two.new(library("other/_C.so", "libown.so", rpath=("$ORIGIN/../cold",))) is None
    with pytest.raises(UsageError, match="in warm and in cold"):
        two.new(library("other/_C.so", "libown.so"))
