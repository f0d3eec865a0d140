"""The governor: modes of gcc, threads of nvcc and other linkers, from the request to the record."""

import pytest

from scripted_governor import GIB, KILLED, World, done, explanation, usage
from stoker.model.govern import (
    Collector,
    CompileMode,
    Decision,
    ModeChoice,
    ModeEffect,
    Reason,
    Request,
)
from stoker.model.runs import Outcome
from stoker.model.terms import Gc

LOW = b"--param=ggc-min-expand=10\t--param=ggc-min-heapsize=131072"
LEAN = b"--param=ggc-min-expand=30\t--param=ggc-min-heapsize=262144"


def permits(world: World, connection: int = 7) -> list[bytes]:
    sent = (message.split(b"\t", 2) for each, message in world.sent if each == connection)
    return [words[2].strip() if len(words) > 2 else b"" for words in sent if words[0] == b"run"]


def run_out(world: World, kills: int) -> None:
    world.read(kills=kills)
    world.governor.ended(7, done(signal=9, tail=KILLED, peak=3 * GIB), 9.0)
    world.governor.decide(10.0)


def test_a_step_that_ran_out_alone_is_repeated_in_the_mode_that_needs_least(world: World) -> None:
    world.ask(collector=Collector.FREE)
    world.governor.decide(1.0)
    run_out(world, 1)
    assert permits(world) == [b"", LOW]
    world.governor.ended(7, done(), 12.0)
    assert [attempt.record.mode for _, attempt in world.kept] == [
        CompileMode.DEFAULT,
        CompileMode.LOW,
    ]
    assert explanation(world, 1).mode_reason is Reason.TOO_LARGE


def test_a_step_that_ran_out_beside_another_is_repeated_by_default_first(world: World) -> None:
    world.ask(collector=Collector.FREE)
    world.ask(8, source="b.cpp")
    world.governor.decide(1.0)
    run_out(world, 1)
    run_out(world, 2)
    assert permits(world) == [b"", b"", LOW]


def test_no_mode_adds_attempts_to_a_step_that_never_fits(world: World) -> None:
    world.ask(collector=Collector.FREE)
    world.governor.decide(1.0)
    for kills in (1, 2, 3):
        run_out(world, kills)
    assert world.words() == ["run", "again", "run", "again", "run", "fail"]


@pytest.mark.parametrize(
    ("gc", "collector", "saves"),
    [
        (Gc.AUTO, Collector.FREE, True),
        (Gc.AUTO, Collector.RECORDED, False),
        (Gc.AUTO, Collector.NONE, False),
        (Gc.OFF, Collector.FREE, False),
        (Gc.ALWAYS, Collector.RECORDED, True),
        (Gc.ALWAYS, Collector.NONE, False),
    ],
)
def test_the_setting_decides_where_modes_are_used(
    gc: Gc, collector: Collector, *, saves: bool
) -> None:
    world = World(gc=gc)
    world.ask(collector=collector)
    world.governor.decide(1.0)
    run_out(world, 1)
    assert permits(world) == [b"", LOW if saves else b""]


def test_a_chosen_mode_is_sent_predicted_and_kept(world: World) -> None:
    world.ask(collector=Collector.FREE)
    (request,) = world.governor.state(1.0).waiting
    choice = ModeChoice(mode=CompileMode.LEAN, reason=Reason.MEMORY_BOUND)
    world.policy.next = Decision(admit=(request.id,), modes={request.id: choice})
    world.governor.decide(1.0)
    assert permits(world) == [LEAN]
    (running,) = world.governor.state(2.0).running
    assert running.request.mode is CompileMode.LEAN
    assert running.request.effect.memory < 1.0
    # What is only assumed to be saved stays reserved.
    assert running.request.prediction.peak == request.prediction.peak
    world.policy.kill = (request.id,)
    world.governor.decide(2.0)
    world.governor.stopped(7, usage(), 3.0)
    (again,) = world.governor.state(3.0).waiting
    assert (again.mode, again.prediction.peak) == (CompileMode.DEFAULT, request.prediction.peak)


def test_a_compiler_that_refuses_the_parameters_is_left_alone(world: World) -> None:
    world.ask(collector=Collector.FREE)
    world.ask(8, source="b.cpp", collector=Collector.FREE)
    (first, second) = world.governor.state(1.0).waiting
    choice = ModeChoice(mode=CompileMode.LEAN, reason=Reason.MEMORY_BOUND)
    world.policy.next = Decision(admit=(first.id,), modes={first.id: choice})
    world.governor.decide(1.0)
    error = b"cc1plus: error: invalid --param name 'ggc-min-expand'"
    assert world.governor.ended(7, done(status=1, tail=error), 2.0)
    assert [request.effects for request in world.governor.state(2.0).waiting] == [(), ()]
    world.governor.decide(3.0)
    assert permits(world) == [LEAN, b""]
    assert world.words() == ["run", "again", "run"]
    assert world.kept[0][1].outcome is Outcome.REFUSED
    assert second.effects


LINK = ("g++", "-shared", "-o", "liba.so", "a.o")
MOLD = b"-fuse-ld=mold"


def test_the_linker_of_a_run_is_added_to_its_links_only(world: World) -> None:
    world.governor.modes.link_with(100, CompileMode.MOLD)
    world.ask(7, source="liba.so", command=LINK)
    world.ask(8, source="b.cpp", command=("g++", "-c", "b.cpp"))
    world.ask(9, run=101, source="libb.so", command=LINK)
    world.governor.decide(1.0)
    assert [permits(world, connection) for connection in (7, 8, 9)] == [[MOLD], [b""], [b""]]
    world.governor.ended(7, done(), 2.0)
    (attempt,) = [attempt for _, attempt in world.kept]
    assert (attempt.record.mode, explanation(world).mode_reason) == (
        CompileMode.MOLD,
        Reason.LINKER,
    )
    assert explanation(world).effect is None  # the default linker has not made it before
    world.governor.ended(9, done(), 2.0)
    world.ask(7, source="libb.so", command=LINK)
    world.governor.decide(3.0)
    world.governor.ended(7, done(), 4.0)
    after = world.kept[-1][1].explanation
    assert after
    assert after.effect == ModeEffect(mode=CompileMode.MOLD, seconds=1.0)


def test_a_link_that_fails_is_repeated_with_the_default_linker(world: World) -> None:
    """Only its messages count then."""
    world.governor.modes.link_with(100, CompileMode.MOLD)
    world.ask(source="liba.so", command=LINK)
    world.governor.decide(1.0)
    assert world.governor.ended(7, done(status=1, tail=b"mold: unknown option"), 2.0)
    world.governor.decide(3.0)
    world.governor.ended(7, done(status=1, tail=b"ld: undefined reference"), 4.0)
    assert permits(world) == [MOLD, b""]
    assert world.words() == ["run", "again", "run", "release"]
    assert [attempt.outcome for _, attempt in world.kept] == [Outcome.REFUSED, Outcome.FAILED]


def start_with_two_threads(world: World) -> Request:
    world.ask(source="k.cu", collector=Collector.FREE, archs=("80", "90"))
    (request,) = world.governor.state(1.0).waiting
    choice = ModeChoice(mode=CompileMode.THREADS, threads=2, reason=Reason.IDLE_CPUS)
    world.policy.next = Decision(admit=(request.id,), modes={request.id: choice})
    world.governor.decide(1.0)
    return request


def test_the_threads_of_an_attempt_are_added_reserved_and_recorded(world: World) -> None:
    request = start_with_two_threads(world)
    assert permits(world) == [b"--threads=2"]
    (running,) = world.governor.state(2.0).running
    assert (running.request.slots, request.slots) == (2, 1)
    assert running.request.prediction.peak == 2 * request.prediction.peak
    world.governor.ended(7, done(), 3.0)
    record = world.kept[0][1].record
    assert (record.mode, record.step.threads) == (CompileMode.THREADS, 2)


def test_after_threads_ran_out_of_memory_nvcc_has_one(world: World) -> None:
    start_with_two_threads(world)
    run_out(world, 1)
    assert permits(world) == [b"--threads=2", b""]


def test_an_nvcc_without_threads_is_left_alone(world: World) -> None:
    request = start_with_two_threads(world)
    error = b"nvcc fatal   : Unknown option '--threads=2'"
    assert world.governor.ended(7, done(status=1, tail=error), 2.0)
    (again,) = world.governor.state(2.0).waiting
    assert (again.faster, again.slots, again.prediction) == ((), 1, request.prediction)


def test_a_compile_that_must_not_run_twice_gets_no_options_that_its_compiler_may_refuse(
    world: World,
) -> None:
    world.governor.modes.link_with(100, CompileMode.MOLD)
    world.ask(once="it reads a pipe", collector=Collector.FREE, command=LINK)
    (request,) = world.governor.state(1.0).waiting
    assert (request.mode, request.effects, request.restarts) == (CompileMode.DEFAULT, (), False)
    world.ask(8, collector=Collector.FREE, command=LINK)
    assert world.governor.state(1.0).waiting[1].mode is CompileMode.MOLD
