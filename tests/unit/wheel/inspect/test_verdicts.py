"""The GPUs and systems that libraries run on, and differences between two libraries."""

import pytest

from artifacts import artifact, device_code, wheel_facts
from stoker.knowledge.manylinux import excess, policies
from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    DeviceCode,
    DeviceKind,
    LibraryFacts,
    RegionPattern,
)
from stoker.wheel.inspect.differences import compare_facts
from stoker.wheel.inspect.runs_on import minimum_driver, oldest_manylinux, served_gpus


def _library(*codes: DeviceCode, path: str = "lib.so", **facts: object) -> LibraryFacts:
    """All the code that runs is in one region."""
    archs = tuple(code.arch for code in codes if code.linked)
    regions = (RegionPattern(archs=archs, count=2),) if archs else ()
    return LibraryFacts(
        path=path,
        size_bytes=10,
        device_code=codes,
        regions=regions,
        **facts,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("archs", "expected"),
    [
        (["sm_90"], {"9.0": "cubin"}),
        (["sm_90a"], {"9.0": "cubin"}),
        (["sm_86"], {"8.6": "cubin", "8.8": "cubin", "8.9": "cubin"}),
        (["compute_120"], {"12.0": "ptx", "12.1": "ptx"}),
        (["sm_120", "compute_120"], {"12.0": "cubin", "12.1": "cubin"}),
        (["compute_121a"], {"12.1": "ptx"}),
        (["sm_100f"], {"10.0": "cubin", "10.3": "cubin", "10.7": "cubin"}),
        (["lto_90"], {}),
    ],
)
def test_gpus_that_run_it(archs: list[str], expected: dict[str, str]) -> None:
    rows = served_gpus([_library(*map(device_code, archs))])
    assert {row.arch: str(row.by) for row in rows} == expected


def test_a_library_that_lacks_code_for_a_gpu_is_named() -> None:
    large = _library(device_code("sm_75"), device_code("sm_80"), path="large.so")
    small = _library(device_code("sm_80"), path="small.so")
    rows = {row.arch: row for row in served_gpus([large, small, _library(path="plain.so")])}
    assert rows["7.5"].without == ("small.so",)
    assert rows["8.0"].without == ()


def test_a_library_that_lacks_code_in_some_regions_is_named() -> None:
    """As in an official wheel, of which one library has a single region for the oldest GPU."""
    regions = (
        RegionPattern(archs=("sm_80", "compute_90"), count=32),
        RegionPattern(archs=("sm_75", "sm_80"), count=1),
    )
    library = LibraryFacts(path="lib.so", size_bytes=1, regions=regions)
    rows = {row.arch: row for row in served_gpus([library])}
    assert (rows["7.5"].without, rows["7.5"].partly) == ((), ("lib.so",))
    assert rows["8.0"].partly == ()
    assert (rows["9.0"].by, rows["9.0"].partly) == (DeviceKind.PTX, ("lib.so",))


def test_code_left_over_from_linking_serves_no_gpu() -> None:
    assert served_gpus([_library(device_code("sm_90", linked=False))]) == ()


def test_only_zstd_demands_a_driver() -> None:
    assert minimum_driver([_library(device_code("sm_80"))]) is None
    assert minimum_driver([_library(device_code("sm_80", Compression.ZSTD))]) == "550.54.14"
    left_over = device_code("sm_80", Compression.ZSTD, linked=False)
    assert minimum_driver([_library(left_over)]) is None


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"GLIBC": "2.17"}, "manylinux_2_17"),
        ({"GLIBC": "2.28", "GLIBCXX": "3.4.22"}, "manylinux_2_28"),
        ({"GLIBC": "2.28", "GLIBCXX": "3.4.30"}, "manylinux_2_35"),
        ({"GLIBC": "2.17", "OMP": "5.0"}, "manylinux_2_17"),
        ({"GLIBC": "9.1"}, None),
    ],
)
def test_the_oldest_manylinux(versions: dict[str, str], expected: str | None) -> None:
    plain = _library(machine="x86_64", versions={"GLIBC": "2.4"})
    newer = _library(machine="x86_64", versions=versions)
    assert oldest_manylinux([plain, newer]) == expected


def test_no_manylinux_for_another_machine_or_nothing() -> None:
    assert oldest_manylinux([_library(machine="cuda")]) is None
    assert oldest_manylinux([]) is None


def test_a_later_policy_promises_no_less() -> None:
    for earlier, later in zip(policies(), policies()[1:], strict=False):
        for machine, newest in earlier.newest.items():
            if machine in later.newest:
                assert excess(later, machine, newest) == {}, (earlier.name, later.name, machine)


def _artifact(*libraries: LibraryFacts, version: str = "1", requires: str = "") -> ArtifactFacts:
    required = tuple(filter(None, requires.split(",")))
    return artifact(*libraries, wheel=wheel_facts(version=version, requires=required))


def test_nothing_differs_from_itself() -> None:
    facts = _artifact(_library(device_code("sm_90")), requires="torch==2.9")
    assert compare_facts(facts, facts) == ()


def test_what_differs() -> None:
    before = _artifact(
        _library(device_code("sm_80"), device_code("sm_90"), path="a.so", needed=("libx.so",)),
        _library(path="gone.so"),
        requires="torch==2.9,numpy",
    )
    after = _artifact(
        _library(device_code("sm_90"), path="a.so", rpath=("$ORIGIN",)),
        version="1+sm90",
        requires="torch==2.10",
    )
    rows = {
        (row.subject, row.name): (row.before, row.after) for row in compare_facts(before, after)
    }
    assert rows["", "version"] == ("1", "1+sm90")
    assert rows["", "requires torch"] == ("torch==2.9", "torch==2.10")
    assert rows["", "requires numpy"] == ("numpy", None)
    assert rows["", "GPU 8.0"] == ("by cubin", None)
    assert rows["a.so", "sm_80"] == ("1000 B in 2", None)
    assert rows["a.so", "needs libx.so"] == ("yes", None)
    assert rows["a.so", "RPATH"] == ("", "$ORIGIN")
    assert rows["gone.so", "size"] == ("10 B", None)
    assert ("a.so", "sm_90") not in rows
