"""Runs of any size for tests and benchmarks of pages: histories as builds leave them."""

from heapq import heappop, heappush
from pathlib import Path
from random import Random

from msgspec.structs import replace

from governed_steps import run_summary
from stoker.govern.history.store import History
from stoker.govern.policy.profile import climb
from stoker.model.govern import PARTS, Basis, Reason, Role, Step, StepRecord
from stoker.model.runs import Attempt, Explanation, Intervention, Outcome, RunSummary

GIB = 1024**3
CPUS = 16
LIMIT = 32 * GIB
_TARGETS = ("torch_cpu", "torch_cuda", "c10", "protobuf", "torch_python", "dnnl")
_FLAGS = tuple(f"-DUSE_OPTION_{n}=1" for n in range(40))
_PAUSED = 50  # every so many steps, one is paused
_KILLED = 0.01  # share of the steps that are killed once


def generated_attempts(count: int, *, seed: int = 1, slower: float = 1.0) -> list[Attempt]:
    """Return attempts that keep all CPUs busy, in the order in which they start."""
    random = Random(seed)
    free = [(0.0, cpu) for cpu in range(CPUS)]
    attempts: list[Attempt] = []
    for number in range(count):
        started, cpu = heappop(free)
        done = _attempt(number, started, random, slower)
        if random.random() < _KILLED:
            lost = _killed(done)
            attempts.append(lost)
            done = _again(done, lost)
        attempts.append(done)
        heappush(free, (done.started + done.record.wall_s + random.uniform(0, 0.2), cpu))
    return sorted(attempts, key=lambda attempt: attempt.started)


def _attempt(number: int, started: float, random: Random, slower: float) -> Attempt:
    target = _TARGETS[number % len(_TARGETS)]
    cuda = target == "torch_cuda"
    suffix = "cu" if cuda else "cpp"
    source = f"aten/src/ATen/native/{target}/kernels/Operation{number}Kernel.{suffix}"
    seconds = round(min(120.0, random.lognormvariate(1.6, 0.9) * slower), 6)
    peak = round(random.lognormvariate(20.2, 0.6))
    step = Step(
        key=f"{number:024x}",
        role=Role.CUDA if cuda else Role.CXX,
        source=source,
        output=f"caffe2/CMakeFiles/{target}.dir/__/{source}.o",
        directory="/build/pytorch/build",
        compiler="nvcc" if cuda else "c++",
        flags=(*_FLAGS, f"-DTARGET={target}"),
        archs=("sm_90",) if cuda else (),
    )
    share = random.uniform(0.55, 0.9)
    shape = climb(share)
    record = StepRecord(
        step=step,
        wall_s=seconds,
        cpu_s=round(seconds * random.uniform(0.9, 1.0), 6),
        peak_bytes=peak,
        byte_seconds=float(round(peak * share * seconds)),
        profile=(*(max(0, part - random.randrange(6)) for part in shape[:-1]), 100),
    )
    assert len(record.profile) == PARTS
    waited = min(started, number % 11)
    explanation = Explanation(
        asked=started - waited,
        needs_bytes=round(peak * random.uniform(0.7, 1.2)),
        basis=random.choice((Basis.EXACT, Basis.FOLDER)),
        waits={Reason.CPUS: waited * 0.6, Reason.MEMORY: waited * 0.4},
        pauses=_pauses(started, seconds) if number % _PAUSED == 5 else (),
        once="it reads a pipe or a device" if number % _PAUSED == 7 else "",
    )
    return Attempt(record=record, started=started, outcome=Outcome.DONE, explanation=explanation)


def _pauses(started: float, seconds: float) -> tuple[Intervention, ...]:
    at = started + seconds / 2
    why = Intervention(
        at=at, reason=Reason.GROWTH, used_bytes=LIMIT - GIB, limit_bytes=LIMIT, wall_s=0.5
    )
    return (why,)


def _killed(done: Attempt) -> Attempt:
    record = done.record
    half = replace(record, wall_s=record.wall_s / 2, cpu_s=record.cpu_s / 2)
    why = Intervention(
        at=done.started + half.wall_s,
        reason=Reason.GROWTH,
        used_bytes=LIMIT - GIB,
        limit_bytes=LIMIT,
    )
    assert done.explanation
    return replace(
        done,
        outcome=Outcome.PREEMPTED,
        record=half,
        explanation=replace(done.explanation, killed=why),
    )


def _again(done: Attempt, lost: Attempt) -> Attempt:
    """Return the attempt after the lost one, which asks at once and starts half a second later."""
    asked = lost.started + lost.record.wall_s
    assert done.explanation
    waits = {Reason.MEMORY: 0.5}
    explanation = replace(done.explanation, asked=asked, waits=waits)
    return replace(done, started=asked + 0.5, explanation=explanation)


def summary_of(attempts: list[Attempt]) -> RunSummary:
    lost = sum(attempt.outcome is Outcome.PREEMPTED for attempt in attempts)
    return run_summary(
        steps=len(attempts) - lost,
        wall_s=max((a.started + a.record.wall_s for a in attempts), default=0.0) + 1.0,
        cpu_s=sum(attempt.record.cpu_s for attempt in attempts),
        peak_bytes=round(0.9 * LIMIT),
        limit_bytes=LIMIT,
        preemptions=lost,
        retries=lost,
        lower_bound_s=1.0,
        cpus=CPUS,
    )


def write_run(home: Path, name: str, attempts: list[Attempt], *, complete: bool = True) -> int:
    """Write a run into the history of a STOKER_HOME and return its number."""
    with History(home / "state" / "history.sqlite") as history:
        run = history.start_run(f"stoker build {name}", "/build/pytorch")
        for attempt in attempts:
            history.add(run, attempt)
        if complete:
            history.end_run(run, summary_of(attempts))
    return run
