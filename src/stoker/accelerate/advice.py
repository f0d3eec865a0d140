"""The decisions of `stoker tune`: which steps are measured, how, and what follows. Pure."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from posixpath import basename
from statistics import median

from stoker.knowledge.compiler_modes import mode_options
from stoker.knowledge.trials import TrialRow, has_debug_information, matching, trials
from stoker.model.govern import Collector
from stoker.model.tuning import (
    BASELINE,
    Advice,
    Measurement,
    RelativeChange,
    Sampled,
    Topic,
    TrialKind,
    TrialResult,
    TuningTrial,
)

_MOST_OTHERS = 2  # links, and kernels
_WORTHWHILE = 0.05  # a smaller gain is not worth a setting
_OF_COMPILES = (Topic.MEMORY, Topic.DEBUG, Topic.COMPILER, Topic.CACHE)
_UNKNOWN_SECONDS = 5.0  # of a step that was never measured


def choose_sample(
    candidates: Iterable[Sampled], *, count: int, seed: int, seconds: float
) -> tuple[Sampled, ...]:
    """Return the steps to measure: compiles, half of them the heaviest and half of them at random,
    then the heaviest kernels and links. ``seconds`` is the most that one round should take: half of
    it is for compiles. If every compile takes longer, the shortest one is measured.
    """
    known = sorted(candidates, key=lambda step: (-_seconds(step), step.output))
    compiles, kernels, links = ([s for s in known if s.kind is kind] for kind in TrialKind)
    heavy = list(_within(compiles, seconds / 4, -(-count // 2)))
    rest = [step for step in compiles if step not in heavy]
    random.Random(seed).shuffle(rest)
    left = seconds / 2 - sum(map(_cost, heavy))
    chosen = [*heavy, *_within(rest, left, count - len(heavy))] or compiles[-1:]
    others = min(_MOST_OTHERS, count)
    linked = list(_within(links, seconds / 2, others))
    left = seconds / 2 - sum(map(_cost, linked))
    return (*chosen, *_within(kernels, left, others), *linked)


def _seconds(step: Sampled) -> float:
    return _UNKNOWN_SECONDS if step.wall_s is None else step.wall_s


def _cost(step: Sampled) -> float:
    """Return the seconds of one round, if the step runs in all ways of its kind."""
    topics = {TrialKind.LINK: (Topic.LINKER,), TrialKind.KERNEL: (Topic.THREADS,)}.get(step.kind)
    ways = sum(row.topic in (topics or _OF_COMPILES) for row in trials())
    return _seconds(step) * (1 + ways)


def _within(steps: Iterable[Sampled], seconds: float, count: int) -> Iterator[Sampled]:
    """Yield the first steps that take no longer in all."""
    left, taken = seconds, 0
    for step in steps:
        if taken < count and _cost(step) <= left:
            taken, left = taken + 1, left - _cost(step)
            yield step


def trials_of(
    step: Sampled, collector: Collector, installed: frozenset[str]
) -> tuple[TuningTrial, ...]:
    """Return the ways in which a step is measured. ``installed`` are programs and linkers."""
    rows = (_trial(row, step, collector, installed) for row in trials())
    return (BASELINE, *(trial for trial in rows if trial))


def _trial(
    row: TrialRow, step: Sampled, collector: Collector, installed: frozenset[str]
) -> TuningTrial | None:
    program = row.programs.get(basename(step.command[0]), "")
    compiles = step.kind is TrialKind.COMPILE
    fits = {
        Topic.MEMORY: compiles and collector is not Collector.NONE,
        Topic.DEBUG: compiles and has_debug_information(step.command),
        Topic.COMPILER: compiles and program in installed,
        Topic.CACHE: compiles and row.wrapper in installed,
        Topic.THREADS: step.kind is TrialKind.KERNEL,
        Topic.LINKER: step.is_link and row.mode.value in installed,
    }
    if not fits[row.topic]:
        return None
    return TuningTrial(
        name=program or row.name,
        topic=row.topic,
        mode=row.mode,
        adds=row.adds,
        removes=row.removes,
        program=program,
        wrapper=row.wrapper,
    )


def trial_command(trial: TuningTrial, command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of a trial."""
    program, *words = command
    words = [word for word in words if not matching([word], trial.removes)]
    wrapper = [trial.wrapper] if trial.wrapper else []
    return (
        *wrapper,
        trial.program or program,
        *mode_options(trial.mode),
        *words,
        *trial.adds,
    )


def order_of(trials: Sequence[TuningTrial], number: int) -> tuple[TuningTrial, ...]:
    """Return the trials in the order of a round. Topics take turns to be first, so that a machine
    that becomes slower or faster favours none; within a topic the order is fixed.
    """
    topics = list(dict.fromkeys(trial.topic for trial in trials))
    start = number % len(topics)
    return tuple(t for topic in topics[start:] + topics[:start] for t in trials if t.topic is topic)


def results_of(
    steps: Sequence[Sampled],
    trials: Sequence[TuningTrial],
    measurements: Sequence[Measurement],
    differences: Mapping[tuple[int, str], tuple[str, ...]],
) -> tuple[TrialResult, ...]:
    """Return what each trial changed: of all compiles together, and of each kernel and link.

    ``differences`` are those of links, by step and trial.
    """
    compiles = [n for n, step in enumerate(steps) if step.kind is TrialKind.COMPILE]
    return tuple(
        _result(trial, group, steps, measurements, differences)
        for trial in trials
        for group in (compiles, *([n] for n in range(len(steps)) if n not in compiles))
        if trial.topic is not None
        if any(e.trial == trial.name and e.step in group for e in measurements)
    )


def _result(
    trial: TuningTrial,
    group: Sequence[int],
    steps: Sequence[Sampled],
    measurements: Sequence[Measurement],
    differences: Mapping[tuple[int, str], tuple[str, ...]],
) -> TrialResult:
    assert trial.topic is not None
    ours = [each for each in measurements if each.trial == trial.name and each.step in group]
    failed = {each.step: each.problem for each in ours if each.problem}
    measured = {each.step for each in ours} - failed.keys()
    theirs = [e for e in measurements if e.trial == BASELINE.name and e.step in measured]
    ours = [each for each in ours if each.step in measured]
    links, by_cpu = trial.topic is Topic.LINKER, steps[group[0]].kind is TrialKind.COMPILE
    return TrialResult(
        topic=trial.topic,
        trial=trial.name,
        steps=tuple(steps[number].title for number in sorted(measured)),
        time=change([_time(e, by_cpu) for e in ours], [_time(e, by_cpu) for e in theirs]),
        peak=change(
            [(e.round, e.peak_bytes) for e in ours], [(e.round, e.peak_bytes) for e in theirs]
        ),
        size=change(
            [(e.round, e.size_bytes) for e in ours], [(e.round, e.size_bytes) for e in theirs]
        ),
        same=_same(measured, ours, theirs, differences if links else None, trial.name),
        differences=tuple(
            f"{steps[number].title}: {text}"
            for number in sorted(measured)
            for text in differences.get((number, trial.name), ())
        ),
        problems=tuple(f"{steps[number].title}: {text}" for number, text in sorted(failed.items())),
    )


def _time(measured: Measurement, by_cpu: bool) -> tuple[int, float]:
    """Some linkers and nvcc use several CPUs, so they are measured by what the user waits for."""
    return measured.round, measured.cpu_s if by_cpu else measured.wall_s


def _same(
    measured: set[int],
    ours: Sequence[Measurement],
    theirs: Sequence[Measurement],
    differences: Mapping[tuple[int, str], tuple[str, ...]] | None,
    trial: str,
) -> int | None:
    """Return the number of steps whose output is the same in all rounds of both."""
    if not measured:
        return None
    if differences is not None:
        return sum(differences.get((number, trial)) == () for number in measured)
    digests = {n: {e.digest for e in (*ours, *theirs) if e.step == n} for n in measured}
    return sum(len(found) == 1 for found in digests.values())


def change(
    ours: Sequence[tuple[int, float]], theirs: Sequence[tuple[int, float]]
) -> RelativeChange | None:
    """Compare amounts by round; rounds that lack one side do not count."""
    mine, base = _totals(ours), _totals(theirs)
    rounds = [number for number in mine if base.get(number)]
    if not rounds or not any(mine[number] for number in rounds):
        return None
    ratios = [mine[number] / base[number] for number in rounds]
    whole = [base[number] for number in rounds]
    return RelativeChange(
        ratio=median(ratios),
        least=min(ratios),
        most=max(ratios),
        noise=(max(whole) - min(whole)) / median(whole),
        rounds=len(rounds),
    )


def _totals(amounts: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Return the sums of the rounds that measured as many steps as the fullest one."""
    rounds = [number for number, _ in amounts]
    fullest = max(map(rounds.count, rounds), default=0)
    return {
        number: sum(amount for each, amount in amounts if each == number)
        for number in dict.fromkeys(rounds)
        if rounds.count(number) == fullest
    }


def advise(results: Sequence[TrialResult]) -> tuple[Advice, ...]:
    """Return the settings that the results support."""
    return (
        *_memory_advice(results),
        *_linker_advice(results),
        *_thread_advice(results),
        *_cache_advice(results),
    )


def _memory_advice(results: Sequence[TrialResult]) -> Iterator[Advice]:
    found = [r for r in results if r.topic is Topic.MEMORY and r.peak and r.peak.is_gain]
    best = min(found, key=lambda result: result.peak.ratio if result.peak else inf, default=None)
    if best is None or best.peak is None or 1 - best.peak.ratio < _WORTHWHILE:
        return
    saved = f"{best.trial} needs {_percent(1 - best.peak.ratio)} less memory"
    if best.is_same:
        why = f"{saved}, and the objects are identical; it is the default, for when memory is short"
        yield Advice(setting='gc = "auto"', why=why)
    else:
        why = f"{saved}, but the objects record it; it is used if memory is short"
        yield Advice(setting='gc = "always"', why=why)


def _linker_advice(results: Sequence[TrialResult]) -> Iterator[Advice]:
    links = dict.fromkeys(r.steps for r in results if r.topic is Topic.LINKER)
    best = (best_linker(r for r in results if r.steps == link) for link in links)
    faster = "; ".join(
        f"{r.steps[0]} with {r.trial} takes {_percent(r.time.ratio)} of the time"
        for r in best
        if r and r.time
    )
    if faster:
        yield Advice(setting='linker = "auto"', why=f"{faster}; the files are equivalent")


def best_linker(results: Iterable[TrialResult]) -> TrialResult | None:
    """Return the fastest linker of a link whose file is equivalent; ``None``: the default one."""
    found = [
        result
        for result in results
        if result.topic is Topic.LINKER and result.is_same and _gains(result)
    ]
    return min(found, key=lambda result: result.time.ratio if result.time else inf, default=None)


def _thread_advice(results: Sequence[TrialResult]) -> Iterator[Advice]:
    found = [r for r in results if r.topic is Topic.THREADS and r.is_same]
    faster = [f"{r.steps[0]} takes {_percent(r.time.ratio)}" for r in found if _gains(r) and r.time]
    if faster:
        why = f"with idle CPUs {', '.join(faster)} of the time; it is the default"
        yield Advice(setting='nvcc_threads = "auto"', why=why)


def _gains(result: TrialResult) -> bool:
    return result.time is not None and result.time.is_gain


def _cache_advice(results: Sequence[TrialResult]) -> Iterator[Advice]:
    empty, hit = (
        next((r for r in results if r.topic is Topic.CACHE and r.trial.endswith(end)), None)
        for end in ("empty", "hit")
    )
    if not (empty and hit and empty.time and hit.time):
        return
    cost = f"{_percent(empty.time.ratio - 1)} more" if empty.time.ratio > 1 else "no more"
    figures = f"a hit takes {_percent(hit.time.ratio)} of the time, a miss {cost}"
    if hit.time.is_gain:
        yield Advice(setting='cache = "ccache"', why=f"{figures}; the default uses it if installed")
    elif hit.time.is_certain:
        yield Advice(setting='cache = "none"', why=figures)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.01 else f"{100 * share:.1f} %"
