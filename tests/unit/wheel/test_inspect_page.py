"""The page of `stoker inspect`: bars, what runs, what is missing."""

from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    Dependency,
    DeviceCode,
    DeviceKind,
    FactDifference,
    LibraryFacts,
    LibraryOrigin,
    RunsOn,
    TargetKind,
    WheelFacts,
)
from stoker.outside.terminal import Page, rendered
from stoker.wheel.inspect_page import fact_differences_page, inspection_page, share_bar

WHEEL = WheelFacts(
    name="mill",
    version="1.2",
    tags=("cp312-cp312-linux_x86_64",),
    members=9,
    unpacked_bytes=5 << 20,
)


def _shown(what: Page) -> str:
    return rendered(what, 160)


def _code(arch: str, amount: int, linked: bool = True) -> DeviceCode:
    return DeviceCode(
        kind=DeviceKind.CUBIN,
        arch=arch,
        size_bytes=amount,
        count=3,
        unpacked_bytes=amount * 4,
        compression=(Compression.ZSTD,),
        section=".nv_fatbin",
        linked=linked,
    )


def _facts(wheel: WheelFacts | None = WHEEL, problem: str | None = None) -> ArtifactFacts:
    return ArtifactFacts(
        path="mill.whl",
        kind=TargetKind.WHEEL,
        size_bytes=2 << 20,
        wheel=wheel,
        libraries=(
            LibraryFacts(
                path="mill/lib/libmill.so",
                size_bytes=4 << 20,
                versions={"GLIBC": "2.28"},
                rpath=("$ORIGIN", "/a"),
                device_code=(
                    _code("sm_90a", 1 << 20),
                    _code("sm_80", 2 << 20),
                    _code("sm_75", 77, linked=False),
                ),
                sections={".text": 1 << 20},
            ),
            LibraryFacts(path="mill/broken.so", size_bytes=10, problem=problem or "no"),
        ),
        dependencies=(
            Dependency(name="libq.so.0", origin=LibraryOrigin.MISSING, wanted_by=("mill/x.so",)),
            Dependency(name="libc.so.6", origin=LibraryOrigin.SYSTEM, wanted_by=("mill/x.so",)),
        ),
        unresolved=("libq.so.0",),
        runs_on=(
            RunsOn(arch="7.5", names=("T4",), by=DeviceKind.CUBIN, without=("mill/x.so",)),
            RunsOn(arch="9.0", names=("H100", "H200"), by=DeviceKind.PTX, partly=("mill/y.so",)),
        ),
        minimum_driver="550.54.14",
        notes=("2 static archives (.a) were not read",),
    )


def test_bars() -> None:
    assert share_bar(1.0, 4) == "████"
    assert share_bar(0.5, 4) == "██  "
    assert share_bar(0.53125, 4) == "██▏ "
    assert share_bar(0.0, 4) == "▏   "
    assert share_bar(7.0, 2) == "██"


def test_the_page_of_a_wheel() -> None:
    text = _shown(inspection_page(_facts()))
    lines = [line.split() for line in text.splitlines()]
    assert "mill 1.2  cp312-cp312-linux_x86_64" in text
    assert "driver 550.54.14 or newer" in text
    assert ["sm_80", "█" * 28, "2.0", "MiB", "3", "cubin", "zstd"] in lines
    assert text.index("sm_80") < text.index("sm_90a")
    assert ["not", "linked", "never", "runs", "77", "B", "3", "cubin", "zstd"] in lines
    remark = "compiled from PTX when it is loaded; some kernels missing in y.so"
    assert f"9.0 H100, H200 {remark}" in " ".join(text.split())
    assert "7.5" in text
    assert "partly: no code in x.so" in text
    assert "libq.so.0  needed by x.so" in text
    assert "MISSING" in text
    assert "not read" in text
    assert "$ORIGIN /a" in text
    assert "2 static archives" in text


def test_what_a_lone_library_does_not_hold_is_no_mistake() -> None:
    text = _shown(inspection_page(_facts(wheel=None)))
    assert "not included" in text
    assert "MISSING" not in text


def test_a_thing_without_libraries() -> None:
    empty = ArtifactFacts(
        path="mill",
        kind=TargetKind.FOLDER,
        size_bytes=3,
        libraries=(),
        dependencies=(),
        unresolved=(),
        runs_on=(),
    )
    assert _shown(inspection_page(empty)).split() == [
        "mill",
        "folder",
        "3",
        "B,",
        "no",
        "libraries",
    ]


def test_differences() -> None:
    rows = (
        FactDifference(subject="", name="version", before="1", after="2"),
        FactDifference(subject="a.so", name="sm_80", before="9 B in 1", after=None),
        FactDifference(subject="a.so", name="needs b.so", before=None, after="yes"),
    )
    lines = [line.split() for line in _shown(fact_differences_page(rows)).splitlines()]
    assert ["~", "version", "1", "2"] in lines
    assert ["-", "sm_80", "9", "B", "in", "1"] in lines
    assert ["+", "needs", "b.so", "yes"] in lines
    assert _shown(fact_differences_page(())).strip() == "no difference"
