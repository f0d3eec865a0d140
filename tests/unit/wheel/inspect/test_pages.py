"""What commands about wheels show: each page has the facts that it is made from."""

from xml.etree import ElementTree

from artifacts import artifact, device_code, wheel_facts
from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    Dependency,
    DeviceKind,
    LibraryFacts,
    LibraryOrigin,
    RunsOn,
    TargetKind,
    WheelFacts,
)
from stoker.model.finding import Finding, Severity
from stoker.model.slimming import ArchSlim, LibrarySlim, SlimLayout, SlimReport
from stoker.outside.terminal import Page, rendered
from stoker.wheel.inspect.differences import FactDifference, fact_differences_page
from stoker.wheel.inspect.facts_page import inspection_page
from stoker.wheel.package.licences import Licence
from stoker.wheel.package.packaging import Packaged
from stoker.wheel.package.plan import LibraryChange, PackagePlan
from stoker.wheel.package.plan_page import package_page, packaged_lines
from stoker.wheel.package.request import PackageMode
from stoker.wheel.package.sources import LibrarySource
from stoker.wheel.slim.report_page import slim_lines, slim_page
from stoker.wheel.verify.findings_page import (
    verification_json,
    verification_junit,
    verification_page,
    verification_verdict,
)
from stoker.wheel.verify.tested import Verification

MIB = 1 << 20


def rows(page: Page) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in rendered(page, 160).splitlines()]


def inspected(wheel: WheelFacts | None) -> ArtifactFacts:
    library = LibraryFacts(
        path="mill/lib/libmill.so",
        size_bytes=4 * MIB,
        versions={"GLIBC": "2.28"},
        rpath=("$ORIGIN", "/a"),
        device_code=(
            device_code("sm_90a", Compression.ZSTD, size_bytes=MIB, count=3),
            device_code("sm_80", Compression.ZSTD, size_bytes=2 * MIB, count=3),
            device_code("sm_75", Compression.ZSTD, linked=False, size_bytes=77, count=3),
        ),
        sections={".text": MIB},
    )
    needs = {"libq.so.0": LibraryOrigin.MISSING, "libc.so.6": LibraryOrigin.SYSTEM}
    return artifact(
        library,
        LibraryFacts(path="mill/broken.so", size_bytes=10, problem="no"),
        wheel=wheel,
        dependencies=tuple(
            Dependency(name=name, origin=origin, wanted_by=("mill/x.so",))
            for name, origin in needs.items()
        ),
        unresolved=("libq.so.0",),
        runs_on=(
            RunsOn(arch="7.5", names=("T4",), by=DeviceKind.CUBIN, without=("mill/x.so",)),
            RunsOn(arch="9.0", names=("H100", "H200"), by=DeviceKind.PTX, partly=("mill/y.so",)),
        ),
        minimum_driver="550.54.14",
        notes=("2 static archives (.a) were not read",),
    )


def test_an_inspected_wheel() -> None:
    page = inspection_page(inspected(wheel_facts(tags=("cp312-cp312-linux_x86_64",))))
    found, text = rows(page), rendered(page, 160)
    assert ["sm_80", "█" * 28, "2.0", "MiB", "3", "cubin", "zstd"] in found
    assert ["not", "linked", "never", "runs", "77", "B", "3", "cubin", "zstd"] in found
    assert text.index("sm_80") < text.index("sm_90a")
    for fact in ("cp312-cp312-linux_x86_64", "550.54.14", "H100, H200", "y.so", "no code in x.so"):
        assert fact in text
    for fact in ("libq.so.0  needed by x.so", "MISSING", "not read", "$ORIGIN /a", "2 static"):
        assert fact in text
    assert "MISSING" not in rendered(inspection_page(inspected(None)), 160)  # a lone library
    empty = artifact(wheel=None, kind=TargetKind.FOLDER, path="mill", size_bytes=3)
    assert rows(inspection_page(empty)) == [["mill", "folder"], ["3", "B,", "no", "libraries"]]


def test_differences() -> None:
    changes = (
        FactDifference(subject="", name="version", before="1", after="2"),
        FactDifference(subject="a.so", name="sm_80", before="9 B in 1", after=None),
        FactDifference(subject="a.so", name="needs b.so", before=None, after="yes"),
    )
    found = rows(fact_differences_page(changes))
    assert ["~", "version", "1", "2"] in found
    assert ["-", "sm_80", "9", "B", "in", "1"] in found
    assert ["+", "needs", "b.so", "yes"] in found
    assert rows(fact_differences_page(())) == [["no", "difference"]]


def test_a_plan_of_a_package() -> None:
    plan = PackagePlan(
        mode=PackageMode.BUNDLE,
        wheel="built/warm-1.0-py3-none-linux_x86_64.whl",
        file_name="warm-1.0-py3-none-manylinux_2_28_x86_64.whl",
        version="1.0",
        tags=("py3-none-manylinux_2_28_x86_64",),
        changed=(
            *(
                LibraryChange(path=f"warm/{name}.so", rpath="$ORIGIN:$ORIGIN/a")
                for name in "abcdef"
            ),
            LibraryChange(
                path="warm/g.so", rpath="", needed={"libold.so": "libnew.so"}, strip=True
            ),
        ),
        added=(
            LibraryChange(
                path="warm.libs/libnew.so",
                rpath="$ORIGIN",
                source=LibrarySource(file="nvidia.whl", member="nvidia/libold.so"),
                size_bytes=3 * MIB,
            ),
        ),
        requires_added=("torch==2.15.0",),
        requires_dropped=("torch",),
        licences=(Licence(path="nvidia/License.txt", source=LibrarySource(file="/cuda/EULA")),),
        notes=("libold.so opens libmore.so, which was not found",),
    )
    found = rows(package_page(plan))
    assert found[0] == [plan.file_name, "bundle"]
    for row in (
        "warm.libs/libnew.so 3.0 MiB nvidia.whl: nvidia/libold.so",
        "warm/a.so, warm/b.so, warm/c.so, warm/d.so and 2 more",
        "$ORIGIN/a",
        "none",
        "libold.so -> libnew.so warm/g.so",
        "- torch",
        "+ torch==2.15.0",
        "nvidia/License.txt /cuda/EULA",
        f"note {plan.notes[0]}",
    ):
        assert row.split() in found
    plain = PackagePlan(mode=PackageMode.PLAIN, wheel="a", file_name="b", version="1", tags=())
    assert rows(package_page(plain)) == [["b", "plain"], ["from", "a"], []]
    made = Packaged(path="dist/a.whl", size_bytes=5 * MIB, debug_files=("a.debug", "b.debug"))
    assert packaged_lines(made) == "dist/a.whl, 5.0 MiB, 2 debug files next to it"


def test_a_slimmed_wheel() -> None:
    large = LibrarySlim(
        path="libtorch_cuda.so",
        before_bytes=1000 * MIB,
        after_bytes=250 * MIB,
        kept=452,
        dropped=1971,
        layout=SlimLayout.MOVE,
        archs=(
            ArchSlim(arch="sm_90", kept=449, kept_bytes=140 * MIB),
            ArchSlim(arch="sm_100", dropped=1900, dropped_bytes=750 * MIB),
        ),
    )
    small = LibrarySlim(
        path="libnvshmem.so",
        before_bytes=4 * MIB,
        after_bytes=MIB,
        kept=4,
        archs=(ArchSlim(arch="sm_90", kept=4, kept_bytes=MIB),),
    )
    odd = LibrarySlim(
        path="libodd.so", before_bytes=MIB, after_bytes=MIB, skipped_because="odd at byte 7"
    )
    report = SlimReport(
        before_bytes=1005 * MIB,
        after_bytes=252 * MIB,
        libraries=(small, odd, large),
        notes=("mind",),
    )
    found = rows(slim_page(report))
    assert found[0] == ["1005", "MiB", "->", "252", "MiB", "(25", "%)"]  # the result first
    assert found[3][1:] == ["1000", "MiB", "250", "MiB", "25", "%", "452", "1971"]
    assert [row[0] for row in found[3:6]] == ["libtorch_cuda.so", "libnvshmem.so", "libodd.so"]
    by_arch = [["sm_90", "453", "141", "MiB"], ["sm_100", "1900", "750", "MiB"]]
    assert [row for row in found if row in by_arch] == by_arch
    assert ["unchanged", "libodd.so:", "odd", "at", "byte", "7"] in found
    assert slim_lines(report).splitlines() == [
        "1005 MiB -> 252 MiB (25 %)",
        "note: libodd.so was not changed: odd at byte 7",
        "note: mind",
    ]
    nothing = SlimReport(before_bytes=0, after_bytes=0, notes=("nothing to do",))
    assert rows(slim_page(nothing)) == [["note", "nothing", "to", "do"]]


FINDINGS = tuple(
    Finding(name=f"check-{severity}", severity=severity, title=f"is {severity}", evidence="a\x1bb")
    for severity in reversed(Severity)
)


def verification(*findings: Finding) -> Verification:
    return Verification(
        wheel="mill.whl", name="mill", version="1.2", variant="cpu", findings=findings
    )


def test_the_verdict_of_verify() -> None:
    text = rendered(verification_page(verification(*FINDINGS)), 120)
    assert "ERROR  is error" in text
    assert "not sound: 1 error, 1 warning." in text
    assert verification_verdict(verification()) == "This wheel is sound."
    warnings = [one for one in FINDINGS if one.severity is Severity.WARNING] * 2
    assert verification_verdict(verification(*warnings)) == "This wheel is sound: 2 warnings."
    assert verification_json(verification())["ok"] is True
    assert verification_json(verification(*FINDINGS))["ok"] is False


def test_junit_fails_for_errors_and_skips_notes() -> None:
    suite = ElementTree.fromstring(verification_junit(verification(*FINDINGS)))
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "4", "failures": "1", "skipped": "1", "errors": "0"}
    (failure,) = suite.iterfind("testcase[@name='check-error']/failure")
    assert failure.get("message") == "is error"
    assert failure.text == "a\N{REPLACEMENT CHARACTER}b"  # XML has no way to write an escape
    assert suite.find("testcase[@name='check-note']/skipped") is not None
    assert suite.find("testcase[@name='check-ok']/failure") is None
