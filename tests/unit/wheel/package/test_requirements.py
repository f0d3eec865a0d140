"""What a packaged wheel requires: as the official wheels do, or as far as it can be known."""

from typing import Any

import pytest

from built_wheels import built, library
from stoker.model.errors import UsageError
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.package.requirements import added_requirements, dropped_requirements

LINUX = 'platform_system == "Linux"'


def torch(version: str, cuda: str | None, *requires: str) -> BuiltWheel:
    runtime = [f"libcudart.so.{cuda.partition('.')[0]}"] if cuda else []
    own = library("torch/lib/libtorch_cuda.so", *runtime, "libc10.so")
    inside = library("torch/lib/libc10.so")
    return built(own, inside, name="torch", version=version, cuda=cuda, requires=requires)


def extension(*needed: str, requires: tuple[str, ...] = ()) -> BuiltWheel:
    return built(library("warm/_C.so", "libtorch.so", *needed), requires=requires)


def added(
    wheel: BuiltWheel, mode: PackageMode = PackageMode.PYPI, **wishes: Any
) -> tuple[str, ...]:
    request = PackageRequest(mode=mode, **wishes)
    return added_requirements(wheel, request)


def test_pytorch_requires_what_the_official_wheel_does() -> None:
    lines = added(torch("2.9.1+cu128", "12.8"))
    marker = f'{LINUX} and platform_machine == "x86_64"'
    assert lines[0] == f"nvidia-cuda-nvrtc-cu12==12.8.93; {marker}"
    assert lines[-1] == f"triton==3.5.1; {marker}"
    assert len(lines) == 16
    assert added(torch("2.15.0", "13.2"))[0] == (
        "cuda-toolkit[cublas,cudart,cufft,cufile,cupti,cusolver,cusparse,nvjitlink,nvrtc,nvtx]"
        f"==13.2.2; {LINUX}"
    )


def test_a_development_version_counts_as_its_release() -> None:
    assert added(torch("2.15.0a0+git1234567", "13.2")) == added(torch("2.15.0", "13.2"))


def test_the_cuda_of_a_release_matters() -> None:
    assert "nvidia-cublas==13.0.0.19" in added(torch("2.9.1", "13.0"))[4]
    assert "nvidia-cublas-cu12==12.6.4.1" in added(torch("2.9.1", "12.8"), cuda="12.6")[4]


@pytest.mark.parametrize("mode", [PackageMode.BUNDLE, PackageMode.PLAIN])
def test_pytorch_with_everything_inside_requires_nothing(mode: PackageMode) -> None:
    assert added(torch("2.9.1", "12.8"), mode) == ()


def test_pytorch_for_the_cpu_requires_nothing() -> None:
    assert added(torch("2.9.1", None)) == ()


def test_a_release_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="are unknown") as caught:
        added(torch("2.16.0", "13.2"))
    assert "PyTorch 2.16.0 for CUDA 13.2" in caught.value.message
    assert caught.value.hints[0].startswith("the nearest known releases are 2.15.0 for 13.2, 2.14")
    with pytest.raises(UsageError, match="are unknown"):
        added(torch("2.9.1", "11.8"))


def test_a_release_that_is_not_known_can_be_said_to_be_like_another() -> None:
    lines = added(torch("2.16.0", "13.2"), like="2.15.0", requires=("triton==4.0.0",))
    assert lines[:-1] == added(torch("2.15.0", "13.2"))[:-1]
    assert lines[-1] == "triton==4.0.0"


def test_a_release_that_is_not_known_can_be_spelt_out() -> None:
    own = ("nvidia-cublas==14.0", "nvidia-cudnn-cu14==10.0")
    assert added(torch("2.30.0", "14.0"), requires=own) == own


def test_an_extension_requires_its_pytorch_and_what_it_needs_itself() -> None:
    wheel = extension("libcudart.so.12", "libcublas.so.12", "libcudnn.so.9", "libc.so.6")
    marker = f'{LINUX} and platform_machine == "x86_64"'
    assert added(wheel, torch="2.9.1+cu128") == (
        "torch==2.9.1",
        f"nvidia-cuda-runtime-cu12==12.8.90; {marker}",
        f"nvidia-cudnn-cu12==9.10.2.21; {marker}",
        f"nvidia-cublas-cu12==12.8.4.1; {marker}",
    )


def test_an_extension_takes_its_part_of_the_toolkit() -> None:
    wheel = extension("libcudart.so.13", "libcublas.so.13", "libnvjpeg.so.13")
    assert added(wheel, torch="2.15.0") == (
        "torch==2.15.0",
        f"cuda-toolkit[cublas,cudart]==13.2.2; {LINUX}",
        f"cuda-toolkit[nvjpeg]>=13.2,<14; {LINUX}",
    )


def test_an_extension_that_leaves_nvidia_to_pytorch() -> None:
    assert added(extension(), torch="2.99.0") == ("torch==2.99.0",)


def test_the_pytorch_of_an_extension_may_be_in_its_metadata() -> None:
    wheel = extension("libcudart.so.13", requires=("numpy", "torch==2.15.0"))
    lines = added(wheel)
    assert lines[0] == "torch==2.15.0"
    assert len(lines) == 2
    unpinned = extension("libcudart.so.13", requires=("torch>=2.1",))
    with pytest.raises(UsageError, match="the version is unknown") as caught:
        added(unpinned)
    assert "--torch" in caught.value.hints[0]
    assert added(unpinned, PackageMode.BUNDLE) == ()
    assert added(unpinned, PackageMode.BUNDLE, torch="2.15.0") == ("torch==2.15.0",)


def test_a_wheel_without_pytorch_requires_parts_of_the_toolkit() -> None:
    wheel = built(library("warm/_C.so", "libcudart.so.13", "libcudnn.so.9"))
    toolkit = f"cuda-toolkit[cudart]==13.*; {LINUX}"
    assert added(wheel) == (toolkit, f"nvidia-cudnn-cu13; {LINUX}")
    assert added(wheel, cuda="13.2")[0] == f"cuda-toolkit[cudart]>=13.2,<14; {LINUX}"
    assert added(built(library("warm/_C.so", "libc.so.6"))) == ()


@pytest.mark.parametrize(
    ("needed", "cuda", "message"),
    [
        (("libcudart.so.13",), "12.8", "need CUDA 13, not 12.8"),
        (("libcudart.so.13",), "newest", "not a CUDA version"),
        (("libcudart.so.13", "libcublas.so.12"), None, "both CUDA 12 and 13"),
        (("libcusolver.so.11",), None, "CUDA version of the wheel is unknown"),
    ],
)
def test_which_cuda(needed: tuple[str, ...], cuda: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        added(built(library("warm/_C.so", *needed)), cuda=cuda)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"requires": ("not a requirement",)}, "is not a requirement"),
        ({"torch": "new"}, "not a PyTorch version"),
        ({"torch": "2.15.0", "like": "new"}, "is not a PyTorch version"),
    ],
)
def test_words_that_cannot_be_understood(wishes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        added(extension("libcudart.so.13"), **wishes)


def test_the_user_may_say_which_cuda() -> None:
    wheel = built(library("warm/_C.so", "libcusolver.so.12"))
    assert added(wheel, cuda="13.0") == (f"cuda-toolkit[cusolver]>=13.0,<14; {LINUX}",)
    assert added(wheel, cuda="13") == (f"cuda-toolkit[cusolver]==13.*; {LINUX}",)


def test_an_extension_of_a_release_that_is_not_known() -> None:
    wheel = extension("libcudart.so.14")
    with pytest.raises(UsageError, match="are unknown"):
        added(wheel, torch="2.30.0")
    own = "nvidia-cuda-runtime==14.*"
    assert added(wheel, torch="2.30.0", requires=(own,)) == ("torch==2.30.0", own)


def test_what_is_replaced_is_dropped() -> None:
    wheel = extension(requires=("torch>=2.1", "numpy", "torch; extra == 'all'"))
    assert dropped_requirements(wheel, ("torch==2.15.0",), ()) == ("torch>=2.1",)


def test_packages_of_libraries_inside_are_dropped() -> None:
    lines = (
        "nvidia-cublas-cu12==12.8.4.1",
        "nvidia-cufft-cu12==11.3.3.83",
        "cuda-toolkit[cublas]==13.0.2",
        "cuda-toolkit[cublas,cufft]==13.0.2",
        "cuda-bindings",
    )
    wheel = built(library("warm/_C.so"), requires=lines)
    assert dropped_requirements(wheel, (), ["libcublas.so.12"]) == (lines[0], lines[2])
    pytorch = torch("2.9.1", "12.8", *lines)
    assert dropped_requirements(pytorch, (), ["libcublas.so.12"]) == (*lines[:1], *lines[2:4])
    assert dropped_requirements(pytorch, (), []) == ()


@pytest.mark.parametrize(
    ("wheel", "mode", "like", "message"),
    [
        (torch("2.9.1", "13.0"), PackageMode.PLAIN, "2.9.1", "--mode plain adds none"),
        (built(library("warm/_C.so", "libc.so.6")), PackageMode.PYPI, "2.9.1", "is for PyTorch"),
        (torch("2.9.1", "13.0"), PackageMode.BUNDLE, "9.9.9", "no known release"),
    ],
)
def test_a_release_that_would_be_ignored_is_refused(
    wheel: BuiltWheel, mode: PackageMode, like: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        added(wheel, mode, like=like)
