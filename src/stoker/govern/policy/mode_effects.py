"""What modes of gcc change of a step, as measured of its source, else as of others in its folder.

A mode is of gcc's garbage collector, threads of nvcc, or a linker; the words that it adds to a
command are in `knowledge`.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from msgspec.structs import replace

from stoker.knowledge.compiler_modes import measured_effect, shipped_effects
from stoker.knowledge.steps import known_step
from stoker.model.govern import CompileMode, ModeEffect, Role, Step, StepRecord
from stoker.model.value import Bytes, Ratio, Value

_MOST_EFFECT = 1000.0  # what a damaged history can do
KEPT = 64  # latest figures of each kind that count

_Kind = tuple[Role, str, CompileMode]  # steps of a build folder in one mode


class ModeKnowledge(Value, frozen=True, kw_only=True):
    """All that was learned about modes, as it is stored."""

    peaks: dict[str, dict[CompileMode, Bytes]]
    effects: list[tuple[Role, str, dict[CompileMode, ModeEffect]]]
    responses: list[tuple[Role, str, CompileMode, list[Ratio]]]


class ModeEffects:
    """What modes of gcc change of a step: as measured of its source, else as of others in its
    folder. In its methods, ``default`` is the latest peak of the same command in the default mode;
    ``None`` if it never ran so.

    Shipped figures are facts about the projects that they were measured on and assumptions about
    others: a source of large tables has no garbage. Only memory is learned: durations differ more
    from build to build than modes change them.
    """

    def __init__(self) -> None:
        # Peaks as measured in other modes, by key.
        self._peaks: defaultdict[str, dict[CompileMode, int]] = defaultdict(dict)
        # What modes were seen to change, by source: it hardly depends on flags.
        self._effects: defaultdict[tuple[Role, str], dict[CompileMode, ModeEffect]]
        self._effects = defaultdict(dict)
        # The same over what is shipped, by build folder: 0 where a mode changes nothing.
        self._responses: defaultdict[_Kind, list[float]] = defaultdict(list)

    def knowledge(self) -> ModeKnowledge:
        return ModeKnowledge(
            peaks=dict(self._peaks),
            effects=[(*source, effects) for source, effects in self._effects.items()],
            responses=[(*kind, found) for kind, found in self._responses.items()],
        )

    def recall(self, known: ModeKnowledge) -> None:
        self._peaks.update(known.peaks)
        for role, source, effects in known.effects:
            self._effects[role, source] = effects
        for role, directory, mode, responses in known.responses:
            self._responses[role, directory, mode] = responses

    def has_seen(self, step: Step) -> bool:
        """Return whether the step was measured in another mode than the default one."""
        return step.key in self._peaks

    def in_default_mode(self, row: StepRecord, default: float | None) -> StepRecord:
        """Return what the step would have taken by default, by its own factors or shipped ones."""
        self._peaks[row.step.key][row.mode] = row.peak_bytes
        own = (each for each in self._measured(row.step, default) if each.mode is row.mode)
        effect = next(own, measured_effect(row.mode, row.peak_bytes))
        integral = row.byte_seconds
        return replace(
            row,
            peak_bytes=round(row.peak_bytes / effect.memory),
            wall_s=row.wall_s / effect.seconds,
            byte_seconds=integral and integral / effect.memory / effect.seconds,
            mode=CompileMode.DEFAULT,
        )

    def learn(self, step: Step, mode: CompileMode, default: float | None) -> None:
        """Learn from a step that was measured in ``mode`` last."""
        for effect in self._measured(step, default):
            self._effects[step.role, step.source][effect.mode] = effect
            if effect.mode is mode and mode.is_collector:
                self._learn_response(step, effect, default or 0.0)

    def _learn_response(self, step: Step, effect: ModeEffect, default: float) -> None:
        """Note how much of the shipped change of memory a mode has brought."""
        shipped = next(each for each in shipped_effects(default) if each.mode is effect.mode)
        if shipped.memory != 1.0:
            response = max(0.0, (effect.memory - 1) / (shipped.memory - 1))
            kind = step.role, step.directory, effect.mode
            self._responses[kind] = [*self._responses[kind][1 - KEPT :], response]

    def _measured(self, step: Step, default: float | None) -> Iterator[ModeEffect]:
        """Yield what modes change of a step that was measured in them and in the default mode."""
        if default is not None:
            for mode, peak in self._peaks.get(step.key, {}).items():
                # No mode changes memory that much; a step that used next to none shows nothing.
                memory = min(_MOST_EFFECT, max(1 / _MOST_EFFECT, max(1, peak) / max(1, default)))
                yield replace(measured_effect(mode, peak), mode=mode, memory=memory)

    def of(self, step: Step, peak: int) -> tuple[ModeEffect, ...]:
        """Return what modes change of a step with this peak by default."""
        measured = self._effects.get((step.role, step.source), {})
        known = known_step(step.role, step.source) is not None
        return tuple(
            measured.get(each.mode) or self._expected(step, each, known=known)
            for each in shipped_effects(peak)
        )

    def _expected(self, step: Step, shipped: ModeEffect, *, known: bool) -> ModeEffect:
        responses = self._responses.get((step.role, step.directory, shipped.mode))
        if not responses and shipped.mode is CompileMode.LOW:
            # What is not garbage in the lean mode is none in the low mode either.
            responses = self._responses.get((step.role, step.directory, CompileMode.LEAN))
        if responses:
            memory = 1 + median(responses) * (shipped.memory - 1)
            return replace(shipped, memory=memory)
        return shipped if known else replace(shipped, assumed=True)
