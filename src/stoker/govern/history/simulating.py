"""`stoker simulate`: simulate a measured build on other machines."""

from collections.abc import Sequence
from itertools import product

from stoker.govern.history.past_runs import find_trace
from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import scattered
from stoker.govern.policy.policies import make_policy
from stoker.model.govern import StepRecord, Trace
from stoker.model.simulation import SimulatedWorkers, SimulationResult
from stoker.model.value import Value, size
from stoker.outside.terminal import Group, Listing, Page, Text

_SEED = 1


class SimulationOptions(Value, frozen=True, kw_only=True):
    """Every number of CPUs is tried with every amount of memory, distribution and policy."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]
    policies: tuple[str, ...] = ("adaptive",)
    cold: bool = False  # no measurement of the steps is known in advance
    scatter: float = 0.0  # peaks differ from what is known by up to this share
    distributions: tuple[SimulatedWorkers | None, ...] = (None,)


def simulate_build(
    source: str, options: SimulationOptions
) -> tuple[Trace, tuple[SimulationResult, ...]]:
    """Simulate a build. ``source`` is a trace file, the number of a run or its run folder."""
    trace = find_trace(source)
    steps = scattered(trace.steps, by=options.scatter, seed=_SEED)
    known = () if options.cold else trace.steps
    return trace, tuple(_results(steps, known, options))


def _results(
    steps: Sequence[StepRecord], known: Sequence[StepRecord], options: SimulationOptions
) -> list[SimulationResult]:
    machines = product(options.cpus, options.memory, options.distributions, options.policies)
    return [
        simulate(
            steps,
            make_policy(policy, cpus=cpus),
            cpus=cpus,
            memory=memory,
            history=known,
            distribution=distribution,
        )
        for cpus, memory, distribution, policy in machines
    ]


_COLUMNS = (
    ">CPUs",
    ">memory",
    ">workers",
    "policy",
    ">time",
    ">saves",
    ">of bound",
    ">bound",
    "limited by",
    ">peak",
    ">paused",
    ">preempted",
    ">OOM kills",
    ">failed",
)
# Columns that are left out where no row has a figure, so that the table fits 80 columns.
_IF_ANY = (">workers", ">saves", ">paused", ">preempted", ">OOM kills", ">failed")


def simulation_page(trace: Trace, results: Sequence[SimulationResult]) -> Page:
    rows = [simulation_row(result, results[0]) for result in results]
    shown = [
        n
        for n, name in enumerate(_COLUMNS)
        if name not in _IF_ANY or any(row[n] not in ("", "0") for row in rows)
    ]
    table = Listing(*(_COLUMNS[n] for n in shown))
    for row in rows:
        table.add(*(row[n] for n in shown))
    head = Text(f"{trace.what}, {len(trace.steps)} steps, simulated", style="bold")
    notes = [Text(f"note: {note}", style="dim") for note in trace.notes]
    return Group(head, table, *notes)


def simulation_row(result: SimulationResult, first: SimulationResult) -> tuple[str, ...]:
    """Return a row of the table. ``saves`` is relative to the first row."""
    saved = 1 - result.wall_s / first.wall_s if first.wall_s else 0.0
    bound, farm = result.bounds.lower_s, result.distribution
    return (
        str(result.cpus),
        size(result.memory_bytes),
        f"{farm.workers} x {farm.jobs}" if farm else "",
        result.policy,
        f"{result.wall_s:,.0f} s",
        f"{saved:.0%}" if result is not first else "",
        f"{result.wall_s / bound:.2f}" if bound and not result.failed else "",
        f"{bound:,.0f} s" if not result.failed else "",
        result.bounds.limited_by,
        f"{result.peak_bytes / result.memory_bytes:.0%}",
        str(result.pauses),
        str(result.preemptions),
        str(result.oom_kills),
        str(len(result.failed)),
    )
