"""Recorded builds, simulated with the real governor: the scenarios whose results are stored.

    python tests/scenarios.py [NAME ...] [--store "REASON"]

prints the results beside the stored ones, and stores them with the reason why they changed.
Every result is the same on any machine: the clock is virtual and the draws have fixed seeds.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from stoker.govern.adaptive import Adaptive
from stoker.govern.simulate import simulate
from stoker.govern.simulated_steps import scattered
from stoker.govern.trace import read_trace
from stoker.model.govern import Collector, CompileMode, Gc, ModeEffect, Role, Step, StepRecord
from stoker.model.simulation import SimulatedWorkers, SimulationResult
from stoker.model.value import Value

DATA = Path(__file__).parent / "unit/govern/scenarios.json"
_RESULTS = Path(__file__).parents[1] / "benchmarks/results"
_GIB = 1 << 30
_TABLES = 8  # sources with large tables
_LIGHT = 40
_WORDS = (("cold", False), ("warm", True))
_OTHER_MEMORY = 60_000_000  # ninja, stoker and shells in the same control group


class Stored(Value, frozen=True, kw_only=True):
    """What a scenario gave when it was last accepted, and why that differs from before."""

    seconds: float
    preemptions: int
    oom_kills: int
    why: str


Scenario = Callable[[], SimulationResult]


def _tables(run: int) -> tuple[StepRecord, ...]:
    """Return the steps of the build under a tight limit. Durations differ from run to run."""
    known, random = json.loads(DATA.read_bytes())["tables"], Random(run)
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
    mean = sum(profile) / len(profile) / 100 if large else 0.6
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
        byte_seconds=peak * seconds * mean,
        profile=profile,
        effects=tuple(ModeEffect(mode=mode, seconds=cost) for mode, cost in costs),
    )


@cache
def _runs_of_tables(cpus: int, gc: Gc) -> tuple[SimulationResult, ...]:
    """Return three runs, of which each knows what the ones before it have recorded."""
    history: list[StepRecord] = []
    results = []
    for run in range(3):
        kept: list[StepRecord] = []
        memory = 2 * _GIB - _OTHER_MEMORY
        known = tuple(history)
        result = simulate(
            _tables(run),
            Adaptive(),
            cpus=cpus,
            memory=memory,
            history=known,
            gc=gc,
            keep=kept.append,
        )
        results.append(result)
        history += kept
    return tuple(results)


@cache
def _trace(name: str) -> tuple[StepRecord, ...]:
    content = (_RESULTS / name).read_bytes()
    return read_trace(lzma.decompress(content) if name.endswith("xz") else content, name).steps


def _pytorch(every: int = 1) -> tuple[StepRecord, ...]:
    """Return the compiles of PyTorch, or one of so many, for which modes of gcc are allowed."""
    return tuple(
        replace(record, step=replace(record.step, collector=Collector.FREE))
        if record.step.role is Role.CXX
        else record
        for record in _trace("pytorch-2.6.0-x86_64-trace.json.xz")[::every]
    )


def _build(
    steps: Sequence[StepRecord], *, cpus: int, gib: int, warm: bool, **more: Any
) -> SimulationResult:
    actual = scattered(steps, by=0.1, seed=1)
    history = steps if warm else ()
    return simulate(actual, Adaptive(), cpus=cpus, memory=gib * _GIB, history=history, **more)


def _tiny() -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(
            step=Step(key=name, role=Role.C, source=name, output=f"{name}.o", input_bytes=20),
            wall_s=0.02,
            cpu_s=0.02,
            peak_bytes=20_000_000,
        )
        for name in (f"d{number % 50}/{number}.c" for number in range(5000))
    )


def _kernels(times: int = 1) -> tuple[StepRecord, ...]:
    """Return the steps of a small CUDA project like apex, of which nothing is known, or of one that
    needs several times as much memory.
    """
    random = Random(22)
    names = [f"csrc/kernel_{number:02d}.cu" for number in range(22)]
    return tuple(
        StepRecord(
            step=Step(key=name, role=Role.CUDA, source=name, output=f"{name}.o", archs=("sm_90",)),
            wall_s=seconds,
            cpu_s=seconds,
            peak_bytes=times * round(random.uniform(0.4, 1.2) * 1e9),
        )
        for name, seconds in ((name, random.uniform(15, 60)) for name in names)
    )


def _run_of_tables(run: int, cpus: int, gc: Gc) -> SimulationResult:
    return _runs_of_tables(cpus, gc)[run]


def _part_of_pytorch(**more: Any) -> SimulationResult:
    return _build(_pytorch(16), cpus=4, **more)


def _of_trace(name: str, *, warm: bool) -> SimulationResult:
    return _build(_trace(name), cpus=16, gib=32, warm=warm)


def _scenarios() -> dict[str, Scenario]:
    found: dict[str, Scenario] = {}
    for gc, suffix in ((Gc.AUTO, ""), (Gc.OFF, "-gc-off")):
        for cpus, (run, word) in product((2, 4), enumerate(("cold", "second", "third"))):
            name = f"tables-{cpus}cpu-2G-{word}{suffix}"
            found[name] = partial(_run_of_tables, run, cpus, gc)
        for gib, (word, warm) in product((2, 4), _WORDS):
            name = f"pytorch16th-4cpu-{gib}G-{word}{suffix}"
            found[name] = partial(_part_of_pytorch, gib=gib, warm=warm, gc=gc)
    for word, warm in _WORDS:
        cuda, flash = "pytorch-2.6.0-cuda-trace.json.xz", "flash-attn-2.8.3-trace.json"
        found[f"cuda-16cpu-32G-{word}"] = partial(_of_trace, cuda, warm=warm)
        found[f"flash-attn-16cpu-32G-{word}"] = partial(_of_trace, flash, warm=warm)
    found["kernels-16cpu-124G-cold"] = lambda: _build(_kernels(), cpus=16, gib=124, warm=False)
    found["kernels-16cpu-24G-cold"] = lambda: _build(_kernels(), cpus=16, gib=24, warm=False)
    found["heavy-kernels-16cpu-24G-cold"] = lambda: _build(_kernels(6), cpus=16, gib=24, warm=False)
    found["tiny-5000-2cpu"] = lambda: _build(_tiny(), cpus=2, gib=4, warm=False)
    workers = SimulatedWorkers(workers=16, jobs=4, bandwidth=125e6)
    found["pytorch16th-64-workers"] = partial(
        _part_of_pytorch, gib=8, warm=True, distribution=workers
    )
    return found


def _whole() -> dict[str, Scenario]:
    """Return the scenarios of the whole PyTorch, which take seconds each."""
    return {
        f"pytorch-{cpus}cpu-{gib}G-{word}": partial(_whole_pytorch, cpus, gib, warm=warm)
        for cpus, gib, (word, warm) in product((16, 32), (8, 16, 32), _WORDS)
    }


def _whole_pytorch(cpus: int, gib: int, *, warm: bool) -> SimulationResult:
    return _build(_pytorch(), cpus=cpus, gib=gib, warm=warm)


SCENARIOS, WHOLE = _scenarios(), _whole()


def stored() -> dict[str, Stored]:
    rows = json.loads(DATA.read_bytes())["stored"]
    return {name: Stored(**row) for name, row in rows.items()}


def _store(found: Iterable[tuple[str, SimulationResult]], why: str) -> None:
    data = json.loads(DATA.read_bytes())
    for name, result in found:
        data["stored"][name] = {
            "seconds": round(result.wall_s, 2),
            "preemptions": result.preemptions,
            "oom_kills": result.oom_kills,
            "why": why,
        }
    rows = ",\n".join(f"{json.dumps(n)}: {json.dumps(r)}" for n, r in data["stored"].items())
    tables = json.dumps(data["tables"])
    DATA.write_text(f'{{"tables": {tables},\n"stored": {{\n{rows}\n}}}}\n')


def _shown(name: str, result: SimulationResult, old: Stored | None) -> SimulationResult:
    ratio = f"{result.wall_s / old.seconds:6.3f}" if old else "   new"
    share = result.wall_s / result.bounds.lower_s
    modes = ", ".join(f"{count} {mode.value}" for mode, count in result.modes.items())
    sys.stdout.write(
        f"{name:36} {result.wall_s:8.1f} s {ratio} of stored, {share:.3f} of bound, "
        f"{result.preemptions} preempted, {result.oom_kills} OOM kills {modes}\n"
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--whole", action="store_true", help="the whole PyTorch too")
    parser.add_argument("--store", metavar="REASON")
    options = parser.parse_args()
    every = SCENARIOS | WHOLE
    names = options.names or [*SCENARIOS, *(WHOLE if options.whole else ())]
    before = stored()
    found = [(name, _shown(name, every[name](), before.get(name))) for name in names]
    if options.store:
        _store(found, options.store)


if __name__ == "__main__":
    main()
