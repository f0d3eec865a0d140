"""Slimmed wheels as `stoker verify` sees them, and GPUs that find nothing to run."""

import pytest
from msgspec.structs import replace

from artifacts import artifact, device_code, wheel_facts
from stoker.model.artifact import ElfKind, LibraryFacts, RegionPattern
from stoker.model.finding import Severity
from stoker.model.slimming import SlimRecord
from stoker.outside.process import CommandResult
from stoker.plan.grammar import parse
from stoker.wheel.verify.code import as_slimmed
from stoker.wheel.verify.tested import SlimNote, WheelUnderTest
from stoker.wheel.verify.trial import GPU, judged_gpu


def case(
    *regions: str, targets: str = "9.0", asked: str | None = None, **note: object
) -> WheelUnderTest:
    """A wheel of one library with these regions, each a list of architectures."""
    archs = {arch for region in regions for arch in region.split()}
    library = LibraryFacts(
        path="mill/libmill.so",
        size_bytes=9,
        kind=ElfKind.LIBRARY,
        machine="x86_64",
        device_code=tuple(map(device_code, sorted(archs))),
        regions=tuple(RegionPattern(archs=tuple(region.split()), count=1) for region in regions),
    )
    record = SlimRecord(
        targets=tuple(targets.split()), label="x", private=bool(note.get("private"))
    )
    return WheelUnderTest(
        file_name="mill.whl",
        facts=artifact(library),
        metadata=wheel_facts(),
        members=(),
        slim=SlimNote(record=record),
        asked=parse(asked) if asked else None,
    )


def found(case: WheelUnderTest) -> dict[str, str]:
    return {finding.name: finding.evidence for finding in as_slimmed(case)}


@pytest.mark.parametrize(
    ("regions", "targets"),
    [
        (["sm_90", "sm_90 sm_90a"], "9.0"),
        (["sm_86", "sm_80"], "8.9"),
        (["sm_90", "sm_75"], "9.0"),  # a stub
        (["sm_86 sm_90", "sm_90 compute_90"], "8.6 9.0+ptx"),
    ],
)
def test_as_it_was_cut(regions: list[str], targets: str) -> None:
    assert found(case(*regions, targets=targets)) == {}


def test_what_is_left_over() -> None:
    assert found(case("sm_90 sm_80", "sm_90")) == {"not-slimmed": "mill/libmill.so: sm_80"}


def test_what_is_not_there() -> None:
    assert found(case("sm_90", targets="9.0 12.0")) == {"missing-architecture": "12.0"}
    assert found(case("sm_90", asked="sm120"))["missing-architecture"] == "12.0"
    assert found(case("sm_90", asked="sm90")) == {}


def test_what_may_not_be_passed_on() -> None:
    assert "licence" in found(case("sm_90", private=True))["private"]


def test_a_note_that_cannot_be_read() -> None:
    broken = replace(case("sm_90 sm_80"), slim=SlimNote(problem="no JSON"))
    assert found(broken) == {"unreadable-slim-note": "no JSON"}


SAID = """Traceback (most recent call last):
  File "<string>", line 3, in <module>
torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device
CUDA kernel errors might be asynchronously reported at some other API call
"""


def test_a_gpu_without_code() -> None:
    outcome = CommandResult(status=1, stdout="NVIDIA H200 has capability 9 0\n", stderr=SAID)
    finding = judged_gpu(outcome, ["9.0", "9.0"], {"sm_86", "sm_80"})
    assert (finding.name, finding.severity) == (GPU.name, Severity.ERROR)
    assert finding.title == "it holds no device code for this machine's GPU, sm_90"
    first, second = finding.evidence.splitlines()
    assert first == "it holds sm_80 sm_86"
    assert second.startswith("torch.AcceleratorError: CUDA error: no kernel image")
    assert "stoker slim" in finding.fix[0]


def test_a_gpu_that_fails_otherwise() -> None:
    outcome = CommandResult(status=1, stdout="", stderr="RuntimeError: out of memory")
    finding = judged_gpu(outcome, ["9.0"], {"sm_90"})
    assert finding.title.startswith("failed:")
    assert "out of memory" in finding.evidence
    assert (
        judged_gpu(CommandResult(status=0, stdout="computes\n", stderr=""), [], []).evidence
        == "computes"
    )
