"""Why steps waited, were paused or were killed, in sentences."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stoker.model.events import AnyEvent, StepEnds, StepPauses, StepRepeats, StepStarts, StepWaits
from stoker.model.govern import CompileMode, Reason
from stoker.model.runs import Attempt, Explanation, Intervention, Outcome
from stoker.model.value import counted, duration, size

if TYPE_CHECKING:  # a run that explains nothing starts sooner without it
    from stoker.outside.terminal import Page

_NOTABLE = 0.5  # seconds; shorter waits are not worth a line
_MOST_SHOWN = 10
_SEVERAL = 8  # steps after which a build that never had two at once is called serial

_WAITS = {
    Reason.CPUS: "for a free CPU",
    Reason.RUNS: "for a CPU that another run used",
    Reason.MEMORY: "for memory",
    Reason.UNKNOWN_SIZE: "until other steps of unknown size had shown what they need",
    Reason.WORKERS: "for a free worker",
    Reason.DEADLINE: "because it would end after the time of --stop-after",
    Reason.TURN: "behind a more urgent step that had waited too long to be passed",
    Reason.PRESSURE: "because the kernel reported that tasks waited for memory",
}
_CAUSES = {
    Reason.GROWTH: "memory in use would have passed the limit within a second",
    Reason.SHORTAGE: "memory was almost used up",
    Reason.LONG_PAUSE: "its pause took too long, so its memory was given to other steps",
    Reason.DEADLINE: "the time of --stop-after was over",
    Reason.OOM: "the kernel killed it because memory ran out",
    Reason.REFUSED: "its compiler does not know the options that save memory",
    Reason.LINK_FAILED: "the link failed with another linker than the default one",
}

_MODES = {
    Reason.MEMORY_BOUND: "because CPUs were idle while steps waited for memory",
    Reason.IDLE_MEMORY: "because memory was idle",
    Reason.TOO_LARGE: "because it does not fit into the memory limit otherwise",
    Reason.LINKER: "as --linker asks",
    Reason.IDLE_CPUS: "because too few steps were left for all CPUs",
}


def mode_text(mode: CompileMode, reason: Reason | None, threads: int = 1) -> str:
    """Return "in the mode lean, because CPUs were idle while steps waited for memory"."""
    how = "with" if mode.is_linker else "in the mode"
    name = f"with {threads} threads" if mode is CompileMode.THREADS else f"{how} {mode.value}"
    return f"{name}, {_MODES[reason]}" if reason in _MODES else ""


def waits_text(waits: Mapping[Reason, float], needs: int) -> str:
    """Return "12 s: 10 s for memory (it needs 3.0 GiB), 2 s for a free CPU"."""
    longest = sorted(waits.items(), key=lambda each: -each[1])
    parts = [_wait(reason, seconds, needs) for reason, seconds in longest if seconds >= _NOTABLE]
    if len(parts) == 1:
        return parts[0]
    return f"{duration(sum(waits.values()))}: {', '.join(parts)}" if parts else "not at all"


def _wait(reason: Reason, seconds: float, needs: int) -> str:
    need = f" (it needs {size(needs)})" if reason is Reason.MEMORY and needs else ""
    return f"{duration(seconds)} {_WAITS.get(reason, reason.value)}{need}"


def cause_text(cause: Intervention) -> str:
    """Return "memory was almost used up (7.9 GiB of 8.0 GiB in use)"."""
    text = _CAUSES.get(cause.reason, cause.reason.value)
    return f"{text} ({size(cause.used_bytes)} of {size(cause.limit_bytes)} in use)"


def decision_text(event: AnyEvent) -> str:
    """Return a decision of the governor with its reason; empty for other events."""
    match event:
        case StepStarts():
            waited = waits_text(event.waits, event.needs)
            return f"start {event.title}: predicted peak {size(event.needs)}, waited {waited}"
        case StepPauses(cause=Intervention() as cause):
            return f"pause {event.title} at {size(event.memory)}: {cause_text(cause)}"
        case StepRepeats(cause=Intervention() as cause):
            return f"repeat {event.title}, killed at {size(event.peak)}: {cause_text(cause)}"
        case _:
            return ""


def with_decisions_logged(show: Callable[[AnyEvent], None]) -> Callable[[AnyEvent], None]:
    """Return a function that calls ``show`` and, under `stoker -v`, logs each decision."""
    logging = sys.modules.get("logging")  # only `stoker -v` imports it
    if logging is None:
        return show
    log = logging.getLogger("stoker.governor")

    def show_and_log(event: AnyEvent) -> None:
        show(event)
        if text := decision_text(event):
            log.debug("%s", text)

    return show_and_log


class SerialBuild:
    """Notices that a build tool starts one step at a time, so that CPUs are idle."""

    def __init__(self) -> None:
        self._now = self._most = self._all = 0  # steps that wait or run

    def show(self, event: AnyEvent) -> None:
        if isinstance(event, StepWaits):
            self._all += 1
            self._now += 1
            self._most = max(self._most, self._now)
        elif isinstance(event, StepEnds):
            self._now -= 1

    def text(self, cpus: int) -> str:
        """Return what to do about it; empty for another build."""
        if self._most > 1 or self._all < _SEVERAL or cpus < 2:
            return ""
        return (
            "stoker: the build tool started one step at a time. If the build can run several, say "
            "so to the tool,\n  as in `make -j`: stoker decides how many run at once\n"
        )


class RunExplanation:
    """Collects the events of a run and explains at the end why its steps waited."""

    def __init__(self) -> None:
        self._waits: Counter[Reason] = Counter()
        self._steps: Counter[Reason] = Counter()
        self._longest: list[tuple[float, str]] = []
        self._lost: list[str] = []
        self._modes: Counter[str] = Counter()

    def show(self, event: AnyEvent) -> None:
        match event:
            case StepStarts():
                waits = {why: took for why, took in event.waits.items() if took >= _NOTABLE}
                self._waits.update(waits)
                self._steps.update(waits.keys())
                if event.mode is not CompileMode.DEFAULT:
                    self._modes[mode_text(event.mode, event.mode_reason, event.threads)] += 1
                if waits:
                    text = f"{event.title} waited {waits_text(waits, event.needs)}"
                    self._longest.append((sum(waits.values()), text))
            case StepPauses(cause=Intervention() as cause):
                self._lost.append(f"{event.title} was paused: {cause_text(cause)}")
            case StepRepeats(cause=Intervention() as cause):
                how = "repeated" if event.why == Outcome.REFUSED else "killed and repeated"
                self._lost.append(f"{event.title} was {how}: {cause_text(cause)}")

    def text(self) -> str:
        """Return the explanation as lines for the terminal."""
        if not self._waits and not self._lost and not self._modes:
            return "stoker: no step waited, was paused or was killed\n"
        lines = ["stoker: why steps waited"]
        for reason, seconds in self._waits.most_common():
            steps = counted(self._steps[reason], "step")
            lines.append(f"  {steps} waited {duration(seconds)} in all {_WAITS[reason]}")
        for text, count in self._modes.most_common():
            lines.append(f"  {counted(count, 'step')} ran {text}")
        longest = sorted(self._longest, reverse=True)[:_MOST_SHOWN]
        lines += [f"  {text}" for _, text in longest]
        lines += [f"  {text}" for text in self._lost[:_MOST_SHOWN]]
        if (more := len(self._lost) - _MOST_SHOWN) > 0:
            lines.append(f"  and {more} more pauses or kills")
        return "\n".join(lines) + "\n"


def step_page(attempts: Sequence[Attempt]) -> "Page":
    """Explain each attempt of a step of the history."""
    from stoker.outside.terminal import Group

    return Group(*(line for attempt in attempts for line in _attempt_lines(attempt)))


def _attempt_lines(attempt: Attempt) -> "list[Page]":
    from stoker.outside.terminal import Indented, Text

    record = attempt.record
    title = Text(record.step.source or record.step.output, style="bold")
    ended = {Outcome.DONE: "finished", Outcome.FAILED: f"failed with status {attempt.status}"}
    how = ended.get(attempt.outcome, f"was lost ({attempt.outcome.value})")
    figures = f"it {how} after {duration(record.wall_s)}, with a peak of {size(record.peak_bytes)}"
    explanation = attempt.explanation
    if explanation is None:
        lines = [figures, "an earlier version of stoker recorded no reasons"]
    else:
        mode = mode_text(record.mode, explanation.mode_reason, record.step.threads)
        figures += f" ({mode})" if mode else ""
        lines = [*_explained(explanation), figures]
        if explanation.killed:
            lines.append(f"it was killed: {cause_text(explanation.killed)}")
    return [title, *(Indented(line, 2) for line in lines)]


def _explained(explanation: Explanation) -> list[str]:
    needs = f"predicted peak {size(explanation.needs_bytes)}, from {explanation.basis.value}"
    waits = f"it waited {waits_text(explanation.waits, explanation.needs_bytes)}"
    pauses = [
        f"it was paused for {duration(pause.wall_s)}: {cause_text(pause)}"
        for pause in explanation.pauses
    ]
    once = [once_text(explanation.once)] if explanation.once else []
    return [needs, waits, *once, *pauses]


def once_text(reason: str) -> str:
    return f"it is never killed and repeated: {reason}"
