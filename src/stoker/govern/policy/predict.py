"""Predicts what a step will need from what similar steps needed. Pure: rows are handed in.

The same command, else the same source with other flags, else figures that are shipped for this very
source, else the nearest folder in which steps of its kind were seen, else shipped figures. Rows are
kept relative to the shipped figures, which know about GPU targets, link inputs and notorious
sources: so a light step says something about a heavy one. What is predicted too low or too high
shifts the predictions that follow.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from math import exp
from statistics import median
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from stoker.govern.policy.mode_effects import KEPT, ModeEffects, ModeKnowledge
from stoker.govern.policy.phases import Falls, folders, has_fall
from stoker.govern.policy.profile import SHORTEST, climb, profile_of
from stoker.govern.policy.upper import LEAST_SPREAD
from stoker.govern.protocol import SAMPLING
from stoker.knowledge.compiler_modes import measured_effect, nvcc_rounds, thread_effects
from stoker.knowledge.steps import (
    KnownStep,
    Prior,
    known_step,
    prior_of,
    typical_share,
    usual_seconds,
)
from stoker.model.govern import (
    ABOUT_THE_STEP,
    MOST_ROWS,
    PARTS,
    Basis,
    CompileMode,
    ModeEffect,
    Pace,
    Prediction,
    Role,
    Step,
    StepRecord,
)
from stoker.model.value import Bytes, Count, Ratio, Seconds, Value

# What brackets mean is in adaptive.py.
# Rows that a folder needs to be used, and as which the shipped figure counts beside them. As many
# of the latest profiles of a command count.
_ENOUGH = 4
# Factor beyond which a source is of another kind by its size [tables-4cpu-first 1.12 without].
_FAR = 8
# Share of peaks above ``high``, and by how much of it one step shifts the predictions that follow.
_ABOVE = 0.1
# ``high`` over ``peak`` of a command that was seen once [pytorch-2G-known-scattered 1.05 with 1,
# 1.04 with 1.1].
_WIDTH = 1.05
_SHIPPED_WIDTH = 1.1  # the same of figures that are shipped for its source
# Latest steps from which the machine's speed is estimated [pytorch-2G-first 1.08 with 64].
_PACES = 15
_ASSUMED_PACES = (0.7, 1.0, 1.4)  # at first
# Before any was measured. Of this, _ABOVE, _SHIPPED_WIDTH, and _TAIL and _SLOWEST in
# upper.py, none is proven alone; without all five pytorch-2G-first takes 1.18.
_ASSUMED_SCALES = (1.0,) * 5
# Share of the slowest and of the fastest that does not count [tables-4cpu-third 1.02 with 0].
_OUTLIERS = 0.15
_MOST_OFFSET = 1.5  # of predictions, in powers of e: what a damaged history can do

_COMPILES = (Role.C, Role.CXX, Role.CUDA, Role.FORTRAN, Role.RUST)

_Source = tuple[Role, str]  # or a folder


class _Sample(Value, frozen=True, kw_only=True, array_like=True):
    """A record: its peak relative to the shipped one, and its seconds per round of nvcc."""

    peak: Ratio
    seconds: Seconds
    rounds: Count  # that nvcc needed for its targets; 1 for any other step
    profile: bytes  # a Profile, which takes less memory so
    mode: CompileMode  # that it was measured in; the figures are those of the default mode
    size: Bytes  # of the source; 0 if it is not known


class _Learned(Value, frozen=True, kw_only=True, array_like=True):
    """A sample and the step that it is of."""

    key: str
    role: Role
    source: str
    directory: str
    output: str
    seconds: Seconds
    sample: _Sample


class _Estimate(Value, frozen=True, kw_only=True):
    """What samples say of a step; memory is in units of the shipped peak."""

    step: Step
    basis: Basis
    peak: float
    high: float
    seconds: float | None
    profiles: tuple[bytes, ...]  # the latest ones; their maximum is taken when it is needed
    # The folder of the samples, its rows then, and the steps that had fallen: as long as there is
    # no other, it holds. Shipped figures of a source are of no folder.
    folder: str | None = None
    seen: int = 0
    fallen: int = 0


class Knowledge(Value, frozen=True, kw_only=True):
    """All that a predictor has learned. To store it saves a start from reading each record."""

    rows: list[_Learned]
    offsets: dict[Basis, Annotated[float, Meta(ge=-_MOST_OFFSET, le=_MOST_OFFSET)]]
    scales: dict[Role, Annotated[list[Ratio], Meta(min_length=1)]]
    modes: ModeKnowledge
    bounds: list[_Learned]


class Predictor:
    """Predicts steps from the records it was given, oldest first, and learns from each new one.
    ``durations`` are the latest of each build folder, by output; those of a build tool would
    include waiting.
    """

    def __init__(self, rows: Iterable[StepRecord] = (), known: Knowledge | None = None):
        self.durations: defaultdict[str, dict[str, float]] = defaultdict(dict)
        # Most steps have one sample, for which a deque would take 760 bytes.
        self._by_key: dict[str, tuple[_Sample, ...]] = {}
        self._by_source: dict[_Source, tuple[_Sample, ...]] = {}
        self._by_folder: defaultdict[_Source, deque[_Sample]]
        self._by_folder = defaultdict(lambda: deque(maxlen=KEPT))
        self._seen: Counter[_Source] = Counter()  # rows of each folder
        # Lower bounds, by key, of steps that were killed and have not finished since.
        self._bounds: dict[str, _Learned] = {}
        # By key, of steps that were never measured: they are predicted again while they wait.
        self._estimates: dict[str, _Estimate] = {}
        self._modes = ModeEffects()
        self.falls = Falls()
        # Powers of e by which high peaks are shifted, so that the desired share of peaks is above.
        self._offsets = dict.fromkeys(Basis, 0.0)
        # Measured peaks over those shipped for the source: compilers and flags differ.
        self._over_shipped: defaultdict[Role, deque[float]]
        self._over_shipped = defaultdict(lambda: deque(_ASSUMED_SCALES, maxlen=KEPT))
        self._usual_scales: dict[Role, float] = {}  # medians of those, when they are next needed
        self._paces: deque[float] = deque(maxlen=_PACES)
        self._pace: Pace | None = None  # computed when it is next needed
        self._rows: deque[_Learned] = deque(maxlen=MOST_ROWS)
        if known:
            self._recall(known)
        self.unusable: list[StepRecord] = []  # rows that say nothing
        for row in rows:
            try:
                self.learn(row)
            except (ArithmeticError, ValueError):  # a damaged row must not cost the other ones
                self.unusable.append(row)
        # Only steps of this run show how fast the machine is now.
        self._paces = deque(_ASSUMED_PACES, maxlen=_PACES)
        self._pace = None

    def learn(self, row: StepRecord, *, predicted: bool = True) -> None:
        """Learn from the error of the last prediction, if there was one, then from the record
        itself. A step that was killed says nothing about others.
        """
        if row.killed:
            self._learn_bound(row)
            return
        step, ran_in = row.step, row.mode
        # A step of nvcc has the number of its threads, by which it is scaled.
        mode = CompileMode.DEFAULT if ran_in is CompileMode.THREADS else ran_in
        if mode is not CompileMode.DEFAULT:
            row = self._modes.in_default_mode(row, self._default_peak(step))
        if predicted:
            self._learn_error(row)
        if known := known_step(step.role, step.source):
            scale = row.peak_bytes / (known.peak * step.targets_at_once)
            self._over_shipped[step.role].append(scale)
            self._usual_scales.pop(step.role, None)
        self._keep(_learned(row, mode))
        if self._modes.has_seen(step):
            self._modes.learn(step, ran_in, self._default_peak(step))

    def _learn_error(self, row: StepRecord) -> None:
        expected = self._estimate(row.step)
        _, high = self._peaks(row.step, expected)
        change = 1 - _ABOVE if row.peak_bytes > high else -_ABOVE
        offset = self._offsets[expected.basis] + _ABOVE * change
        self._offsets[expected.basis] = _within((-_MOST_OFFSET, _MOST_OFFSET), offset)
        about = expected.basis in ABOUT_THE_STEP and row.step.role is not Role.REMOTE
        if about and expected.seconds and expected.seconds >= SHORTEST:
            self._paces.append(max(row.wall_s, SHORTEST) / expected.seconds)
            self._pace = None

    def _learn_bound(self, row: StepRecord) -> None:
        """Keep what a step took until it was killed, as far as it is the longest attempt."""
        effect = measured_effect(row.mode, row.peak_bytes)
        seconds, peak = row.wall_s / effect.seconds, round(row.peak_bytes / effect.memory)
        bound = _learned(replace(row, wall_s=seconds, peak_bytes=peak), CompileMode.DEFAULT)
        old = self._bounds.get(bound.key)
        if old is None or old.seconds < bound.seconds:
            self._keep_bound(bound)

    def _keep_bound(self, bound: _Learned) -> None:
        self._bounds[bound.key] = bound
        if bound.directory:
            known = self.durations[bound.directory]
            usual = usual_seconds(bound.role, bound.source, bound.sample.size)
            expected = known.get(bound.output, usual * bound.sample.rounds)
            if bound.seconds > expected:
                known[bound.output] = bound.seconds

    def _keep(self, row: _Learned) -> None:
        self._rows.append(row)
        self._bounds.pop(row.key, None)
        if row.directory:
            self.durations[row.directory][row.output] = row.seconds
        source = row.role, row.source
        self._by_key[row.key] = _latest(self._by_key.get(row.key), row.sample)
        self._by_source[source] = _latest(self._by_source.get(source), row.sample)
        self._estimates.pop(row.key, None)
        for folder in folders(row.source):
            self._by_folder[row.role, folder].append(row.sample)
            self._seen[row.role, folder] += 1

    def knowledge(self) -> Knowledge:
        """Return all that was learned, except for the pace, which is of one run."""
        return Knowledge(
            rows=list(self._rows),
            offsets=dict(self._offsets),
            scales={role: list(scales) for role, scales in self._over_shipped.items()},
            modes=self._modes.knowledge(),
            bounds=list(self._bounds.values()),
        )

    def _recall(self, known: Knowledge) -> None:
        for row in known.rows:
            self._keep(row)
        self._offsets.update(known.offsets)
        for role, scales in known.scales.items():
            self._over_shipped[role] = deque(scales, maxlen=KEPT)
        self._modes.recall(known.modes)
        for bound in known.bounds:
            self._keep_bound(bound)

    def _default_peak(self, step: Step) -> float | None:
        """Return the latest peak of the same command in the default mode, if it ever ran so."""
        samples = reversed(self._by_key.get(step.key, ()))
        found = next((each for each in samples if each.mode is CompileMode.DEFAULT), None)
        return found.peak * prior_of(step).peak if found else None

    def effects(self, step: Step, peak: int | None = None) -> tuple[ModeEffect, ...]:
        """Return what modes change of a step of gcc. ``peak`` is what ``predict`` returns, if that
        was called before.
        """
        if peak is None:
            peak, _ = self._peaks(step, self._estimate(step))
        return self._modes.of(step, peak)

    def default_seconds(self, step: Step) -> float | None:
        """Return the seconds that the same command took in the default mode, if it ever ran so."""
        samples = self._by_key.get(step.key, ())
        seconds = [sample.seconds for sample in samples if sample.mode is CompileMode.DEFAULT]
        return median(seconds) if seconds else None

    def faster(self, step: Step) -> tuple[ModeEffect, ...]:
        """Return what threads change of a step of nvcc that is predicted with one: as measured,
        else by shipped figures.
        """
        return tuple(self._measured(step, effect) for effect in thread_effects(step))

    def _measured(self, step: Step, effect: ModeEffect) -> ModeEffect:
        wide = replace(step, threads=effect.threads)
        seen = {sample.rounds for sample in self._by_key.get(step.key, ())}
        one, many = (self.predict(each) for each in (step, wide))
        if not {step.rounds, wide.rounds} <= seen or not one.seconds or not many.seconds:
            return effect
        memory = _within((1.0, effect.memory), many.peak / max(1, one.peak))
        seconds = _within((1 / effect.threads, 1.0), many.seconds / one.seconds)
        return replace(effect, memory=memory, seconds=seconds)

    @property
    def pace(self) -> Pace:
        """Return how long steps whose duration was known take on this machine now."""
        if self._pace is None:
            ratios, usual = sorted(self._paces), median(self._paces)
            left_out = int(len(ratios) * _OUTLIERS)
            fast, slow = ratios[left_out], ratios[-1 - left_out]
            spread = max(LEAST_SPREAD, slow / usual, usual / fast)
            self._pace = Pace(usual=usual, spread=spread)
        return self._pace

    def predict(self, step: Step) -> Prediction:
        estimate = self._estimate(step)
        peak, high = self._peaks(step, estimate)
        profiles = estimate.profiles
        prediction = Prediction(
            peak=peak,
            high=high,
            profile=tuple(map(max, *profiles)) if len(profiles) > 1 else tuple(b"".join(profiles)),
            seconds=estimate.seconds,
            waves=step.rounds,
            basis=estimate.basis,
            fall=None
            if estimate.basis in (Basis.EXACT, Basis.SOURCE)
            else self.falls.expected(step),
        )
        bound = self._bounds.get(step.key)
        return _at_least(bound.sample, step, prediction) if bound else prediction

    def _peaks(self, step: Step, estimate: _Estimate) -> tuple[int, int]:
        """Return the expected and the high peak with today's scale and offset, which change with
        every step that ends.
        """
        basis, peak, high = estimate.basis, estimate.peak, estimate.high
        if basis is Basis.KNOWN:  # durations differ in any case, which the pace shows
            peak *= self._usual_scale(step.role)
            high = peak * _SHIPPED_WIDTH
        prior, factor = prior_of(step).peak, exp(self._offsets[basis])
        peak, high = prior * peak, prior * high * factor
        return round(peak), round(max(peak, high))

    def _usual_scale(self, role: Role) -> float:
        if role not in self._usual_scales:
            self._usual_scales[role] = median(self._over_shipped[role])
        return self._usual_scales[role]

    def _estimate(self, step: Step) -> _Estimate:
        found: Sequence[_Sample] | None
        if found := self._by_key.get(step.key):
            return _estimated(step, Basis.EXACT, self._alike(found, step))
        if found := self._by_source.get((step.role, step.source)):
            return _estimated(step, Basis.SOURCE, found)
        latest = self._estimates.get(step.key)
        if latest is None or latest.step is not step or not self._holds(latest):
            latest = self._estimates[step.key] = self._new_estimate(step)
        return latest

    def _holds(self, estimate: _Estimate) -> bool:
        """Return whether no row was learned that an estimate should know. A row of an inner folder
        is also one of the outer folder.
        """
        folder = estimate.folder
        if folder is None:
            return True
        fallen = estimate.fallen == self.falls.count or not has_fall(estimate.step)
        return fallen and estimate.seen == self._seen[estimate.step.role, folder]

    def _alike(self, found: Sequence[_Sample], step: Step) -> Sequence[_Sample]:
        """Return those samples of a command that count."""
        if not self._modes.has_seen(step) and step.role is not Role.CUDA:
            return found
        # What was measured counts more than what was converted.
        alike = [
            sample
            for sample in found
            if sample.mode is CompileMode.DEFAULT and sample.rounds == step.rounds
        ]
        return alike or found

    def _new_estimate(self, step: Step) -> _Estimate:
        """Estimate a step whose source was never measured."""
        if known := known_step(step.role, step.source):
            return _estimated(step, Basis.KNOWN, (_shipped(step, known),))
        fallen, folder, seconds = self.falls.peaks(step), "", None
        estimate = _estimated(step, Basis.PRIOR, ())
        for folder in folders(step.source):
            found = self._by_folder.get((step.role, folder))
            if found and (near := _of_like_size(found, step)):
                estimate = _estimated(step, Basis.FOLDER, near)
                fallen, seconds = fallen if len(fallen) > len(near) else [], estimate.seconds
                break
        if fallen:
            estimate = replace(_of_peaks(step, fallen), seconds=seconds)
        rows = self._seen[step.role, folder]
        return replace(estimate, folder=folder, seen=rows, fallen=self.falls.count)


def _of_peaks(step: Step, peaks: Sequence[int]) -> _Estimate:
    """Estimate a step by the peaks of others in its folder that may still run."""
    prior = prior_of(step)
    peak, high = _peak_and_high(Basis.FOLDER, [each / prior.peak for each in peaks], prior)
    return _Estimate(step=step, basis=Basis.FOLDER, peak=peak, high=high, seconds=None, profiles=())


def _estimated(step: Step, basis: Basis, samples: Sequence[_Sample]) -> _Estimate:
    peak, high = _peak_and_high(basis, [sample.peak for sample in samples], prior_of(step))
    seconds = [sample.seconds for sample in samples]
    return _Estimate(
        step=step,
        basis=basis,
        peak=peak,
        high=high,
        seconds=median(seconds) * nvcc_rounds(step) if seconds else None,
        profiles=_profiles(samples, step.rounds),
    )


def usual_duration(step: Step) -> float:
    """Return the seconds that steps of this kind and size usually take."""
    return usual_seconds(step.role, step.source, step.input_bytes) * step.rounds


def _at_least(bound: _Sample, step: Step, prediction: Prediction) -> Prediction:
    """Return the prediction of a step that needed more than ``bound`` until it was killed."""
    least = round(bound.peak * prior_of(step).peak)
    peak = max(prediction.peak, least)
    prediction = replace(prediction, peak=peak, high=max(prediction.high, peak))
    expected, seconds = prediction.seconds, bound.seconds * nvcc_rounds(step)
    if expected is None:
        expected = usual_duration(step)
    longer = seconds > expected
    return replace(prediction, seconds=seconds, at_least=True) if longer else prediction


def _learned(row: StepRecord, mode: CompileMode) -> _Learned:
    """Return a row as it is kept; its figures are those of the default mode, and it was measured in
    ``mode``.
    """
    step = row.step
    return _Learned(
        key=step.key,
        role=step.role,
        source=step.source,
        directory=step.directory,
        output=step.output,
        seconds=row.wall_s,
        sample=_Sample(
            peak=row.peak_bytes / prior_of(step).peak,
            seconds=row.wall_s / nvcc_rounds(step),
            rounds=step.rounds,
            profile=bytes(profile_of(row)),
            mode=mode,
            size=step.input_bytes,
        ),
    )


def _of_like_size(samples: Sequence[_Sample], step: Step) -> Sequence[_Sample]:
    """Return the samples of a folder that say something about a step, if they are enough. A folder
    may have large tables beside small sources, so the size of the source counts where it is known;
    shipped figures know the inputs of a link.
    """
    size = step.input_bytes if step.role in _COMPILES else 0
    if not size:
        return samples if len(samples) >= _ENOUGH else ()
    alike = [each for each in samples if not each.size or 1 / _FAR <= each.size / size <= _FAR]
    # A shorter step ended before its memory was measured twice. Most of them are sources of which
    # the preprocessor leaves nothing, and say nothing about other sources.
    lasting = [each for each in alike if each.seconds >= SAMPLING]
    return lasting or (alike if len(alike) >= _ENOUGH else ())


def _shipped(step: Step, known: KnownStep) -> _Sample:
    return _Sample(
        peak=known.peak * step.targets_at_once / prior_of(step).peak,
        seconds=known.seconds,
        rounds=1,
        profile=bytes(climb(typical_share())),
        mode=CompileMode.DEFAULT,
        size=0,
    )


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(bounds[1], max(bounds[0], value))


def _latest(samples: tuple[_Sample, ...] | None, sample: _Sample) -> tuple[_Sample, ...]:
    """Return the samples with a new one, without those that are too old."""
    return (*(samples or ())[1 - KEPT :], sample)


def _profiles(samples: Sequence[_Sample], rounds: int) -> tuple[bytes, ...]:
    """Return the latest profiles of steps with as many rounds."""
    alike = (each.profile for each in reversed(samples) if each.rounds == rounds)
    return tuple(islice((profile for profile in alike if len(profile) == PARTS), _ENOUGH))


def _peak_and_high(basis: Basis, peaks: list[float], prior: Prior) -> tuple[float, float]:
    """Return the expected and the high peak, in units of the shipped peak."""
    shipped = prior.high / prior.peak
    if basis is Basis.PRIOR:
        return 1.0, shipped
    peaks.sort()
    peak = median(peaks)
    if basis is not Basis.FOLDER:
        return peak, max(peaks[-1], peak * _WIDTH)
    # A folder's first steps may all be light: the shipped figure fades as rows come in.
    high = peaks[min(len(peaks) - 1, int(len(peaks) * (1 - _ABOVE)))]
    weight = _ENOUGH / (len(peaks) + _ENOUGH)
    return peak, high * (1 - weight) + shipped * weight
