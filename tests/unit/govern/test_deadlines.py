"""Deadlines of runs: steps that would end too late are set aside, then refused."""

from math import inf

import pytest

from scripted_governor import World, done
from stoker.govern.protocol import Done, Usage
from stoker.model.events import AnyEvent, StepTooLate, Warned
from stoker.model.govern import Reason
from stoker.model.runs import Outcome
from stoker.model.terms import TimeLimit
from stoker.model.value import second_count


def after(seconds: float) -> Done:
    usage = Usage(wall_us=round(seconds * 1e6), cpu_us=1, peak=100, byte_seconds=1)
    return Done(status=0, signal=0, usage=usage, tail=b"")


def learned(world: World, source: str, seconds: float) -> None:
    """Let the governor see that a step takes so long, in a run without a deadline."""
    world.ask(50, run=1, source=source)
    world.governor.decide(1.0)
    world.governor.ended(50, after(seconds), 1.0 + seconds)
    world.sent.clear()
    world.events.clear()


def late(events: list[AnyEvent]) -> list[tuple[str, bool]]:
    return [(each.title, each.fits) for each in events if isinstance(each, StepTooLate)]


def test_a_step_that_would_end_too_late_waits_while_others_run(world: World) -> None:
    learned(world, "long.cpp", 30.0)
    learned(world, "short.cpp", 5.0)
    world.governor.deadlines.limit(100, 20.0, 40.0, 100.0, grace=inf)
    world.ask(7, source="long.cpp")
    world.ask(8, source="short.cpp")
    world.governor.decide(100.0)
    assert world.words(7) == []
    assert world.words(8) == ["run"]
    world.governor.decide(104.0)
    assert world.words(7) == [], "the other step still runs"
    world.governor.ended(8, done(), 105.0)
    world.governor.decide(105.0)
    assert world.words(7) == [], "other steps may ask now"
    world.governor.decide(107.1)
    assert world.words(7) == ["fail"]
    assert late(world.events) == [("long.cpp", True)]
    assert not world.governor.busy


def test_a_step_that_never_fits_is_named_once_at_the_start(world: World) -> None:
    learned(world, "long.cpp", 60.0)
    world.governor.deadlines.limit(100, 40.0, 40.0, 100.0, grace=inf)
    world.governor.deadlines.expect(100, {"long.cpp.o": 60.0, "short.cpp.o": 5.0}, 100.0)
    warned = [each for each in world.events if isinstance(each, Warned)]
    assert [each.text for each in warned] == [
        "long.cpp.o takes about 1 min: it does not fit into --stop-after 40 s"
    ]
    assert warned[0].run == 100
    world.ask(7, source="long.cpp")
    world.governor.decide(100.0)
    world.governor.decide(102.1)
    assert late(world.events) == [("long.cpp", False)]
    assert sum(isinstance(each, Warned) for each in world.events) == 1


def test_only_the_longest_of_many_that_never_fit_are_named(world: World) -> None:
    world.governor.deadlines.limit(100, 40.0, 40.0, 100.0, grace=inf)
    world.governor.deadlines.expect(100, {f"{n}.o": 60.0 + n for n in range(1000)}, 100.0)
    named = [each.text.split()[0] for each in world.events if isinstance(each, Warned)]
    assert named == ["999.o", "998.o", "997.o", "996.o", "995.o"]


def test_a_step_that_turns_out_to_be_short_starts_after_all(world: World) -> None:
    """Steps of this kind count with 10 s until some in the same folder were measured."""
    world.governor.deadlines.limit(100, 12.0, 12.0, 100.0, grace=inf)
    for number in range(4):
        world.ask(10 + number, source=f"f/{number}.cpp")
    world.governor.decide(100.0)
    world.ask(7, source="f/last.cpp")
    world.governor.decide(103.0)
    assert world.words(7) == []
    for number in range(4):
        world.governor.ended(10 + number, after(1.0), 104.0)
    world.governor.decide(104.0)
    world.governor.decide(104.1)
    assert world.words(7) == ["run"]


def test_other_runs_are_not_limited(world: World) -> None:
    learned(world, "long.cpp", 30.0)
    world.governor.deadlines.limit(100, 1.0, 40.0, 100.0, grace=inf)
    world.ask(7, run=101, source="long.cpp")
    world.governor.decide(100.0)
    assert world.words(7) == ["run"]


def test_a_launcher_that_is_gone_is_not_refused(world: World) -> None:
    learned(world, "long.cpp", 30.0)
    world.governor.deadlines.limit(100, 1.0, 40.0, 100.0, grace=inf)
    world.ask(7, source="long.cpp")
    world.governor.decide(100.0)
    world.governor.lost(7)
    world.governor.decide(110.0)
    assert world.words(7) == []
    assert not world.governor.busy


def test_a_step_that_runs_on_is_ended_when_the_grace_is_over(world: World) -> None:
    """How long it takes was unknown when it started."""
    world.governor.deadlines.limit(100, 12.0, 40.0, 100.0, grace=5.0)
    world.ask(7, source="endless.cpp")
    world.governor.decide(100.0)
    world.governor.decide(116.9)
    assert world.words(7) == ["run"]
    world.governor.decide(117.0)
    assert world.words(7) == ["run", "kill"]
    world.governor.decide(117.1)
    usage = Usage(wall_us=17_000_000, cpu_us=1, peak=100, byte_seconds=1)
    world.governor.stopped(7, usage, 117.2)
    assert world.words(7) == ["run", "kill", "fail"]
    assert "endless.cpp was ended after 17 s: " in world.sent[-1][1].decode()
    assert not world.governor.busy
    (event,) = (each for each in world.events if isinstance(each, StepTooLate))
    assert (event.title, event.ran_s, event.fits) == ("endless.cpp", 17.0, True)
    ((_, attempt),) = world.kept
    assert attempt.outcome is Outcome.DEADLINE
    assert attempt.explanation
    assert attempt.explanation.killed
    assert attempt.explanation.killed.reason is Reason.DEADLINE


def test_what_a_step_ran_until_it_was_ended_counts_in_the_next_run(world: World) -> None:
    """Nothing else is known of it; steps of its kind usually take 10 s."""
    world.governor.deadlines.limit(100, 12.0, 40.0, 100.0, grace=5.0)
    world.ask(7, source="endless.cpp")
    world.governor.decide(100.0)
    world.governor.decide(117.0)
    world.governor.stopped(7, after(17.0).usage, 117.0)
    world.governor.deadlines.limit(101, 12.0, 40.0, 200.0, grace=5.0)
    world.ask(8, run=101, source="endless.cpp")
    world.ask(9, run=101, source="other.cpp")
    world.governor.decide(200.0)
    assert world.words(9) == ["run"]
    assert world.words(8) == [], "it takes at least 17 s"
    world.governor.deadlines.limit(102, 12.0, 15.0, 300.0, grace=5.0)
    world.ask(10, run=102, source="endless.cpp")
    world.governor.decide(300.0)
    warned = [each.text for each in world.events if isinstance(each, Warned)]
    assert warned == ["endless.cpp.o takes at least 17 s: it does not fit into --stop-after 15 s"]
    world.governor.decide(302.1)
    (said,) = (text.decode() for to, text in world.sent if to == 10)
    assert "it takes at least 17 s, and --stop-after leaves " in said


def test_a_step_that_must_not_be_started_twice_ends_by_itself(world: World) -> None:
    world.governor.deadlines.limit(100, 12.0, 40.0, 100.0, grace=5.0)
    world.ask(7, source="once.cpp", once="it reads a pipe")
    world.governor.decide(100.0)
    world.ask(8, source="next.cpp")
    world.governor.decide(130.0)
    assert world.words(7) == ["run"]
    assert world.words(8) == ["fail"], "the time is over, whatever still runs"
    world.governor.ended(7, done(), 140.0)
    assert not world.governor.busy


def test_a_step_that_asks_again_after_the_end_is_refused_at_once(world: World) -> None:
    """It was killed for lack of memory just before."""
    world.governor.deadlines.limit(100, 12.0, 40.0, 100.0, grace=0.0)
    world.ask(7)
    world.governor.decide(100.0)
    world.policy.kill = (1,)
    world.governor.decide(111.0)
    world.governor.stopped(7, Usage(wall_us=1, cpu_us=1, peak=100, byte_seconds=1), 112.5)
    world.governor.decide(112.5)
    assert world.words(7) == ["run", "kill", "fail"]


def test_steps_of_other_runs_are_not_ended(world: World) -> None:
    world.governor.deadlines.limit(100, 12.0, 40.0, 100.0, grace=5.0)
    world.ask(7, run=101, source="other.cpp")
    world.governor.decide(100.0)
    world.governor.decide(200.0)
    assert world.words(7) == ["run"]


@pytest.mark.parametrize(
    ("stop_after", "stop_grace", "grace"),
    [("5h30m", None, 300.0), ("10m", None, 30.0), ("10m", "2m", 120.0), ("10m", "0", 0.0)],
)
def test_the_grace_is_a_twentieth_of_the_time_and_at_most_five_minutes(
    stop_after: str, stop_grace: str | None, grace: float
) -> None:
    seconds = second_count(stop_after)
    assert seconds
    limit = TimeLimit.starting_at(
        0.0, seconds, None if stop_grace is None else second_count(stop_grace)
    )
    assert limit.grace == grace


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("5h30m", 19800), ("90min", 5400), ("40s", 40), ("0", 0), ("1.5h", 5400)),
        *(("30d", 30 * 86_400), ("2w", 14 * 86_400)),
        *((wrong, None) for wrong in ("1h30", "5", "d", "-1d", "", "1y", "1 d", "soon")),
    ],
)
def test_times_may_have_several_parts(text: str, seconds: float | None) -> None:
    assert second_count(text) == seconds
