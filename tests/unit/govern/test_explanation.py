"""Why steps waited, were paused or were killed, as sentences."""

from stoker.govern.client.explanation import RunExplanation, SerialBuild, cause_text, waits_text
from stoker.model.events import StepEnds, StepPauses, StepRepeats, StepStarts, StepWaits
from stoker.model.govern import Reason
from stoker.model.runs import Intervention

GIB = 1024**3
SHORTAGE = Intervention(at=5.0, reason=Reason.SHORTAGE, used_bytes=7 * GIB, limit_bytes=8 * GIB)


def test_waits_are_named_longest_first_and_short_ones_are_left_out() -> None:
    waits = {Reason.CPUS: 2.0, Reason.MEMORY: 10.0, Reason.TURN: 0.1}
    assert waits_text(waits, 3 * GIB) == (
        "12 s: 10 s for memory (it needs 3.0 GiB), 2 s for a free CPU"
    )
    assert waits_text({}, GIB) == "not at all"


def test_a_cause_has_the_memory_in_use() -> None:
    assert cause_text(SHORTAGE) == "memory was almost used up (7.0 GiB of 8.0 GiB in use)"


def test_a_run_is_explained_by_its_events() -> None:
    explanation = RunExplanation()
    assert explanation.text() == "stoker: no step waited, was paused or was killed\n"
    waits = {Reason.MEMORY: 4.0}
    for event in (
        StepStarts(at=4.0, step=1, run=1, title="a.cu", waited=4.0, needs=GIB, waits=waits),
        StepPauses(at=5.0, step=1, run=1, title="a.cu", memory=GIB, cause=SHORTAGE),
        StepRepeats(
            at=6.0, step=1, run=1, title="a.cu", why="preempted", seconds=2.0, peak=GIB,
            cause=SHORTAGE,
        ),
    ):  # fmt: skip
        explanation.show(event)
    assert explanation.text().splitlines() == [
        "stoker: why steps waited",
        "  1 step waited 4 s in all for memory",
        "  a.cu waited 4 s for memory (it needs 1.0 GiB)",
        f"  a.cu was paused: {cause_text(SHORTAGE)}",
        f"  a.cu was killed and repeated: {cause_text(SHORTAGE)}",
    ]


def waits(number: int) -> StepWaits:
    return StepWaits(at=0.0, run=1, step=number, title="a.cpp", needs=0)


def ends(number: int) -> StepEnds:
    return StepEnds(at=0.0, run=1, step=number, title="a.cpp", status=0, seconds=1.0, peak=0)


def test_a_build_tool_that_starts_one_step_at_a_time_is_noticed() -> None:
    serial = SerialBuild()
    for number in range(7):
        serial.show(waits(number))
        serial.show(ends(number))
    assert serial.text(cpus=2) == ""  # too few to say
    serial.show(waits(7))
    assert "`make -j`" in serial.text(cpus=2)
    assert serial.text(cpus=1) == ""
    serial.show(waits(8))
    assert serial.text(cpus=2) == ""
