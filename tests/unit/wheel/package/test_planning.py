"""From facts to a plan: names, tags, versions, and everything that has to agree."""

from typing import Any

import msgspec
import pytest

from built_wheels import MACHINE, FactsPlace, built, library, places
from stoker.model.errors import ArtifactError, UsageError
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.closure import Closure, find_closure, hashed_name, to_be_hashed
from stoker.wheel.package.places import SearchPlaces
from stoker.wheel.package.plan import LibraryChange, PackagePlan, make_package_plan, new_tags
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.zip.revision import new_version

DIGEST = "0123456789abcdef" * 4


def plan(
    wheel: BuiltWheel, mode: PackageMode, found: SearchPlaces | None = None, **wishes: Any
) -> PackagePlan:
    request = PackageRequest(mode=mode, **wishes)
    closure = find_closure(wheel, request, found) if found else Closure()
    digests = {each.name: DIGEST for each in to_be_hashed(closure)}
    return make_package_plan(wheel, request, closure=closure, digests=digests)


def test_a_bundle() -> None:
    wheel = built(
        library("warm/_C.so", "libcudart.so.13", "libcublas.so.13", runpath=("/usr/local/cuda",)),
        library("warm/_D.so", "libcublas.so.13", "libc.so.6"),
        library("warm/_E.so", "libc.so.6"),
    )
    made = plan(
        wheel,
        PackageMode.BUNDLE,
        places(
            library("libcudart.so.13", soname="libcudart.so.13"),
            library("libcublas.so.13", "libcublasLt.so.13", soname="libcublas.so.13", glibc="2.27"),
            library("libcublasLt.so.13", "libcudart.so.13", soname="libcublasLt.so.13"),
        ),
    )
    cudart = "libcudart-01234567.so.13"
    assert made.changed == (
        LibraryChange(
            path="warm/_C.so", rpath="$ORIGIN/../warm.libs", needed={"libcudart.so.13": cudart}
        ),
        LibraryChange(path="warm/_D.so", rpath="$ORIGIN/../warm.libs"),
    )
    added = {change.path: change for change in made.added}
    assert list(added) == [
        f"warm.libs/{cudart}",
        "warm.libs/libcublas.so.13",
        "warm.libs/libcublasLt.so.13",
    ]
    assert added[f"warm.libs/{cudart}"].soname == cudart
    assert added["warm.libs/libcublas.so.13"].soname is None
    assert added["warm.libs/libcublasLt.so.13"].needed == {"libcudart.so.13": cudart}
    assert {change.rpath for change in made.added} == {"$ORIGIN"}
    assert made.tags == ("cp312-cp312-manylinux_2_27_x86_64",)
    assert made.file_name == "warm-1.0-cp312-cp312-manylinux_2_27_x86_64.whl"


def test_a_file_with_two_names_goes_along_once() -> None:
    """As with the links of a system's folder, where both lead to one file."""
    real = "libfire.so.1.2"
    folder = FactsPlace(
        "/place",
        {real: library(real, soname="libfire.so.1")},
        links={"libfire.so": real, "libfire.so.1": real},
    )
    wheel = built(library("warm/_C.so", "libfire.so", "libfire.so.1"))
    both = SearchPlaces([folder], MACHINE)
    made = plan(wheel, PackageMode.BUNDLE, both)
    new = "libfire-01234567.so.1"
    assert [change.path for change in made.added] == [f"warm.libs/{new}"]
    assert made.changed[0].needed == {"libfire.so": new, "libfire.so.1": new}


def test_pytorch_takes_libraries_into_its_own_folder() -> None:
    wheel = built(
        library("torch/lib/libtorch_cpu.so", "libgomp.so.1"),
        library("torch/_C.so", "libtorch_cpu.so"),
        name="torch",
        version="2.9.1",
    )
    made = plan(wheel, PackageMode.PYPI, places(library("libgomp.so.1", soname="libgomp.so.1")))
    assert [change.path for change in made.added] == ["torch/lib/libgomp.so.1"]
    assert made.added[0].rpath == "$ORIGIN"
    assert made.added[0].wanted_by == ("torch/lib/libtorch_cpu.so",)


def test_plain_changes_nothing_but_the_tag() -> None:
    wheel = built(library("warm/_C.so", "libcudart.so.12", runpath=("/usr/local/cuda",)))
    made = plan(wheel, PackageMode.PLAIN)
    assert (made.changed, made.added, made.requires_added) == ((), (), ())
    assert made.tags == ("cp312-cp312-manylinux_2_17_x86_64",)


def test_only_what_has_symbols_is_stripped() -> None:
    lean = msgspec.structs.replace(library("warm/_D.so"), stripped=True)
    made = plan(built(library("warm/_C.so"), lean), PackageMode.PLAIN, strip=True)
    assert made.changed == (LibraryChange(path="warm/_C.so", strip=True),)


def test_what_stays_required_is_not_touched() -> None:
    wheel = built(
        library("warm/_C.so", "libtorch.so"), requires=("torch==2.15.0", "numpy", "torch>2")
    )
    made = plan(wheel, PackageMode.PYPI, places())
    assert made.requires_added == ()
    assert made.requires_dropped == ("torch>2",)


def test_packages_of_a_cuda_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="packages for CUDA 11") as caught:
        plan(built(library("warm/_C.so", "libcudart.so.11")), PackageMode.PYPI, places())
    assert "12 and 13" in caught.value.hints[0]


def test_a_wheel_without_a_usable_name() -> None:
    with pytest.raises(ArtifactError, match="is not a tag"):
        plan(built(library("warm/_C.so"), tags=("linux_x86_64",)), PackageMode.PLAIN)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcudart.so.12", "libcudart-01234567.so.12"),
        ("libnvperf.so", "libnvperf-01234567.so"),
        ("libfire-1.2.so.3.4", "libfire-1.2-01234567.so.3.4"),
    ],
)
def test_hashed_names(name: str, expected: str) -> None:
    assert hashed_name(name, DIGEST) == expected


@pytest.mark.parametrize(
    ("version", "label", "expected"),
    [
        ("2.9.1", None, "2.9.1"),
        ("2.9.1+cu128", None, "2.9.1+cu128"),
        ("2.9.1", "cu128.sm90", "2.9.1+cu128.sm90"),
        ("2.9.1+cu128", "cu130", "2.9.1+cu130"),
        ("2.9.1+cu128", "", "2.9.1"),
    ],
)
def test_labels_of_versions(version: str, label: str | None, expected: str) -> None:
    assert new_version(version, label) == expected


def test_a_label_that_is_none() -> None:
    with pytest.raises(UsageError, match="not a local version label") as caught:
        new_version("1.0", "not a label!")
    assert "cu128.sm90" in caught.value.hints[0]


@pytest.mark.parametrize(
    ("tag", "glibc", "expected"),
    [
        ("cp312-cp312-linux_x86_64", "2.27", "cp312-cp312-manylinux_2_27_x86_64"),
        ("py3-none-any", "2.17", "py3-none-manylinux_2_17_x86_64"),
        ("cp39-abi3-manylinux_2_28_x86_64", "2.17", "cp39-abi3-manylinux_2_28_x86_64"),
        ("cp39-abi3-manylinux2014_x86_64", "2.28", "cp39-abi3-manylinux_2_28_x86_64"),
        ("cp39-abi3-manylinux2014_x86_64", "2.17", "cp39-abi3-manylinux2014_x86_64"),
        ("cp39-abi3-linux_x86_64", "9.99", "cp39-abi3-linux_x86_64"),
    ],
)
def test_tags_become_honest_and_those_that_are_stay(tag: str, glibc: str, expected: str) -> None:
    tags, notes = new_tags((tag,), (library("warm/_C.so", glibc=glibc),), "x86_64")
    assert tags == (expected,)
    assert bool(notes) == (glibc == "9.99")


@pytest.mark.parametrize("platform", ["macosx_11_0_arm64", "musllinux_1_2_x86_64", "win_amd64"])
def test_systems_that_are_not_known(platform: str) -> None:
    with pytest.raises(UsageError, match=f"the wheel is for {platform}"):
        new_tags((f"cp312-cp312-{platform}",), (library("warm/_C.so"),), "x86_64")
