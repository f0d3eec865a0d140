"""Simulates a build in several jobs: shards that compile, and a last job that links."""

from collections.abc import Iterable, Sequence
from statistics import mean

from msgspec.structs import replace

from stoker.builds.jobs.checkpoint import CACHED
from stoker.builds.jobs.shards import Piece, cost, split_pieces
from stoker.govern.history.simulate import simulate
from stoker.govern.policy.policies import make_policy
from stoker.model.govern import StepRecord, Trace
from stoker.model.value import Value, counted, duration, size
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.settings.tables import Prices

_MOST_JOBS = 1000  # of one shard


class FarmResult(Value, frozen=True, kw_only=True):
    """A simulated build in several jobs on machines of one size.

    ``imbalance`` is the time of the longest shard over the mean; ``idle`` the share of CPU time
    that no step used. ``too_long`` are steps that do not fit into one job.
    """

    shards: int
    cpus: int
    memory: int
    jobs: int  # all of them, also those that continue another one
    wall_seconds: float  # if all shards run at the same time
    machine_seconds: float  # the sum of all jobs
    cpu_seconds: float  # of all steps
    imbalance: float
    idle: float
    too_long: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def simulate_farm(
    steps: Sequence[StepRecord],
    *,
    shards: int,
    cpus: int,
    memory: int,
    limit: float | None = None,
    setup: float = 0.0,
) -> FarmResult:
    """Simulate the steps in shards. Each job takes ``setup`` seconds before its first step, and no
    longer than ``limit`` in all; the next job continues. Transfers of objects take no time.
    """
    pieces = [
        Piece(output=each.step.output, cost=cost(each.wall_s, each.peak_bytes))
        for each in steps
        if each.step.role in CACHED
    ]
    compiled = {piece.output for piece in pieces}
    shares = [set(share) for share in split_pieces(pieces, shards)]
    parts = [_part(steps, share, compiled - share) for share in shares]
    last = _part(steps, {each.step.output for each in steps} - compiled, compiled)
    *made, finisher = (
        _Jobs(part, cpus=cpus, memory=memory, limit=limit, setup=setup) for part in (*parts, last)
    )
    machine_seconds = finisher.seconds + sum(jobs.seconds for jobs in made)
    cpu_seconds = sum(each.cpu_s for each in steps)
    longest, average = max(jobs.seconds for jobs in made), mean(jobs.seconds for jobs in made)
    return FarmResult(
        shards=shards,
        cpus=cpus,
        memory=memory,
        jobs=finisher.count + sum(jobs.count for jobs in made),
        wall_seconds=longest + finisher.seconds,
        machine_seconds=machine_seconds,
        cpu_seconds=cpu_seconds,
        imbalance=longest / average if average else 1.0,
        idle=max(0.0, 1 - cpu_seconds / (machine_seconds * cpus)) if machine_seconds else 0.0,
        too_long=tuple(name for jobs in (*made, finisher) for name in jobs.too_long),
        failed=tuple(name for jobs in (*made, finisher) for name in jobs.failed),
    )


def _part(
    steps: Sequence[StepRecord], wanted: Iterable[str], elsewhere: Iterable[str]
) -> tuple[StepRecord, ...]:
    """Return the wanted steps. What other jobs compile is there when it is needed."""
    names, others = set(wanted), set(elsewhere)
    left = (each for each in steps if each.step.output in names)
    return tuple(
        replace(each, needs=tuple(n for n in each.needs if n in names and n not in others))
        for each in left
    )


class _Jobs:
    """The jobs that run some steps one after another, each until its time is over."""

    def __init__(
        self,
        steps: Sequence[StepRecord],
        *,
        cpus: int,
        memory: int,
        limit: float | None,
        setup: float,
    ):
        self.count = 0
        self.seconds = 0.0
        self.failed: list[str] = []
        self.too_long: tuple[str, ...] = ()
        time_left = None if limit is None else max(0.0, limit - setup)
        while self.count < _MOST_JOBS and not self.too_long:
            policy = make_policy("adaptive", cpus=cpus)
            result = simulate(
                steps, policy, cpus=cpus, memory=memory, history=steps, limit=time_left
            )
            self.count += 1
            self.seconds += setup + result.wall_s
            self.failed += result.failed
            if not result.unfinished:
                return
            if len(result.unfinished) == len(steps):  # another job would do no better
                self.too_long = result.unfinished
            left = set(result.unfinished)
            steps = _part(steps, left, ())


_COLUMNS = (
    *(">shards", ">CPUs", ">memory", ">jobs", ">time", ">machine time", ">longest/mean", ">idle"),
    *(">cost", ">too long"),
)


def farm_page(trace: Trace, results: Sequence[FarmResult], prices: Prices) -> Page:
    """Return a table with a row for each number of shards. The cost is shown if stoker.toml has
    prices.
    """
    rows = [_row(result, prices) for result in results]
    shown = [n for n, _ in enumerate(_COLUMNS) if n < 8 or any(row[n] for row in rows)]
    table = Listing(*(_COLUMNS[n] for n in shown))
    for row in rows:
        table.add(*(row[n] for n in shown))
    head = Text(
        f"{trace.what}, {counted(len(trace.steps), 'step')}, simulated in jobs", style="bold"
    )
    names = [name for result in results for name in result.too_long][:5]
    notes = [Text(f"does not fit into one job: {name}") for name in dict.fromkeys(names)]
    return Group(head, table, *notes, *(Text(f"note: {n}", style="dim") for n in trace.notes))


def _row(result: FarmResult, prices: Prices) -> tuple[str, ...]:
    price = prices.cost(result.machine_seconds, cpus=result.cpus, memory=result.memory)
    return (
        str(result.shards),
        str(result.cpus),
        size(result.memory),
        str(result.jobs),
        duration(result.wall_seconds),
        duration(result.machine_seconds),
        f"{result.imbalance:.2f}",
        f"{result.idle:.0%}",
        f"{price:.2f} {prices.currency}".strip() if price is not None else "",
        str(len(result.too_long)) if result.too_long else "",
    )
