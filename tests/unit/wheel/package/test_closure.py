"""Which libraries are bundled, which others provide, and the error for missing ones."""

import pytest

from built_wheels import MACHINE, FactsPlace, built, library, places
from stoker.model.errors import MissingError, UsageError
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.closure import (
    Closure,
    LibraryProvider,
    find_closure,
    providers,
)
from stoker.wheel.package.places import SearchPlaces
from stoker.wheel.package.request import PackageMode, PackageRequest


def closure(
    wheel: BuiltWheel,
    found: SearchPlaces,
    mode: PackageMode = PackageMode.BUNDLE,
    exclude: tuple[str, ...] = (),
) -> Closure:
    request = PackageRequest(mode=mode, exclude=exclude)
    return find_closure(wheel, request, found)


@pytest.mark.parametrize(
    ("name", "in_pypi", "in_bundle"),
    [
        ("libm.so.6", LibraryProvider.SYSTEM, LibraryProvider.SYSTEM),
        ("libcuda.so.1", LibraryProvider.SYSTEM, LibraryProvider.SYSTEM),
        ("libpython3.12.so.1.0", LibraryProvider.SYSTEM, LibraryProvider.SYSTEM),
        ("libmine.so.1", LibraryProvider.SYSTEM, LibraryProvider.SYSTEM),
        ("libown.so", LibraryProvider.WHEEL, LibraryProvider.WHEEL),
        ("libtorch_cuda.so", LibraryProvider.TORCH, LibraryProvider.TORCH),
        ("libcudart.so.12", LibraryProvider.PACKAGE, LibraryProvider.BUNDLE),
        ("libgomp.so.1", LibraryProvider.BUNDLE, LibraryProvider.BUNDLE),
    ],
)
def test_who_provides_a_library(
    name: str, in_pypi: LibraryProvider, in_bundle: LibraryProvider
) -> None:
    wheel = built(library("warm/libown.so"))
    for mode, provider in ((PackageMode.PYPI, in_pypi), (PackageMode.BUNDLE, in_bundle)):
        request = PackageRequest(mode=mode, exclude=("libmine.*",))
        assert providers(wheel, request)(name) is provider


@pytest.mark.parametrize("mode", [PackageMode.PYPI, PackageMode.BUNDLE])
def test_an_extension_has_the_openmp_runtime_of_pytorch(mode: PackageMode) -> None:
    """A bundled one would be a second one in the process, which `verify` refuses."""
    wheel = built(library("warm/_C.so", "libgomp.so.1", "libc10.so"))
    assert closure(wheel, places(library("libgomp.so.1")), mode).found == {}
    provider = providers(wheel, PackageRequest(mode=mode))
    assert provider("libgomp.so.1") is LibraryProvider.TORCH


def test_what_is_needed_is_followed_to_the_end() -> None:
    wheel = built(library("warm/_C.so", "libfire.so.1", "libc.so.6", "libcuda.so.1"))
    found = closure(
        wheel,
        places(
            library("libfire.so.1", "libash.so.2", "libm.so.6"),
            library("libash.so.2", "libfire.so.1"),
            library("libother.so"),
            library("libcuda.so.1"),
            library("libm.so.6"),
        ),
    )
    assert list(found.found) == ["libfire.so.1", "libash.so.2"]
    assert found.wanted_by["libash.so.2"] == ("libfire.so.1",)
    assert set(found.wanted_by["libfire.so.1"]) == {"warm/_C.so", "libash.so.2"}


def test_what_is_opened_goes_along_if_it_can() -> None:
    wheel = built(library("warm/_C.so", "libcudnn.so.9", "libcudart.so.13"))
    found = closure(
        wheel,
        places(
            library("libcudart.so.13"),
            library("libcudnn.so.9"),
            library("libcudnn_ops.so.9"),
            library("libcudnn_adv.so.9", "libcudnn_ops.so.9"),
            library("libcudnn_ops.so.8"),
            library("libcublasLt.so.13"),
            library("libcublasLt.so.12"),
            library("libnvrtc.so.13", "libnowhere.so.1"),
        ),
    )
    assert set(found.found) == {
        "libcudart.so.13",
        "libcudnn.so.9",
        "libcudnn_ops.so.9",
        "libcudnn_adv.so.9",
        "libcublasLt.so.13",
    }
    assert found.wanted_by["libcudnn_ops.so.9"] == ("libcudnn_adv.so.9", "libcudnn.so.9")
    left_out = "libcudnn.so.9 opens libnvrtc.so.13, which needs libnowhere.so.1: it was not found"
    assert left_out in found.notes


def test_what_is_opened_and_not_there_is_said() -> None:
    wheel = built(library("warm/_C.so", "libcufft.so.12", "libcudart.so.13"))
    found = closure(wheel, places(library("libcudart.so.13"), library("libcufft.so.12")))
    assert "libcufft.so.12 opens libnvJitLink.so.13, which was not found" in found.notes


def test_openers_in_the_wheel_itself_count() -> None:
    wheel = built(library("warm/libnvrtc.so.13", soname="libnvrtc.so.13"))
    found = closure(wheel, places(library("libnvrtc-builtins.so.13.0")))
    assert list(found.found) == ["libnvrtc-builtins.so.13.0"]


def test_with_packages_of_their_own_nvidia_libraries_stay_there() -> None:
    wheel = built(library("warm/_C.so", "libcufft.so.12", "libgomp.so.1"))
    found = closure(wheel, places(library("libgomp.so.1")), PackageMode.PYPI)
    assert list(found.found) == ["libgomp.so.1"]
    assert found.notes == ()


def test_a_library_that_is_not_found() -> None:
    wheel = built(
        library("warm/_C.so", "libfire.so.1", "libash.so.1"), library("warm/_D.so", "libfire.so.1")
    )
    wrong = library("libfire.so.1", machine="aarch64")
    with pytest.raises(MissingError, match="was not found") as caught:
        closure(wheel, places(wrong))
    assert "warm/_C.so, warm/_D.so" in caught.value.message
    hints = "\n".join(caught.value.hints)
    assert "also not found: libash.so.1" in hints
    assert "/place/libfire.so.1 (for aarch64)" in hints
    assert "searched /place" in hints
    assert "--exclude libfire.so.1" in hints
    assert closure(wheel, places(wrong), exclude=("libfire.*", "libash.*")) == Closure()


def test_the_first_shelf_that_fits_gives() -> None:
    wheel = built(library("warm/_C.so", "libfire.so.1"))
    facts = library("libfire.so.1")
    both = SearchPlaces(
        [
            FactsPlace("/script", {"libfire.so.1": None}),
            FactsPlace("/first", {"libfire.so.1": facts}),
            FactsPlace("/second", {"libfire.so.1": facts}),
        ],
        MACHINE,
    )
    assert closure(wheel, both).found["libfire.so.1"].source.file == "/first/libfire.so.1"
    assert both.unfit == {"libfire.so.1": ["/script/libfire.so.1 (not an ELF file)"]}


def test_two_libraries_of_the_same_name() -> None:
    wheel = built(library("warm/_C.so", "libfire.so", "libfire.so.1"))
    two = places(
        library("libfire.so", soname="libfire.so.1"), library("libfire.so.1", soname="libfire.so.1")
    )
    with pytest.raises(UsageError, match="two libraries have the name") as caught:
        closure(wheel, two)
    assert "/place/libfire.so and /place/libfire.so.1" in caught.value.message
