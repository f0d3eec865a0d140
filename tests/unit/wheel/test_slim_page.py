"""The page of the plan of `stoker slim`."""

from stoker.model.slimming import ArchSlim, LibrarySlim, SlimLayout, SlimReport
from stoker.outside.terminal import rendered
from stoker.wheel.slim.page import slim_lines, slim_page

MIB = 1 << 20


def report() -> SlimReport:
    large = LibrarySlim(
        path="torch/lib/libtorch_cuda.so",
        before_bytes=1000 * MIB,
        after_bytes=250 * MIB,
        kept=452,
        dropped=1971,
        stubs=3,
        layout=SlimLayout.MOVE,
        archs=(
            ArchSlim(arch="sm_90", kept=449, kept_bytes=140 * MIB),
            ArchSlim(arch="sm_100", dropped=1900, dropped_bytes=750 * MIB),
        ),
    )
    small = LibrarySlim(
        path="torch/lib/libtorch_nvshmem.so",
        before_bytes=4 * MIB,
        after_bytes=MIB,
        kept=4,
        dropped=8,
        layout=SlimLayout.PIN,
        archs=(ArchSlim(arch="sm_90", kept=4, kept_bytes=MIB),),
    )
    odd = LibrarySlim(
        path="torch/lib/libodd.so",
        before_bytes=MIB,
        after_bytes=MIB,
        skipped_because="odd at byte 7",
    )
    before, after = 1005 * MIB, 252 * MIB
    return SlimReport(
        before_bytes=before, after_bytes=after, libraries=(small, odd, large), notes=("mind",)
    )


def lines(report: SlimReport) -> list[list[str]]:
    return [line.split() for line in rendered(slim_page(report), 100).splitlines()]


def test_the_page() -> None:
    page = lines(report())
    assert page[0] == ["1005", "MiB", "->", "252", "MiB", "(25", "%)"]  # the result first
    first, second, third = page[3:6]  # the largest first
    assert first[0] == "torch/lib/libtorch_cuda.so"
    assert first[1:] == ["1000", "MiB", "250", "MiB", "25", "%", "452", "1971"]
    assert second[1:] == ["4.0", "MiB", "1.0", "MiB", "25", "%", "4", "8"]
    assert third[-1] == "unchanged"
    assert ["sm_90", "453", "141", "MiB"] in page
    assert ["sm_100", "1900", "750", "MiB"] in page
    assert page.index(["sm_90", "453", "141", "MiB"]) < page.index(["sm_100", "1900", "750", "MiB"])
    assert ["unchanged", "torch/lib/libodd.so:", "odd", "at", "byte", "7"] in page
    assert ["note", "mind"] in page


def test_the_lines() -> None:
    assert slim_lines(report()).splitlines() == [
        "1005 MiB -> 252 MiB (25 %)",
        "note: torch/lib/libodd.so was not changed: odd at byte 7",
        "note: mind",
    ]


def test_nothing_at_all() -> None:
    report = SlimReport(before_bytes=0, after_bytes=0, notes=("nothing to do",))
    assert lines(report) == [["note", "nothing", "to", "do"]]
