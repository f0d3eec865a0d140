"""What a catalogue says about a wheel: from its plan, its slim record, its metadata, its code."""

from typing import Any

import pytest

from stoker.catalogue.entry import FileIdentity, RecordedOrigin, make_entry
from stoker.catalogue.values import ArchCode, CodeRegions, PublishedWheel
from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    CxxAbi,
    DeviceCode,
    DeviceKind,
    LibraryFacts,
    RegionPattern,
    TargetKind,
    WheelFacts,
)
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.slimming import SlimRecord
from stoker.model.variant import Backend
from stoker.plan.grammar import parse

TAG = "cp312-cp312-manylinux_2_28_x86_64"


def code(arch: str, size: int, *, linked: bool = True) -> DeviceCode:
    return DeviceCode(
        kind=DeviceKind.CUBIN,
        arch=arch,
        size_bytes=size,
        count=2,
        unpacked_bytes=size,
        compression=(Compression.LZ4,),
        section=".nv_fatbin",
        linked=linked,
    )


def library(*archs: str, **changes: Any) -> LibraryFacts:
    values = {
        "path": "torch/lib/libtorch_cuda.so",
        "size_bytes": 1000,
        "machine": "x86_64",
        "needed": ("libcudart.so.12", "libc.so.6"),
        "cxx_abi": CxxAbi.CXX11,
        "device_code": tuple(code(arch, 100) for arch in archs),
        "regions": (RegionPattern(archs=archs, count=3),) if archs else (),
    }
    return LibraryFacts(**{**values, **changes})


def entry(
    *libraries: LibraryFacts,
    name: str = "torch",
    version: str = "2.9.1",
    requires: tuple[str, ...] = (),
    file: str | None = None,
    **recorded: Any,
) -> PublishedWheel:
    wheel = WheelFacts(
        name=name, version=version, tags=(TAG,), requires=requires, members=9, unpacked_bytes=5000
    )
    facts = ArtifactFacts(
        path="here",
        kind=TargetKind.WHEEL,
        size_bytes=1000,
        wheel=wheel,
        libraries=libraries,
        dependencies=(),
        unresolved=(),
        runs_on=(),
    )
    identity = FileIdentity(
        file=file or f"{name.replace('-', '_')}-{version}-{TAG}.whl",
        sha256="a" * 64,
        size=1000,
        metadata_sha256="b" * 64,
        built="2026-11-15T12:00:00Z",
    )
    return make_entry(identity, facts, RecordedOrigin(**recorded))


def test_a_wheel_that_stoker_built() -> None:
    made = entry(library("sm_90"), plan=parse("cu128-sm90-avx512-mkl-py312"))
    assert (made.variant, made.backend, made.cuda) == (
        "cu128-sm90-avx512-mkl",
        Backend.CUDA,
        "12.8",
    )
    assert (made.cpu, made.blas) == ("avx512", "mkl")
    assert "avx512f" in made.cpu_needs
    assert made.cxx_abi is CxxAbi.CXX11


def test_an_official_wheel_that_was_slimmed() -> None:
    """The CUDA release comes from the package that it requires."""
    slim = SlimRecord(targets=("9.0", "8.6+ptx"), label="sm86.ptx.sm90")
    lines = ("filelock", "nvidia-cuda-runtime-cu12==12.8.90; platform_system == 'Linux'")
    made = entry(library("sm_90"), version="2.9.1+sm86.ptx.sm90", requires=lines, slim=slim)
    assert (made.variant, made.cuda) == ("cu128-sm90-sm86-ptx", "12.8")
    assert made.slimmed_for == ("9.0", "8.6+ptx")
    meta = ("cuda-toolkit[cublas,cudart]==13.0.2; platform_system == 'Linux'",)
    assert entry(library("sm_90"), requires=meta).cuda == "13.0"


@pytest.mark.parametrize(
    ("version", "libraries", "variant", "cuda"),
    [
        ("2.9.1+cu126", (library("sm_90"),), "cu126", "12.6"),
        ("2.9.1", (library("sm_90"),), "cuda", "12"),
        ("2.9.1", (library(needed=("libcuda.so.1",)),), "cuda", None),
        ("2.9.1", (library(needed=("libc.so.6",)),), "cpu", None),
        ("2.9.1", (), "cpu", None),
    ],
)
def test_wheels_of_others(
    version: str, libraries: tuple[LibraryFacts, ...], variant: str, cuda: str | None
) -> None:
    """The version's label, else what the libraries tell."""
    made = entry(*libraries, version=version)
    assert (made.variant, made.cuda) == (variant, cuda)


def test_device_code_of_all_libraries() -> None:
    one = library("sm_80", "sm_90")
    two = library("sm_80", "sm_90", path="torch/lib/other.so")
    odd = library("compute_90", device_code=(code("compute_90", 7), code("sm_70", 9, linked=False)))
    made = entry(one, two, odd)
    assert made.regions == (
        CodeRegions(archs=("compute_90",), count=3),
        CodeRegions(archs=("sm_80", "sm_90"), count=6),
    )
    assert made.code == (
        ArchCode(arch="compute_90", size_bytes=7, count=2),
        ArchCode(arch="sm_80", size_bytes=200, count=4),
        ArchCode(arch="sm_90", size_bytes=200, count=4),
    )


def test_device_code_of_bundled_libraries_is_not_that_of_the_package() -> None:
    """As torchvision, whose own kernels are fewer than those of the nvJPEG that it bundles."""
    own = library("sm_80", path="mill/_C.so")
    bundled = library("sm_50", path="mill.libs/libnvjpeg.8dd2b5e6.so.12", soname="libnvjpeg.so.12")
    beside = library("sm_61", path="mill/lib/libnvjpeg.so.12")
    assert [one.archs for one in entry(bundled, own, beside).regions] == [("sm_80",)]
    of_others = library("sm_70", path="mill.libs/libgrain-0a1b2c3d.so.1")
    assert [code.arch for code in entry(own, of_others).code] == ["sm_80"]
    nvidias = entry(
        library("sm_50", path="nvidia/nvjpeg/lib/libnvjpeg.so.12"), name="nvidia-nvjpeg"
    )
    assert [one.archs for one in nvidias.regions] == [("sm_50",)]


@pytest.mark.parametrize(
    ("version", "requires", "torch"),
    [
        ("2.8.3", ("torch==2.9.1",), "2.9.1"),
        ("2.8.3", ("torch",), None),
        ("2.8.3", ("torch==2.9.*",), None),
        ("2.8.3+cu12torch2.9cxx11abitrue", ("torch",), "2.9"),
    ],
)
def test_the_torch_of_an_extension(
    version: str, requires: tuple[str, ...], torch: str | None
) -> None:
    made = entry(library("sm_90"), name="flash-attn", version=version, requires=requires)
    assert made.torch == torch


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": f"other-2.9.1-{TAG}.whl"}, "the file's name says other 2.9.1"),
        ({"file": f"torch-2.9.2-{TAG}.whl"}, "the file's name says torch 2.9.2"),
        ({"file": "torch.whl"}, "Invalid wheel filename"),
        ({"name": "<b>", "file": f"torch-2.9.1-{TAG}.whl"}, "the wheel itself <b> 2.9.1"),
        ({"version": "latest", "file": f"torch-2.9.1-{TAG}.whl"}, "Invalid version"),
        ({"version": "9" * 5000, "file": f"torch-2.9.1-{TAG}.whl"}, "Invalid version"),
    ],
)
def test_names_that_do_not_match(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        entry(**changes)  # type: ignore[arg-type]


def test_a_name_that_the_catalogue_itself_uses() -> None:
    with pytest.raises(UsageError, match="'files' cannot be the name of a variant"):
        entry(version="2.9.1+files")
