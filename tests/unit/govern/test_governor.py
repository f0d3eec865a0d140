"""The governor's state machine: every path of a step, without a socket."""

import pytest

from scripted_governor import GIB, KILLED, World, done, usage
from stoker.govern.policy.interface import REACTION
from stoker.govern.protocol import VERSION, Ask
from stoker.model.events import StepEnds, StepPauses, StepRepeats
from stoker.model.govern import Decision, Reason, Role, Step
from stoker.model.runs import Outcome
from stoker.model.terms import RunShare, RunTerms


@pytest.mark.parametrize("run", [100, 101], ids=["the same run", "a run within the run"])
def test_a_job_lends_its_place_to_a_step_inside_it_and_keeps_its_memory(
    world: World, run: int
) -> None:
    """With one CPU both would wait for each other."""
    world.ask(7, custom=True)
    world.governor.decide(1.0)
    world.governor.grown(7, 40, 40, 1.0)
    assert [step.id for step in world.governor.state(1.0).running] == [1]
    world.ask(8, run, within=1)
    world.ask(9, run, within=1)
    assert world.governor.state(1.0).placed == {2}
    world.policy.next = Decision(admit=(2,))
    world.governor.decide(1.0)
    assert world.words(8) == ["run"]
    assert world.governor.state(1.0).placed == frozenset()  # the other one needs a CPU of its own
    world.governor.grown(7, 60, 60, 2.0)
    world.governor.grown(8, 50, 50, 2.0)
    assert [(step.id, step.lent) for step in world.governor.state(2.0).running] == [
        (1, True),
        (2, False),
    ]
    views = [world.governor.overview(each, 2.0) for each in {100, run}]
    assert sum(step.memory for view in views for step in view.running) == 110
    world.governor.ended(8, done(), 3.0)
    assert [(step.id, step.lent) for step in world.governor.state(3.0).running] == [(1, False)]
    assert world.governor.state(3.0).placed == {3}
    world.governor.lost(9)
    world.governor.ended(7, done(status=1), 3.0)
    assert world.words(7) == ["run", "release"]
    assert [kept for kept, _ in world.kept] == [run, 100]
    ends = [event for event in world.events if isinstance(event, StepEnds)]
    assert [(event.step, event.status, event.peak) for event in ends] == [(2, 0, 100), (1, 1, 100)]
    inner, outer = (attempt.record.cpu_s for _, attempt in world.kept)
    assert (inner, outer) == (1.5, 0.0)  # what its launcher measured contains that of the other
    assert not world.governor.busy


def test_jobs_are_no_more_than_the_user_said_and_pass_no_compile(world: World) -> None:
    """Four CPUs; without a number, six jobs may run."""
    for connection in range(10, 20):
        world.ask(connection, custom=True)
    world.governor.decide(1.0)
    state = world.governor.state(1.0)
    assert len(state.running) == 6
    assert not state.waiting
    world.ask(7, path=lambda: 100.0)
    world.governor.ended(10, done(), 2.0)
    state = world.governor.state(2.0)
    assert [request.id for request in state.waiting] == [11, 7]
    assert not state.placed  # the compile waits for a CPU, and is more urgent
    world.governor.lost(7)
    assert world.governor.state(2.0).placed == {7}


def test_a_job_that_does_not_fit_is_passed_by_others(world: World) -> None:
    world.policy.admits = False
    for connection in range(10, 20):
        world.ask(connection, custom=True)
    assert len(world.governor.state(1.0).waiting) == 6
    world.policy.next = Decision(held={1: Reason.MEMORY, 2: Reason.MEMORY})
    world.governor.decide(1.0)
    assert [request.id for request in world.governor.state(1.0).waiting] == list(range(1, 9))


def test_a_remote_step_that_compiles_here_gives_its_place_back(world: World) -> None:
    """The compile asks like any other."""
    world.ask(7, remote=True)
    world.governor.decide(1.0)
    assert [step.request.places for step in world.governor.state(1.0).running] == [1]
    world.governor.grown(7, 50, 50, 1.5, idle=True)
    assert not world.governor.state(1.5).running[0].lent  # it waits for its worker
    world.ask(8, within=1)
    (client,), placed = world.governor.state(2.0).running, world.governor.state(2.0).placed
    assert client.lent
    assert not placed
    world.governor.decide(2.0)
    world.governor.ended(8, done(), 3.0)
    world.governor.ended(7, done(), 3.0)
    assert len(world.kept) == 2
    ends = [event for event in world.events if isinstance(event, StepEnds)]
    assert [(event.step, event.remote) for event in ends] == [(2, False), (1, True)]


def test_a_remote_step_that_is_being_killed_is_not_enclosed(world: World) -> None:
    world.ask(7, remote=True)
    world.governor.decide(1.0)
    world.policy.kill = (1,)
    world.governor.decide(1.5)
    world.ask(8, within=1)
    world.governor.stopped(7, usage(), 2.0)
    world.governor.lost(8)
    world.governor.decide(2.0)
    assert world.words(7) == ["run", "kill", "run"]


def test_a_step_keeps_its_permit_whatever_asks_within_it(world: World) -> None:
    """Only a custom command's number can come with an ask; this one would be forged."""
    world.ask(7)
    world.governor.decide(1.0)
    world.ask(8, within=1)
    assert [step.id for step in world.governor.state(1.0).running] == [1]


@pytest.mark.parametrize("kind", ["custom", "once"])
def test_of_a_command_that_must_not_run_twice_the_most_is_expected_from_its_start_on(
    world: World, kind: str
) -> None:
    """Two whose peaks should come one after the other would fail the build if one were late."""
    world.build("a.cpp", {0.0: 10, 1.0: 100})
    world.ask(7)
    world.ask(8, custom=kind == "custom", once="it reads a pipe" if kind == "once" else "")
    again, once = (request.prediction for request in world.governor.state(4.0).waiting)
    assert again.profile
    assert again.peak < again.high
    assert (once.profile, once.peak, once.high) == ((), again.high, again.high)
    assert (once.seconds, once.basis) == (again.seconds, again.basis)


def test_of_one_that_was_never_measured_shipped_figures_are_expected_at_least(world: World) -> None:
    """Similar steps were small, which says little of the largest, also while it waits and runs."""
    world.policy.admits = False
    world.ask(7, source="src/a.cpp")
    world.ask(8, source="src/b.cpp", once="it reads a pipe")
    world.policy.admits = True
    for number in range(9):
        world.policy.next = Decision(admit=(number + 3,))
        world.build(f"src/{number}.cpp", {0.0: 10, 1.0: 100})
    world.policy.admits = False
    world.governor.decide(9.0)
    again, once = (request.prediction for request in world.governor.state(9.0).waiting)
    assert again.high < GIB / 2 < once.high
    world.policy.admits = True
    world.governor.decide(10.0)
    world.build("src/other.cpp", {0.0: 10, 1.0: 100})
    world.governor.decide(20.0)
    again, once = (step.request.prediction for step in world.governor.state(20.0).running)
    assert again.high < GIB / 2 < once.high
    assert (once.peak, once.profile) == (once.high, ())


@pytest.mark.parametrize("kind", ["custom", "once"])
def test_a_command_that_must_not_run_twice_is_not_repeated_without_memory(
    world: World, kind: str
) -> None:
    world.ask(custom=kind == "custom", once="it reads a pipe" if kind == "once" else "")
    world.governor.decide(1.0)
    world.read(kills=1)
    world.governor.ended(7, done(status=1, tail=KILLED), 2.0)
    assert world.words() == ["run", "release"]
    assert [attempt.outcome for _, attempt in world.kept] == [Outcome.FAILED]


def test_a_pause_is_told_and_does_not_count(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, 50, 50, 2.0)
    world.policy.next = Decision(pause=(1,))
    world.governor.decide(3.0)
    assert [type(event) for event in world.events].count(StepPauses) == 1
    assert [step.paused for step in world.governor.overview(100, 4.0).running] == [True]
    world.policy.next = Decision(resume=(1,))
    world.governor.decide(10.0)
    (running,) = world.governor.state(11.0).running
    assert running.age(11.0) == 3.0
    assert world.words() == ["run", "pause", "resume"]


def test_ask_run_done(world: World) -> None:
    """A launcher whose command succeeded waits for no answer."""
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, 50, 80, 2.0)
    assert not world.governor.ended(7, done(), 3.0)
    assert world.words() == ["run"]
    ((run, attempt),) = world.kept
    assert (run, attempt.outcome, attempt.record.peak_bytes) == (100, Outcome.DONE, 100)
    assert not world.governor.busy
    assert isinstance(world.events[-1], StepEnds)


def test_another_version_is_told_and_forgotten(world: World) -> None:
    ask = Ask(version=VERSION + 1, run=1, directory="", cpus=1, command=())
    world.governor.asked(7, ask, Step(key="k", role=Role.CXX), lambda: 0.0, 1.0)
    assert world.words() == ["wrong_version"]
    assert not world.governor.busy


def test_a_compile_error_is_released_and_not_repeated(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.governor.ended(7, done(status=1, tail=b"a.cpp:1: error: expected ';'\n"), 2.0)
    assert world.words() == ["run", "release"]
    assert world.kept[0][1].outcome is Outcome.FAILED


def test_an_oom_kill_is_repeated_with_more_then_alone_then_fails(world: World) -> None:
    world.ask()
    reserved = []
    for kills in (1, 2, 3):
        world.governor.decide(1.0)
        world.read(kills=kills, used=4 * GIB)
        reserved.append(world.governor.state(1.0).running[0].request.prediction.high)
        world.governor.ended(7, done(status=1, tail=KILLED, peak=3 * GIB), 2.0)
    assert world.words() == ["run", "again", "run", "again", "run", "fail"]
    assert reserved[1] >= max(2 * reserved[0], 3 * GIB)
    text = world.sent[-1][1].decode()
    assert "a.cpp" in text
    assert "3.0 GiB" in text
    assert [attempt.outcome for _, attempt in world.kept] == [Outcome.OOM] * 3


def test_the_third_attempt_runs_alone(world: World) -> None:
    world.ask()
    for kills in (1, 2):
        world.governor.decide(1.0)
        world.read(kills=kills, used=4 * GIB)
        world.governor.ended(7, done(status=1, tail=KILLED), 2.0)
    assert world.governor.state(3.0).waiting[0].slots == 0


def test_somebodys_kill_9_is_a_failure(world: World) -> None:
    """The counter of the group did not move: no OOM, however the driver puts it."""
    world.ask()
    world.governor.decide(1.0)
    world.governor.ended(7, done(status=1, tail=KILLED), 2.0)
    assert world.words() == ["run", "release"]


def test_a_kill_is_evidence_for_the_run_in_whose_group_it_was(world: World) -> None:
    world.ask(7, run=100)
    world.ask(8, run=200)
    world.read_kills({100: 5, 200: 0})
    world.governor.decide(1.0)
    world.read_kills({100: 5, 200: 1})
    for connection in (7, 8):
        world.governor.ended(connection, done(status=1, tail=KILLED), 2.0)
    assert world.words(7) == ["run", "release"]
    assert world.words(8) == ["run", "again"]


@pytest.mark.parametrize(("used", "told"), [(GIB, "release"), (4 * GIB, "again")])
def test_without_a_counter_of_its_run_a_kill_is_judged_by_how_tight_memory_was(
    world: World, used: int, told: str
) -> None:
    world.ask(7, run=200)
    world.read_kills({100: 0})
    world.governor.decide(1.0)
    world.read_kills({100: 1}, used=used)
    world.governor.ended(7, done(status=1, tail=KILLED), 2.0)
    assert world.words() == ["run", told]


def test_a_preempted_step_waits_again_with_what_it_used(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, 2 * GIB, 3 * GIB, 1.5)
    world.policy.kill, world.policy.admits = (1,), False
    world.governor.decide(2.0)
    world.governor.decide(2.1)
    assert world.words() == ["run", "kill"]
    world.governor.stopped(7, usage(peak=3 * GIB), 2.2)
    (waiting,) = world.governor.state(2.3).waiting
    assert waiting.prediction.high >= 3 * GIB
    (event,) = [e for e in world.events if isinstance(e, StepRepeats)]
    assert event.why == "preempted"


def test_a_step_that_is_being_stopped_still_holds_its_memory(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, GIB, GIB, 1.5)
    world.policy.kill = (1,)
    world.governor.decide(2.0)
    (step,) = world.governor.state(2.0).running
    assert (step.current, step.stopping) == (GIB, True)


def test_a_lost_launcher_is_forgotten(world: World) -> None:
    world.ask()
    world.governor.decide(1.0)
    assert world.governor.lost(7)
    assert not world.governor.lost(7)
    assert not world.governor.busy


def test_a_waiting_step_may_be_lost_too(world: World) -> None:
    world.ask()
    assert world.governor.lost(7)
    assert len(world.governor.state(1.0).waiting) == 0


def test_the_cap_counts_only_what_builds_use() -> None:
    world = World(cap=GIB)
    world.read(used=2 * GIB)
    state = world.governor.state(1.0)
    assert (state.limit, state.used, state.other_usage) == (3 * GIB, 2 * GIB, 2 * GIB)


def test_the_cap_is_never_above_the_limit() -> None:
    world = World(cap=100 * GIB)
    assert world.governor.state(1.0).limit == 4 * GIB


@pytest.mark.parametrize(
    ("cap", "others", "limit", "other_usage"),
    [
        (None, GIB, 4 * GIB, GIB),
        (GIB, GIB, GIB, 0),  # what others use does not count against a cap ...
        (2 * GIB, 3 * GIB, 2 * GIB, GIB),  # ... until less than the cap is left beside them
        (100 * GIB, GIB, 4 * GIB, GIB),
    ],
)
def test_what_is_shown_is_the_limit_in_force_and_what_the_build_itself_uses(
    cap: int | None, others: int, limit: int, other_usage: int
) -> None:
    world = World(cap=cap)
    world.ask()
    world.governor.decide(1.0)
    world.governor.grown(7, GIB // 2, GIB // 2, 1.5)
    world.read(used=others + GIB // 2, now=2.0)
    view = world.governor.overview(100, 2.0)
    assert (view.limit, view.used, view.other_usage) == (limit, GIB // 2, other_usage)
    assert (world.governor.limit, world.governor.used_by(100)) == (limit, GIB // 2)


def test_each_run_sees_its_own_steps(world: World) -> None:
    for connection, run in ((7, 100), (8, 200), (9, 200)):
        world.ask(connection, run)
    world.governor.decide(1.0)
    world.ask(10, 200)
    for connection, memory in ((7, 1), (8, 10), (9, 100)):
        world.governor.grown(connection, memory, memory, 1.5)
    world.governor.ended(9, done(), 2.0)
    first, second = (world.governor.overview(run, 2.0) for run in (100, 200))
    assert (first.run, first.used, first.waiting) == (100, 1, 0)
    assert (second.run, second.used, second.waiting) == (200, 10, 1)
    assert [len(view.running) for view in (first, second)] == [1, 1]


def test_growth_follows_the_readings(world: World) -> None:
    world.read(used=GIB, now=1.0)
    world.read(used=2 * GIB, now=2.0)
    assert world.governor.state(2.0).growth > 0


@pytest.mark.parametrize("how", ["done", "preempted", "lost"])
def test_a_step_that_ends_does_not_hide_the_growth_of_the_others(world: World, how: str) -> None:
    world.ask()
    world.governor.decide(0.0)
    world.governor.grown(7, GIB, GIB, 0.5)
    if how == "preempted":
        world.policy.kill, world.policy.admits = (1,), False
        world.governor.decide(0.6)
    world.read(used=3 * GIB, now=10.0)  # what others use grows by 1 GiB a second
    match how:
        case "done":
            world.governor.ended(7, done(), 10.1)
        case "preempted":
            world.governor.stopped(7, usage(), 10.1)
        case "lost":
            world.governor.lost(7)
    world.read(used=round(2.5 * GIB), now=10.5)
    assert world.governor.state(10.5).growth == GIB


def test_steps_of_a_run(world: World) -> None:
    world.ask(7, run=100)
    world.ask(8, run=200)
    world.governor.decide(1.0)
    assert world.governor.steps_of(200) == [8]


def test_without_any_measurement_the_step_that_usually_takes_longest_is_first(world: World) -> None:
    world.ask(7, source="a.cpp")
    world.ask(8, source="k.cu", archs=("80", "90"))
    world.ask(9, source="csrc/generated/VariableType_1.cpp")
    waiting = [request.id for request in world.governor.state(1.0).waiting]
    assert waiting == [2, 3, 1]


def test_contention_is_the_share_of_cpus_that_memory_keeps_idle(world: World) -> None:
    world.policy.admits = False
    world.ask()
    (request,) = world.governor.state(1.0).waiting
    world.governor.decide(1.0)
    assert world.governor.state(100.0).contention == 0.0
    world.policy.next = Decision(held={request.id: Reason.MEMORY})
    world.governor.decide(100.0)
    world.governor.decide(400.0)
    assert world.governor.state(400.0).contention > 0.9
    world.policy.admits = True
    world.governor.decide(401.0)
    world.governor.decide(800.0)
    assert world.governor.state(800.0).contention < 0.01


def test_one_more_step_that_waits_for_a_cpu_needs_no_decision(world: World) -> None:
    """Most launchers of ninja's window ask while all CPUs are busy."""
    governor = world.governor
    world.policy.next = Decision(admit=(1,))
    world.ask(7)
    world.ask(8)
    assert governor.changed
    governor.decide(1.0)
    world.ask(9)
    assert not governor.changed
    governor.ended(7, done(), 2.0)
    assert governor.changed


@pytest.mark.parametrize("why", ["memory", "workers", "another run", "within a custom command"])
def test_a_step_that_asks_is_decided_on_where_cpus_are_not_all_that_others_wait_for(
    world: World, why: str
) -> None:
    governor = world.governor
    if why == "another run":
        governor.join(100, RunTerms(), RunShare(cpus=1), 0.0)
        governor.join(101, RunTerms(), RunShare(cpus=1), 0.0)
    world.ask(7, custom=True)
    world.ask(8)
    held = {2: Reason.MEMORY} if why == "memory" else {}
    world.policy.next = Decision(admit=(1,), held=held)
    governor.decide(1.0)
    run = 101 if why == "another run" else 100
    world.ask(9, run, remote=why == "workers", within=why.startswith("within"))
    assert governor.changed


def test_decisions_that_come_late_are_noticed_while_steps_run(world: World) -> None:
    world.governor.decide(1.0)
    world.governor.decide(9.0)
    assert world.governor.state(9.0).late == 0.0  # nothing ran
    world.ask()
    world.governor.decide(10.0)
    world.governor.decide(12.0)
    late = world.governor.state(12.0).late
    assert late == pytest.approx(2.0 - REACTION)
    world.governor.decide(12.1)
    assert 0 < world.governor.state(12.1).late < late
