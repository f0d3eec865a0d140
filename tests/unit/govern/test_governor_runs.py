"""Several runs of one governor: each gets its turn, within limits of its own."""

import pytest

from scripted_governor import GIB, World
from stoker.model.govern import Decision, Reason
from stoker.model.terms import RunShare, RunTerms

FIRST, SECOND = 100, 101


def both(world: World, *, steps: int = 6, **second: object) -> None:
    """The first run holds two CPUs, and its steps are the most urgent ones; then comes another."""
    world.policy.admits = False
    world.governor.join(FIRST, RunTerms(), RunShare(cpus=4), 0.0)
    for number in range(steps):
        world.ask(number, FIRST, source=f"long{number}.cpp", path=lambda: 20.0)
    world.policy.next = Decision(admit=(1, 2))
    world.governor.decide(1.0)
    share = RunShare(**{"cpus": 4, **second})  # type: ignore[arg-type]
    world.governor.join(SECOND, RunTerms(), share, 0.0)
    for number in range(3):
        world.ask(50 + number, SECOND, source=f"short{number}.cpp", path=lambda: 0.2)


def runs_in_order(world: World) -> list[int]:
    """The runs of the waiting steps, in the order in which the policy sees them."""
    state = world.governor.state(2.0)
    return [FIRST if request.id <= 6 else SECOND for request in state.waiting]


def test_the_run_with_the_fewest_cpus_is_next(world: World) -> None:
    both(world)
    assert runs_in_order(world)[:2] == [SECOND, SECOND]
    assert sorted(runs_in_order(world)) == [FIRST] * 4 + [SECOND] * 3


def test_one_run_alone_has_the_order_of_its_steps(world: World) -> None:
    both(world)
    for connection in (50, 51, 52):
        world.governor.lost(connection)
    world.governor.forget(SECOND)
    assert runs_in_order(world) == [FIRST] * 4


@pytest.mark.parametrize(("weight", "first"), [(0.25, 1), (4.0, 3)])
def test_cpus_are_shared_by_weight(world: World, weight: float, first: int) -> None:
    """Two CPUs of weight 1 are as much as half a CPU of weight 0.25, or eight of weight 4."""
    both(world, weight=weight)
    order = runs_in_order(world)
    assert order[:first] == [SECOND] * first
    assert weight > 1 or order[first] == FIRST


def test_a_run_gets_no_more_cpus_than_it_may_use(world: World) -> None:
    both(world, cpus=1)
    world.policy.next = Decision(admit=(7, 8))
    world.governor.decide(2.0)
    assert [step.id for step in world.governor.state(2.0).running] == [1, 2, 7]
    assert SECOND not in runs_in_order(world)


def test_a_run_gets_no_more_memory_than_it_may_use(world: World) -> None:
    both(world, cap=GIB // 2)
    world.policy.next = Decision(admit=(7, 8))
    world.governor.decide(2.0)
    assert [step.id for step in world.governor.state(2.0).running] == [1, 2, 7]
    assert world.governor.limit_of(SECOND) == GIB // 2
    assert world.governor.limit_of(FIRST) == 4 * GIB


def test_the_limits_of_a_run_end_with_it(world: World) -> None:
    world.governor.join(FIRST, RunTerms(), RunShare(cpus=2, cap=GIB), 0.0)
    assert (world.governor.limit, world.governor.state(1.0).cpus) == (GIB, 2)
    world.governor.join(SECOND, RunTerms(), RunShare(cpus=3, cap=2 * GIB), 0.0)
    assert (world.governor.limit, world.governor.state(1.0).cpus) == (3 * GIB, 3)
    world.governor.forget(FIRST)
    assert (world.governor.limit, world.governor.state(1.0).cpus) == (2 * GIB, 3)


def test_a_run_is_told_that_it_waits_for_cpus_of_another(world: World) -> None:
    both(world)
    assert world.governor.overview(SECOND, 2.0).waits == {Reason.RUNS: 3}
    world.governor.lost(0)
    world.governor.lost(1)
    assert world.governor.overview(SECOND, 2.0).waits == {Reason.CPUS: 3}


def test_runs_take_turns_on_one_cpu(world: World) -> None:
    both(world)
    world.governor.lost(0)
    world.governor.lost(1)
    assert runs_in_order(world)[0] == SECOND  # the first run was served before
    world.policy.next = Decision(admit=(7,))
    world.governor.decide(2.0)
    world.governor.lost(50)
    assert runs_in_order(world)[:2] == [FIRST, SECOND]
