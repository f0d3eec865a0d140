"""Simulates every compile of PyTorch on small machines: adaptive, an oracle, and fixed -j.

    python benchmarks/simulate_pytorch.py [TRACE] [--cpus 16] [--memory 8G,16G] [--json FILE]

Without TRACE: the whole PyTorch 2.6.0 that stoker built, every compile and link with its profile.

Actual peaks are drawn within 10 % of the recorded ones, which are what the history knows; kills are
charged. Where a trace has only peaks, memory over time is assumed: ``climbing`` as gcc's was
measured, ``flat`` as the worst case. The oracle knows every actual peak and duration, reserves it,
and takes the longest step that fits. All of it is simulated; nothing is compiled.
"""

import argparse
import json
import lzma
import platform
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import Shape, climbing, flat, scattered
from stoker.govern.history.trace import read_trace
from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.policies import FixedJobs, Levels, Policy, TwoPhase
from stoker.model.govern import Decision, State, StepRecord
from stoker.model.simulation import SimulationResult
from stoker.model.value import Value, byte_count, size

REFERENCE = Path(__file__).parent / "results/pytorch-2.6.0-x86_64-trace.json.xz"
SCATTER = 0.10
SEEDS = (1, 2, 3)
SHAPES: dict[str, Shape] = {"climbing": climbing, "flat": flat}
GIB = 1024**3


class FirstFit(Value, frozen=True, kw_only=True):
    """Reserves the predicted memory; an oracle if the predictions are exact."""

    @property
    def name(self) -> str:
        return "oracle first-fit"

    def decide(self, state: State) -> Decision:
        room = state.limit - sum(step.request.prediction.peak for step in state.running)
        free = state.cpus - len(state.running)
        admitted = []
        for request in state.waiting:
            if free and request.prediction.peak <= room:
                admitted.append(request.id)
                room, free = room - request.prediction.peak, free - 1
        return Decision(admit=tuple(admitted))


class Row(Value, frozen=True, kw_only=True):
    """Medians over all random draws."""

    policy: str
    history: str
    shape: str
    memory_bytes: int
    wall_s: float
    of_lower_bound: float
    lower_bound_s: float
    preemptions: float
    oom_kills: float
    failed: int  # the maximum over all draws
    peak_share: float
    remark: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path, nargs="?", default=REFERENCE)
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--memory", default="8G,16G")
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results/simulate_pytorch.json"
    )
    arguments = parser.parse_args()
    content = arguments.trace.read_bytes()
    if arguments.trace.suffix == ".xz":
        content = lzma.decompress(content)
    trace = read_trace(content, str(arguments.trace))
    rows = []
    for memory in filter(None, map(byte_count, arguments.memory.split(","))):
        for row in measure(trace.steps, arguments.cpus, memory):
            rows.append(row)
            print(line(row), flush=True)
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps(result(trace.what, arguments.cpus, rows), indent=2) + "\n")


def measure(steps: tuple[StepRecord, ...], cpus: int, memory: int) -> Iterator[Row]:
    jobs = max(1, memory // (4 * GIB))
    for name, shape in SHAPES.items():
        yield summary("warm", name, [run(Adaptive(), steps, cpus, memory, shape, s) for s in SEEDS])
    yield summary(
        "cold",
        "climbing",
        [run(Adaptive(), steps, cpus, memory, climbing, s, known=()) for s in SEEDS],
    )
    yield summary("truth", "flat", [oracle(steps, cpus, memory, seed) for seed in SEEDS])
    usual: list[tuple[str, Policy]] = [
        ("one job for each 4 GB", FixedJobs(jobs=jobs)),
        ("the fastest -j that loses no step", best_fixed(steps, cpus, memory)),
        ("", Levels()),
        ("", TwoPhase()),
    ]
    for remark, policy in usual:
        runs = [run(policy, steps, cpus, memory, climbing, seed) for seed in SEEDS]
        yield replace(summary("warm", "climbing", runs), remark=remark)


def run(
    policy: Policy,
    steps: tuple[StepRecord, ...],
    cpus: int,
    memory: int,
    shape: Shape,
    seed: int,
    *,
    known: tuple[StepRecord, ...] | None = None,
) -> SimulationResult:
    actual = scattered(steps, by=SCATTER, seed=seed)
    history = steps if known is None else known
    return simulate(actual, policy, cpus=cpus, memory=memory, history=history, shape=shape)


def oracle(steps: tuple[StepRecord, ...], cpus: int, memory: int, seed: int) -> SimulationResult:
    actual = scattered(steps, by=SCATTER, seed=seed)
    return run(FirstFit(), steps, cpus, memory, flat, seed, known=actual)


def best_fixed(steps: tuple[StepRecord, ...], cpus: int, memory: int) -> Policy:
    """Return the fastest -j without a lost step; all are tried."""
    for jobs in range(cpus, 0, -1):
        runs = [run(FixedJobs(jobs=jobs), steps, cpus, memory, climbing, seed) for seed in SEEDS]
        if not any(each.oom_kills for each in runs):
            break
    return FixedJobs(jobs=jobs)


def summary(history: str, shape: str, runs: list[SimulationResult]) -> Row:
    first = runs[0]
    return Row(
        policy=first.policy,
        history=history,
        shape=shape,
        memory_bytes=first.memory_bytes,
        wall_s=round(median(each.wall_s for each in runs), 1),
        of_lower_bound=round(median(e.wall_s / e.bounds.lower for e in runs), 3),
        lower_bound_s=round(median(each.bounds.lower for each in runs), 1),
        preemptions=median(each.preemptions for each in runs),
        oom_kills=median(each.oom_kills for each in runs),
        failed=max(len(each.failed) for each in runs),
        peak_share=round(max(each.peak_bytes / each.memory_bytes for each in runs), 3),
    )


def line(row: Row) -> str:
    return (
        f"{size(row.memory_bytes):>9}  {row.policy:16}  {row.history:5}  {row.shape:8}"
        f"  {row.wall_s:7.0f} s  {row.of_lower_bound:5.2f} of bound"
        f"  (lower {row.lower_bound_s:.0f} s)"
        f"  {row.preemptions:3.0f} preempted  {row.oom_kills:3.0f} OOM kills  {row.failed} failed"
        f"  {row.remark}"
    ).rstrip()


def result(what: str, cpus: int, rows: list[Row]) -> dict[str, object]:
    return {
        "benchmark": "simulate_pytorch: simulated, nothing was compiled",
        "trace": what,
        "cpus": cpus,
        "scatter": SCATTER,
        "draws": len(SEEDS),
        "python": platform.python_version(),
        "rows": [{field: getattr(row, field) for field in row.__struct_fields__} for row in rows],
    }


if __name__ == "__main__":
    main()
