"""Which code stays for which GPU: by what runs, region by region."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.knowledge.gpus import runs_on
from stoker.model.artifact import DeviceKind
from stoker.model.errors import UsageError
from stoker.model.slimming import ArchSlim, LibrarySlim
from stoker.model.variant import GpuTarget
from stoker.wheel.elf.fatbin import FatbinEntry
from stoker.wheel.inspect.runs_on import needed_code
from stoker.wheel.slim.selection import check_served, chooser, parse_targets, target_words

KINDS = {"sm": DeviceKind.CUBIN, "compute": DeviceKind.PTX, "lto": DeviceKind.LTOIR}
FLAGS = {"": 0, "a": 0x100000, "f": 0x200000}


def entry(arch: str) -> FatbinEntry:
    kind, _, name = arch.partition("_")
    number = name.rstrip("af")
    return FatbinEntry(
        offset=0,
        kind=KINDS[kind],
        number=int(number),
        flags=FLAGS[name[len(number) :]],
        header_size=64,
        payload_size=8,
        compressed_size=0,
        unpacked_size=8,
    )


def kept(region: str, wanted: str) -> str:
    """Names of the entries that stay, in order."""
    archs = region.split()
    choose = chooser(parse_targets(wanted))
    return " ".join(archs[index] for index in choose([entry(arch) for arch in archs]))


TORCH = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


@pytest.mark.parametrize(
    ("region", "wanted", "expected"),
    [
        (TORCH, "sm90", "sm_90"),
        (TORCH, "h200", "sm_90"),
        (TORCH, "sm86", "sm_86"),
        # An RTX 4090 has code of its own in few regions; elsewhere it runs that of 8.6, or of 8.0.
        (TORCH, "sm89", "sm_86"),
        ("sm_80 sm_86 sm_89 sm_90", "rtx4090", "sm_89"),
        ("sm_75 sm_80 sm_90", "rtx4090", "sm_80"),
        (TORCH, "sm121", "sm_120"),
        (TORCH, "sm103", "sm_100"),
        # Several targets: what any of them takes.
        (TORCH, "sm90,sm86", "sm_86 sm_90"),
        (TORCH, "rtx3090,rtx4090", "sm_86"),
        # Code for one chip and for a family goes along with the plain: the driver may take either.
        ("sm_90 sm_90a sm_100a", "sm90", "sm_90 sm_90a"),
        ("sm_90 sm_90a sm_100a", "sm90a", "sm_90 sm_90a"),
        ("sm_100a sm_100f sm_103a", "sm103", "sm_100f sm_103a"),
        ("sm_100f sm_103f sm_100", "b300", "sm_103f sm_100"),
        ("sm_100a", "sm103", ""),
        ("sm_120f sm_120a", "sm121", "sm_120f"),
        # Boards take only their own.
        ("sm_80 sm_86 sm_87", "orin", "sm_87"),
        ("sm_80 sm_86", "orin", ""),
        ("sm_87 sm_80", "sm89", "sm_80"),
        # PTX and LTO-IR only where nothing else runs, or where asked for.
        ("sm_80 compute_80 compute_90", "sm90", "compute_90"),
        ("sm_90 compute_90", "sm90", "sm_90"),
        ("sm_80 compute_80", "sm90", "compute_80"),
        ("compute_120 compute_80", "sm90", "compute_80"),
        ("compute_90a compute_80", "sm90", "compute_90a compute_80"),
        ("compute_90a", "sm100", ""),
        ("lto_80 lto_90", "sm90", "lto_90"),
        ("lto_80 compute_80", "sm90", "compute_80"),
        ("lto_80 sm_90", "sm90", "sm_90"),
        ("sm_90 compute_80 compute_90", "sm90+ptx", "sm_90 compute_90"),
        ("sm_86 sm_90 compute_80 compute_90", "sm86+ptx,sm90", "sm_86 sm_90 compute_80"),
        ("sm_90 compute_120", "sm90+ptx", "sm_90 compute_120"),
        ("sm_90 compute_100a", "sm90+ptx", "sm_90"),
        # Nothing runs: a stub is for others to choose.
        ("sm_80 sm_86", "sm90", ""),
        ("", "sm90", ""),
        # Several entries of one architecture belong together.
        ("sm_90 sm_80 sm_90", "sm90", "sm_90 sm_90"),
    ],
)
def test_what_stays(region: str, wanted: str, expected: str) -> None:
    assert kept(region, wanted) == expected


ARCHS = st.builds(
    "{}_{}{}".format,
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([50, 53, 70, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121]),
    st.sampled_from(sorted(FLAGS)),
)
GPUS = st.builds(
    GpuTarget,
    arch=st.sampled_from(["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.1"]),
    ptx=st.booleans(),
)


def way(arch: str, capability: str) -> str | None:
    kind, _, name = arch.partition("_")
    number = name.rstrip("af")
    dotted = f"{number[:-1]}.{number[-1]}{name[len(number) :]}"
    if kind == "lto":
        return None
    found = runs_on(GpuTarget(arch=dotted, ptx=kind == "compute"), capability)
    return found and ("cubin" if kind == "sm" else "ptx")


def best(archs: Iterable[str], capability: str) -> str | None:
    ways = {way(arch, capability) for arch in archs}
    return "cubin" if "cubin" in ways else "ptx" if "ptx" in ways else None


@given(st.lists(ARCHS, max_size=8), st.lists(GPUS, min_size=1, max_size=3))
def test_no_gpu_is_served_worse_than_before(archs: list[str], gpus: list[GpuTarget]) -> None:
    needed = needed_code(archs, gpus)
    assert needed <= set(archs)
    for gpu in gpus:
        assert best(needed, gpu.arch) == best(archs, gpu.arch)
        fitting = [arch for arch in archs if way(arch, gpu.arch) == "cubin"]
        if fitting:  # the newest of them is there
            assert max(fitting, key=lambda arch: int(arch[3:].rstrip("af"))) in needed or any(
                arch in needed and arch[3:].rstrip("af") == max(fitting)[3:].rstrip("af")
                for arch in fitting
            )


@given(st.lists(ARCHS, max_size=8), st.lists(GPUS, min_size=1, max_size=3))
def test_choosing_again_changes_nothing(archs: list[str], gpus: list[GpuTarget]) -> None:
    once = needed_code(archs, gpus)
    assert needed_code(once, gpus) == once


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("sm90", "sm90"),
        ("SM_90", "sm90"),
        ("sm90,sm86+ptx", "sm86.ptx.sm90"),
        ("h100,rtx4090", "sm89.sm90"),
        ("H100 and RTX 4090", "sm89.sm90"),
        ("9.0+PTX", "sm90.ptx"),
        ("sm90,h100", "sm90"),
    ],
)
def test_targets(text: str, label: str) -> None:
    assert target_words(parse_targets(text)) == label


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "at least one word"),
        ("h1000", "unknown word 'h1000'"),
        ("sm_91", "unknown GPU architecture"),
        ("mi300x", "rocm"),
        ("avx2", "names no GPU"),
        ("native", "no meaning here"),
        ("h100 py312 linux-x86_64", "does not choose the python and platform"),
        ("cu130-sm90-avx512", "does not choose the toolkit and cpu"),
    ],
)
def test_what_is_no_target(text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        parse_targets(text)


def holding(*archs: str) -> LibrarySlim:
    rows = tuple(ArchSlim(arch=arch, kept=1) for arch in archs)
    return LibrarySlim(path="libmill.so", before_bytes=9, after_bytes=9, archs=rows)


def test_a_target_that_nothing_serves() -> None:
    with pytest.raises(UsageError, match="runs on sm120") as raised:
        check_served([holding("sm_90", "sm_80", "compute_90a")], parse_targets("sm90,sm120"))
    assert raised.value.hints == ("choose GPUs among compute_90a sm_80 sm_90",)


def test_a_target_that_one_library_serves() -> None:
    check_served([holding("sm_80"), holding("sm_90")], parse_targets("sm90,rtx4090"))
    check_served([holding("compute_80")], parse_targets("sm90"))
    check_served([], parse_targets("sm90"))
    check_served([holding()], parse_targets("sm90"))
