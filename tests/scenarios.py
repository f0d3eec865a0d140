"""Builds that are simulated with the real governor, many draws of each: they judge its policy.

    python tests/scenarios.py [ROW ...] [--draws N] [--processes N] [--store "REASON"]

prints each row beside what is stored. A single build is chaotic: a change that cannot matter moves
its time by several percent in either direction, so one draw of it says nothing. A row therefore has
so many draws (other sources, other peaks, where said other durations) that the mean of their ratios
to the stored times is certain to about one percent. A change of the policy is refused if a row is
slower by more than 4 % and by more than two standard errors, if all rows together are slower by
more than 2 %, or if more kills by the kernel or more lost work are not chance.

Every result is the same on any machine: the clock is virtual and the draws have fixed seeds.
"""

import argparse
import json
import lzma
import os
import posixpath
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from math import exp, log, sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import scattered
from stoker.govern.history.trace import read_trace
from stoker.govern.policy.adaptive import Adaptive
from stoker.model.govern import Collector, CompileMode, ModeEffect, Role, Step, StepRecord
from stoker.model.simulation import SimulatedWorkers, SimulationResult
from stoker.model.terms import Gc
from stoker.model.value import Value

DATA = Path(__file__).parent / "unit/govern/scenarios.json"
_RESULTS = Path(__file__).parents[1] / "benchmarks/results"
_GIB = 1 << 30
_TABLES = 8  # sources with large tables
_LIGHT = 40
_OTHER_MEMORY = 60_000_000  # ninja, stoker and shells in the same control group
_MEMORY = 0.1  # share by which peaks differ from those of the history
_DURATIONS = 0.15  # the same of durations, where they differ

_MOST_OF_A_ROW, _MOST_OF_ALL = log(1.04), log(1.02)

Steps = tuple[StepRecord, ...]


class Row(Value, frozen=True, kw_only=True):
    """A kind of build; ``run`` simulates one draw of it."""

    run: Callable[[int], SimulationResult]
    draws: int = 16


class Drawn(Value, frozen=True, kw_only=True, array_like=True):
    """What one draw gave."""

    seconds: float
    preemptions: int
    oom_kills: int
    lost_s: float


class Kept(Value, frozen=True, kw_only=True):
    """What the draws of a row gave when they were last accepted, and why not as before."""

    why: str
    draws: tuple[Drawn, ...]


class Change(Value, frozen=True, kw_only=True):
    """By how much draws differ from those stored: the mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, differences: Sequence[float]) -> "Change":
        count = len(differences)
        error = stdev(differences) / sqrt(count) if count > 1 else 0.0
        return cls(mean=mean(differences), error=error)

    def exceeds(self, most: float) -> bool:
        """Return whether it is more than that, and no chance."""
        return self.mean > most and self.mean > 2 * self.error


def _tables(seed: int) -> Steps:
    """Return the steps of the build under a tight limit. Durations differ from run to run."""
    known, random = json.loads(DATA.read_bytes())["tables"], Random(seed)
    names = [f"table_{number:02d}.cpp" for number in range(_TABLES)]
    names += [f"small_{number:02d}.cpp" for number in range(_LIGHT)]
    compiles = [_compile(name, known, random) for name in sorted(names, key=lambda n: n[::-1])]
    library = Step(
        key="link", role=Role.LINK, source="libtables.so", output="libtables.so", directory="b"
    )
    objects = tuple(record.step.output for record in compiles)
    link = StepRecord(step=library, wall_s=0.3, cpu_s=0.3, peak_bytes=50_000_000, needs=objects)
    return (*compiles, link)


def _compile(name: str, known: dict[str, Any], random: Random) -> StepRecord:
    large = name.startswith("table")
    seconds = (known["seconds"] if large else 0.8) * random.uniform(0.9, 1.1)
    peak = known["peak_bytes"] if large else 80_000_000
    profile = tuple(known["profile"]) if large else ()
    mean_share = sum(profile) / len(profile) / 100 if large else 0.6
    # Tables have no garbage: modes cost time and save nothing.
    costs = ((CompileMode.FAST, 0.98), (CompileMode.LEAN, 1.02), (CompileMode.LOW, 1.06))
    return StepRecord(
        step=Step(
            key=name,
            role=Role.CXX,
            source=name,
            output=f"{name}.o",
            directory="b",
            compiler="g++",
            input_bytes=700_000 if large else 300,
            collector=Collector.FREE,
        ),
        wall_s=seconds,
        cpu_s=seconds,
        peak_bytes=peak,
        byte_seconds=peak * seconds * mean_share,
        profile=profile,
        effects=tuple(ModeEffect(mode=mode, seconds=cost) for mode, cost in costs),
    )


def _build_tables(draw: int, *, cpus: int, earlier: int, gc: Gc = Gc.AUTO) -> SimulationResult:
    """Build the tables; each run knows what the ``earlier`` ones have recorded."""
    history: list[StepRecord] = []
    for run in range(earlier):
        simulate(
            _tables(4 * draw + run),
            Adaptive(),
            cpus=cpus,
            memory=2 * _GIB - _OTHER_MEMORY,
            history=tuple(history),
            gc=gc,
            keep=history.append,
        )
    return simulate(
        _tables(4 * draw + earlier),
        Adaptive(),
        cpus=cpus,
        memory=2 * _GIB - _OTHER_MEMORY,
        history=tuple(history),
        gc=gc,
    )


@cache
def _trace(name: str) -> Steps:
    content = (_RESULTS / name).read_bytes()
    return read_trace(lzma.decompress(content) if name.endswith("xz") else content, name).steps


@cache
def _pytorch() -> Steps:
    """Return the compiles of PyTorch, for which modes of gcc are allowed."""
    return tuple(
        replace(record, step=replace(record.step, collector=Collector.FREE))
        if record.step.role is Role.CXX
        else record
        for record in _trace("pytorch-2.6.0-x86_64-trace.json.xz")
    )


def _cuda() -> Steps:
    return _trace("pytorch-2.6.0-cuda-trace.json.xz")


def _flash() -> Steps:
    return _trace("flash-attn-2.8.3-trace.json")


def _unknown(steps: Steps) -> Steps:
    """Return the steps with names of sources for which nothing is shipped."""
    return tuple(
        replace(record, step=replace(record.step, source=posixpath.join(folder, f"q{name}")))
        for record in steps
        for folder, name in (posixpath.split(record.step.source),)
    )


def _with_memory(steps: Steps, times: float) -> Steps:
    if times == 1.0:
        return steps
    return tuple(replace(each, peak_bytes=round(each.peak_bytes * times)) for each in steps)


def _with_durations(steps: Steps, by: float, seed: int) -> Steps:
    """Return the steps with durations drawn within a share of the recorded ones."""
    random = Random(seed)
    return tuple(_lasting(record, random.uniform(1 - by, 1 + by)) for record in steps)


def _lasting(record: StepRecord, factor: float) -> StepRecord:
    integral = record.byte_seconds
    return replace(
        record,
        wall_s=record.wall_s * factor,
        cpu_s=record.cpu_s * factor,
        byte_seconds=integral and integral * factor,
    )


def _build(
    draw: int,
    of: Callable[[], Steps],
    *,
    cpus: int,
    gib: float,
    every: int = 1,
    warm: bool = False,
    durations: float = 0.0,
    earlier: int = 0,
    renamed: bool = False,
    times: float = 1.0,
    **more: Any,
) -> SimulationResult:
    """Build one step of ``every`` so many; the draw says which. With ``warm`` the history has the
    steps as they were recorded; with ``earlier`` it is that of so many builds. Peaks are so many
    ``times`` as high as recorded, as with another compiler.
    """
    steps = of()[draw % every :: every]
    steps = _unknown(steps) if renamed else steps
    history: list[StepRecord] = list(steps) if warm else []
    for run in range(earlier + 1):
        actual = _with_memory(scattered(steps, by=_MEMORY, seed=100 * run + draw), times)
        result = simulate(
            _with_durations(actual, durations, 100 * run + draw) if durations else actual,
            Adaptive(),
            cpus=cpus,
            memory=round(gib * _GIB),
            history=tuple(history),
            keep=history.append if run < earlier else lambda _: None,
            **more,
        )
    return result


def _tiny() -> Steps:
    return tuple(
        StepRecord(
            step=Step(key=name, role=Role.C, source=name, output=f"{name}.o", input_bytes=20),
            wall_s=0.02,
            cpu_s=0.02,
            peak_bytes=20_000_000,
        )
        for name in (f"d{number % 50}/{number}.c" for number in range(5000))
    )


def _build_kernels(draw: int, *, cpus: int, gib: float, times: int = 1) -> SimulationResult:
    """Build a small CUDA project like apex, of which nothing is known, or one that needs several
    times as much memory.
    """
    random = Random(draw)
    names = [f"csrc/kernel_{number:02d}.cu" for number in range(random.choice((14, 22, 40)))]
    steps = tuple(
        StepRecord(
            step=Step(key=name, role=Role.CUDA, source=name, output=f"{name}.o", archs=("sm_90",)),
            wall_s=seconds,
            cpu_s=seconds,
            peak_bytes=times * round(random.uniform(0.4, 1.2) * 1e9),
        )
        for name, seconds in ((name, random.uniform(15, 60)) for name in names)
    )
    return simulate(steps, Adaptive(), cpus=cpus, memory=round(gib * _GIB))


def _rows() -> dict[str, Row]:
    part = partial(_build, of=_pytorch, every=16, cpus=4)
    cuda = partial(_build, of=_cuda, every=3)
    flash = partial(_build, of=_flash, every=2, cpus=8, gib=24)
    tables, kernels = _build_tables, _build_kernels
    workers = SimulatedWorkers(workers=16, jobs=4, bandwidth=125e6)
    off, scattered_by = Gc.OFF, _DURATIONS
    runs: dict[str, Callable[[int], SimulationResult]] = {
        "tables-2cpu-first": partial(tables, cpus=2, earlier=0),
        "tables-2cpu-second": partial(tables, cpus=2, earlier=1),
        "tables-4cpu-first": partial(tables, cpus=4, earlier=0),
        "tables-4cpu-second": partial(tables, cpus=4, earlier=1),
        "tables-4cpu-third": partial(tables, cpus=4, earlier=2),
        "tables-4cpu-third-gc-off": partial(tables, cpus=4, earlier=2, gc=off),
        "pytorch-2G-first": partial(part, gib=2),
        "pytorch-2.5G-first": partial(part, gib=2.5),
        "pytorch-2.5G-first-gc-off": partial(part, gib=2.5, gc=off),
        "pytorch-2G-first-scattered": partial(part, gib=2, durations=scattered_by),
        "pytorch-2G-first-x0.7": partial(part, gib=2, times=0.7),
        "pytorch-2G-known": partial(part, gib=2, warm=True),
        "pytorch-2.5G-known": partial(part, gib=2.5, warm=True),
        "pytorch-2.5G-known-gc-off": partial(part, gib=2.5, warm=True, gc=off),
        "pytorch-2G-known-scattered": partial(part, gib=2, warm=True, durations=scattered_by),
        "pytorch-2.5G-second": partial(part, gib=2.5, earlier=1, durations=0.05),
        "pytorch-4G-first": partial(part, gib=4, durations=scattered_by),
        "pytorch-4G-known": partial(part, gib=4, warm=True),
        "pytorch-1.5G-2cpu-first": partial(part, gib=1.5, cpus=2, durations=scattered_by),
        "pytorch-5G-8cpu-first": partial(part, gib=5, cpus=8, every=8),
        "pytorch-5G-8cpu-known": partial(part, gib=5, cpus=8, every=8, warm=True),
        "unknown-2G-first": partial(part, gib=2, renamed=True),
        "unknown-8G-8cpu-first": partial(part, gib=8, cpus=8, renamed=True, durations=scattered_by),
        "cuda-16G-first": partial(cuda, cpus=8, gib=16, durations=scattered_by),
        "cuda-16G-known": partial(cuda, cpus=8, gib=16, warm=True),
        "cuda-16G-16cpu-unknown": partial(cuda, cpus=16, gib=16, renamed=True),
        "flash-24G-first": partial(flash),
        "flash-24G-known": partial(flash, warm=True, durations=scattered_by),
        "kernels-124G-16cpu": partial(kernels, cpus=16, gib=124),
        "kernels-24G-16cpu": partial(kernels, cpus=16, gib=24),
        "kernels-x3-16G-8cpu": partial(kernels, cpus=8, gib=16, times=3),
        "kernels-x6-24G-16cpu": partial(kernels, cpus=16, gib=24, times=6),
    }
    rows = {name: Row(run=run, draws=24 if "-2G-" in name else 16) for name, run in runs.items()}
    tiny = partial(_build, of=_tiny, cpus=2, gib=4)
    distributed = partial(part, gib=8, warm=True, distribution=workers)
    rows["tiny-5000-2cpu"] = Row(run=tiny, draws=1)
    rows["pytorch-64-workers"] = Row(run=distributed, draws=2)
    for gib, warm in ((8, True), (16, False)):
        word = "known" if warm else "first"
        whole = partial(_build, of=_pytorch, cpus=16, gib=gib, warm=warm)
        rows[f"whole-pytorch-{gib}G-{word}"] = Row(run=whole, draws=1)
    return rows


ROWS = _rows()


def drawn(name: str, draw: int) -> Drawn:
    """Simulate one draw of a row."""
    result = ROWS[name].run(draw)
    return Drawn(
        seconds=round(result.wall_s, 2),
        preemptions=result.preemptions,
        oom_kills=result.oom_kills,
        lost_s=round(result.lost_s, 2),
    )


def stored() -> dict[str, Kept]:
    return msgspec.convert(json.loads(DATA.read_bytes())["rows"], dict[str, Kept])


def _store(found: Mapping[str, Sequence[Drawn]], why: str) -> None:
    data = json.loads(DATA.read_bytes())
    kept = stored() | {name: Kept(why=why, draws=tuple(each)) for name, each in found.items()}
    rows = (f"{json.dumps(name)}: {msgspec.json.encode(kept[name]).decode()}" for name in ROWS)
    tables, lines = json.dumps(data["tables"]), ",\n".join(rows)
    DATA.write_text(f'{{"tables": {tables},\n"rows": {{\n{lines}\n}}}}\n')


def _compare(name: str, now: Sequence[Drawn], kept: Sequence[Drawn]) -> Change:
    """Print a row beside what is stored of it; return by which factor, as a power of e, it takes
    longer.
    """
    seconds, kills = mean(each.seconds for each in now), sum(each.oom_kills for each in now)
    pairs = list(zip(now, kept, strict=False))
    change = Change.of([log(new.seconds / old.seconds) for new, old in pairs])
    before = sum(each.oom_kills for each in kept[: len(now)])
    verdict = "  REFUSED" if change.exceeds(_MOST_OF_A_ROW) else ""
    sys.stdout.write(
        f"{name:28} {seconds:8.1f} s, {exp(change.mean):.3f} +-{change.error:.3f} of stored, "
        f"{before} -> {kills} OOM kills{verdict}\n"
    )
    return change


def _is_refused(found: Mapping[str, Sequence[Drawn]]) -> bool:
    """Print all rows beside what is stored; return whether the policy has become worse."""
    before = stored()
    known = {name: now for name, now in found.items() if name in before}
    changes = [_compare(name, now, before[name].draws) for name, now in known.items()]
    pairs = [
        pair for name, now in known.items() for pair in zip(now, before[name].draws, strict=False)
    ]
    total = mean(change.mean for change in changes)
    kills = Change.of([new.oom_kills - old.oom_kills for new, old in pairs])
    lost = Change.of([(new.lost_s - old.lost_s) / old.seconds for new, old in pairs])
    sys.stdout.write(
        f"all rows: {exp(total):.4f} of stored; a draw has {kills.mean:+.3f} +-{kills.error:.3f} "
        f"OOM kills and loses {lost.mean:+.2%} +-{lost.error:.2%} of its time in CPU time\n"
    )
    worse = total > _MOST_OF_ALL or kills.exceeds(0) or lost.exceeds(0)
    return worse or any(change.exceeds(_MOST_OF_A_ROW) for change in changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--store", metavar="REASON")
    options = parser.parse_args()
    tasks = [(name, draw) for name in options.names or ROWS for draw in range(ROWS[name].draws)]
    found: dict[str, list[Drawn]] = defaultdict(list)
    with ProcessPoolExecutor(options.processes) as pool:
        for (name, _), result in zip(
            tasks, pool.map(drawn, *zip(*tasks, strict=True)), strict=True
        ):
            found[name].append(result)
    refused = _is_refused(found)
    if options.store:
        _store(found, options.store)
    sys.exit(refused and not options.store)


if __name__ == "__main__":
    main()
