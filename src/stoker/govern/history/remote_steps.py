"""The steps of a simulated distribution: what compiles take here and elsewhere.

The distributor preprocesses here, sends the result over the link, waits for the worker, and
gets the object. What that costs was measured (`knowledge/distribution.toml`). CUDA and links
stay here, because no distributor takes them.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum

from msgspec.structs import replace

from stoker.govern.command_line import as_remote
from stoker.knowledge.steps import client_costs
from stoker.model.govern import PARTS, Role, StepRecord
from stoker.model.simulation import SimulatedWorkers


class StagePlace(IntEnum):
    """Where a stage of a step runs; stages at the same place share it, except at workers."""

    HERE = 0
    LINK = 1
    WORKER = 2


Stages = tuple[
    tuple[StagePlace, float], ...
]  # seconds of each stage if it has its place for itself


def at_workers(
    steps: Sequence[StepRecord], distribution: SimulatedWorkers
) -> tuple[tuple[StepRecord, ...], dict[int, Stages]]:
    """Return the steps as the machine that builds sees them, and the stages of those that workers
    compile, by index.
    """
    stages = {
        index: _stages(record, distribution)
        for index, record in enumerate(steps)
        if record.step.role in (Role.C, Role.CXX) and record.wall_s > 0
    }
    seen = (
        _here(record, stages[index]) if index in stages else record
        for index, record in enumerate(steps)
    )
    return tuple(seen), stages


def seconds_at(place: StagePlace, steps: Iterable[Stages]) -> float:
    return sum(seconds for stages in steps for where, seconds in stages if where is place)


def _stages(record: StepRecord, distribution: SimulatedWorkers) -> Stages:
    costs = client_costs()
    client = costs.cpu_share * record.wall_s
    sent = client * costs.sent_per_client_second / distribution.bandwidth
    received = record.wall_s * costs.object_per_second / distribution.bandwidth
    compiled = record.wall_s * costs.worker_share
    stages = (
        (StagePlace.HERE, client),
        (StagePlace.LINK, sent),
        (StagePlace.WORKER, compiled),
        (StagePlace.LINK, received),
    )
    return tuple(stage for stage in stages if stage[1] > 0)


def _here(record: StepRecord, stages: Stages) -> StepRecord:
    """Return what is left of a step on this machine."""
    costs, seconds = client_costs(), sum(each for _, each in stages)
    peak = min(record.peak_bytes, costs.peak)
    begun = round(PARTS * stages[0][1] / seconds)
    rest = round(100 * costs.rest / max(peak, costs.rest))
    profile = tuple(100 if part <= begun else rest for part in range(PARTS))
    return replace(
        record,
        step=as_remote(record.step),
        wall_s=seconds,
        cpu_s=stages[0][1],
        peak_bytes=peak,
        byte_seconds=peak * seconds * sum(profile) / (100 * PARTS),
        profile=profile,
    )
