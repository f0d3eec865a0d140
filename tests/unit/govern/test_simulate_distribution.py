"""Simulated workers: where the stages of a compile run, and what limits a build that has them."""

import pytest
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB
from stoker.govern.history.simulate import simulate
from stoker.govern.policy.adaptive import Adaptive
from stoker.knowledge.steps import client_costs
from stoker.model.govern import Role, StepRecord
from stoker.model.simulation import SimulatedWorkers, SimulationResult

FAST = 1e15  # bytes a second: transfers take no time


def workers(number: int, jobs: int = 1, bandwidth: float = FAST) -> SimulatedWorkers:
    return SimulatedWorkers(workers=number, jobs=jobs, bandwidth=bandwidth)


def sources(count: int, role: Role = Role.CXX) -> tuple[StepRecord, ...]:
    return tuple(make.record(f"{n}.cpp", seconds=100, role=role) for n in range(count))


def build(
    steps: tuple[StepRecord, ...], distribution: SimulatedWorkers | None, cpus: int = 1
) -> SimulationResult:
    result = simulate(
        steps, Adaptive(), cpus=cpus, memory=64 * GB, history=steps, distribution=distribution
    )
    assert result.failed == ()
    assert result.wall_s >= result.bounds.lower_s - 1e-6
    return result


def test_workers_compile_beside_one_another_and_the_client_preprocesses() -> None:
    costs, steps = client_costs(), sources(8)
    alone = build(steps[:1], workers(1)).wall_s
    assert alone == pytest.approx(100 * (costs.cpu_share + costs.worker_share))
    together = build(steps, workers(8)).wall_s
    # All preprocess at once on the one CPU, then each has a worker.
    assert together == pytest.approx(100 * (8 * costs.cpu_share + costs.worker_share), rel=0.01)


def test_where_places_are_missing_the_workers_are_the_limit() -> None:
    result = build(sources(40), workers(2, jobs=2))
    assert result.bounds.limited_by == "the workers"
    # A compile keeps its place while it preprocesses.
    assert result.wall_s < 1.5 * result.bounds.lower_s


@pytest.mark.slow
def test_with_many_workers_the_client_is_the_limit() -> None:
    costs, result = client_costs(), build(sources(300), workers(100))
    assert result.bounds.limited_by == "CPUs"
    assert result.wall_s == pytest.approx(
        300 * 100 * costs.cpu_share + 100 * costs.worker_share, rel=0.1
    )


def test_transfers_share_the_link() -> None:
    costs = client_costs()
    size = 100 * (costs.cpu_share * costs.sent_per_client_second + costs.object_per_second)
    slow = workers(100, bandwidth=size / 50)  # 50 s for the transfers of one compile
    result = build(sources(20), slow, cpus=20)
    assert result.bounds.limited_by == "the link"
    assert 20 * 50 <= result.wall_s <= 20 * 50 + 200


@pytest.mark.parametrize("role", [Role.CUDA, Role.LINK, Role.OTHER])
def test_only_c_and_cxx_leave_the_machine(role: Role) -> None:
    steps = sources(6, role)
    result = build(steps, workers(8))
    assert replace(result, distribution=None) == build(steps, None)
    assert result.wall_s == pytest.approx(600)


def test_a_remote_compile_takes_little_memory_here() -> None:
    steps = tuple(replace(step, peak_bytes=20 * GB) for step in sources(10))
    assert build(steps, workers(10)).peak_bytes <= 10 * client_costs().peak < 20 * GB
