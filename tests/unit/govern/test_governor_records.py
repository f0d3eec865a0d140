"""What the governor learns from steps, and how it explains their waits, pauses and kills."""

from collections.abc import Callable

import pytest

from scripted_governor import GIB, World, done, explanation, usage
from stoker.govern.policy.governor import Governor
from stoker.govern.protocol import ProtocolError
from stoker.knowledge.steps import usual_seconds
from stoker.model.events import StepRepeats, StepStarts
from stoker.model.govern import Basis, Decision, Reason, Role
from stoker.model.runs import Intervention

USUAL = usual_seconds(Role.CXX, "a.cpp")


def test_the_course_of_a_steps_memory_is_kept(world: World) -> None:
    world.build("a.cpp", {0.0: 25, 1.0: 100, 1.5: 50})
    profile = world.kept[0][1].record.profile
    assert (profile[0], profile[80], profile[-1]) == (25, 100, 50)


def test_an_attempt_that_was_killed_leaves_no_trace_in_the_next_one(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, GIB, GIB, 1.5)
    world.policy.kill, world.policy.admits = (1,), False
    world.governor.decide(2.0)
    world.governor.stopped(7, usage(peak=GIB), 2.5)
    world.policy.admits = True
    world.governor.decide(11.0)
    world.governor.grown(7, 100, 100, 11.0)
    world.governor.ended(7, done(), 13.0)
    killed, finished = (attempt.record for _, attempt in world.kept)
    assert killed.profile[-1] == 100
    assert finished.profile == (100,) * 128


def test_waiting_steps_are_predicted_again_after_learning(world: World) -> None:
    world.ask(7)
    world.governor.decide(1.0)
    world.policy.admits = False
    world.ask(8)
    before = world.governor.state(1.0).waiting[0].prediction
    world.governor.ended(7, done(), 3.0)
    world.governor.decide(3.0)
    known = world.governor.state(3.0).waiting[0].prediction
    assert (before.basis, known.basis) == (Basis.PRIOR, Basis.EXACT)
    assert known.seconds == 2.0


def test_a_path_is_at_least_as_long_as_the_step(world: World) -> None:
    world.build("a.cpp", {0.0: 100})
    world.policy.admits = False
    world.ask(7, source="a.cpp", path=lambda: 0.5)
    world.ask(8, source="a.cpp", path=lambda: 50.0)
    assert [request.path for request in world.governor.state(3.0).waiting] == [50.0, 2.0]


def test_paths_that_are_known_later_change_the_order(world: World) -> None:
    paths: dict[int, float] = {}
    world.policy.admits = False
    world.ask(7)
    world.ask(8, path=lambda: paths.get(8, 0.0))
    assert [request.id for request in world.governor.state(1.0).waiting] == [1, 2]
    paths[8] = 50.0
    world.governor.decide(1.5)
    assert [request.path for request in world.governor.state(1.5).waiting] == [USUAL, USUAL]
    world.governor.reconsider()
    world.governor.decide(1.6)
    waiting = world.governor.state(1.6).waiting
    assert [(request.id, request.path) for request in waiting] == [(2, 50.0), (1, USUAL)]


def test_what_a_killed_step_asks_for_is_not_reconsidered(world: World) -> None:
    paths = [1.0]
    world.ask(path=lambda: paths[-1])
    world.governor.decide(1.0)
    world.governor.grown(7, 9 * GIB, 9 * GIB, 1.5)
    world.policy.kill, world.policy.admits = (1,), False
    world.governor.decide(2.0)
    world.governor.stopped(7, usage(peak=9 * GIB), 2.2)
    paths.append(40.0)
    world.governor.reconsider()
    world.governor.decide(3.0)
    (waiting,) = world.governor.state(3.0).waiting
    assert waiting.prediction.peak >= 9 * GIB
    assert waiting.path == 40.0


def test_a_step_on_trial_runs_like_any_other(world: World) -> None:
    world.policy.tries = True
    world.ask()
    world.governor.decide(1.0)
    assert world.words() == ["run"]
    assert world.governor.state(1.0).running[0].on_trial
    world.governor.ended(7, done(), 3.0)
    assert not world.governor.busy


@pytest.mark.parametrize(
    "action",
    [
        lambda governor: governor.grown(99, 1, 1, 1.0),
        lambda governor: governor.ended(99, done(), 1.0),
    ],
)
def test_who_never_asked_is_not_known(world: World, action: Callable[[Governor], None]) -> None:
    with pytest.raises(ProtocolError):
        action(world.governor)


def test_waits_are_added_up_by_reason(world: World) -> None:
    """From second 1 to 2 no CPU is free, then memory until 5, then memory again after its turn."""
    world.ask()
    for now, reason in ((2.0, Reason.MEMORY), (5.0, Reason.TURN), (6.0, Reason.MEMORY)):
        world.policy.next = Decision(held={1: reason})
        world.governor.decide(now)
    world.governor.decide(10.0)
    world.governor.ended(7, done(), 12.0)
    found = explanation(world)
    assert found.asked == 1.0
    assert found.waits == {Reason.CPUS: 1.0, Reason.MEMORY: 7.0, Reason.TURN: 1.0}
    assert (found.basis, found.killed, found.pauses) == (Basis.PRIOR, None, ())
    (event,) = [event for event in world.events if isinstance(event, StepStarts)]
    assert (event.waited, event.waits, event.needs) == (9.0, found.waits, found.needs_bytes)


def test_while_no_cpu_is_free_nothing_else_is_the_reason(world: World) -> None:
    """From second 2 a step waits for memory, and from 3 to 7 other steps have all four CPUs."""
    world.ask()
    world.policy.next = Decision(held={1: Reason.MEMORY})
    world.governor.decide(2.0)
    for connection in (10, 11, 12, 13):
        world.ask(connection)
    world.policy.next = Decision(admit=(2, 3, 4, 5))
    world.governor.decide(3.0)
    assert world.governor.overview(100, 3.0).waits == {Reason.CPUS: 1}
    world.governor.ended(10, done(), 7.0)
    world.policy.next = Decision(held={1: Reason.MEMORY})
    world.governor.decide(7.0)
    assert world.governor.overview(100, 7.0).waits == {Reason.MEMORY: 1}
    world.governor.decide(9.0)
    world.governor.ended(7, done(), 9.5)
    assert explanation(world, 1).waits == {Reason.CPUS: 5.0, Reason.MEMORY: 3.0}


def test_the_reasons_of_pauses_and_kills_are_kept(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.read(used=3 * GIB)
    world.policy.next = Decision(pause=(1,), reason=Reason.GROWTH)
    world.governor.decide(2.0)
    world.policy.next = Decision(resume=(1,))
    world.governor.decide(4.0)
    world.policy.next = Decision(kill=(1,), reason=Reason.SHORTAGE)
    world.governor.decide(5.0)
    world.governor.stopped(7, usage(), 5.1)
    pause = Intervention(
        at=2.0, reason=Reason.GROWTH, used_bytes=3 * GIB, limit_bytes=4 * GIB, wall_s=2.0
    )
    kill = Intervention(at=5.0, reason=Reason.SHORTAGE, used_bytes=3 * GIB, limit_bytes=4 * GIB)
    assert explanation(world).pauses == (pause,)
    assert explanation(world).killed == kill
    (event,) = [event for event in world.events if isinstance(event, StepRepeats)]
    assert event.cause == kill


def test_the_next_attempt_is_explained_by_itself(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.read(kills=1)
    world.governor.ended(7, done(signal=9), 4.0)
    world.governor.decide(6.0)
    world.governor.ended(7, done(), 8.0)
    killed = explanation(world).killed
    assert killed is not None
    assert killed.reason is Reason.OOM
    assert explanation(world, 1).killed is None
    assert explanation(world, 1).asked == 4.0
    assert explanation(world, 1).waits == {Reason.CPUS: 2.0}
