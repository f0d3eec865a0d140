"""What the governor measured of a run, and what that says about its causes.

A log can only hint that memory ran out; the kernel's counter knows.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stoker.diagnose.about import About
from stoker.diagnose.answers import answers
from stoker.diagnose.values import Diagnosis, FoundCause, LogEvidence, Status
from stoker.diagnose.verdict import apart, finding_of
from stoker.knowledge.failures import failure
from stoker.model.govern import Role
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.model.value import Value, size

_OF_CUDA, _OF_HOST = "oom-nvcc", "oom-host-compiler"
_KILLED = re.compile(r"\bKilled\b|signal 9\b")
_DOUBTFUL = 0.4  # that a killed process lacked memory, where the run had enough
_ENOUGH = 0.5  # of the limit is the most that a run with enough memory uses
_LIKELY = 0.9  # that memory was it, where the counter moved and no other cause is known
_ALONE = 0.8  # of the limit: a step that needed this much leaves no room for others
_MOST_SHOWN = 5


class Measured(Value, frozen=True, kw_only=True):
    """Measurements of a run. ``killed`` and ``failed`` are steps whose last attempt ended so."""

    status: int | None = None  # of the command
    oom_kills: int = 0
    peak: int = 0
    limit: int = 0
    killed: tuple[Attempt, ...] = ()
    failed: tuple[Attempt, ...] = ()

    @property
    def alone(self) -> str:
        """What a step needed that ran out of memory by itself; empty if none did."""
        most = max((attempt.record.peak_bytes for attempt in self.killed), default=0)
        return f"{size(most)} of {size(self.limit)}" if 0 < _ALONE * self.limit <= most else ""

    @property
    def had_enough(self) -> bool:
        """Whether the run was far from its limit, and the kernel killed nothing of it."""
        killed = self.oom_kills or self.killed
        return not killed and 0 < self.peak < _ENOUGH * self.limit


def of_summary(summary: RunSummary | None) -> Measured:
    if summary is None:
        return Measured()
    return Measured(
        status=summary.status,
        oom_kills=summary.oom_kills,
        peak=summary.peak_bytes,
        limit=summary.limit_bytes,
    )


def of_attempts(attempts: Iterable[Attempt], summary: RunSummary | None) -> Measured:
    last = {attempt.record.step.key: attempt for attempt in attempts}.values()
    return replace(
        of_summary(summary),
        killed=tuple(attempt for attempt in last if attempt.outcome is Outcome.OOM),
        failed=tuple(attempt for attempt in last if attempt.outcome is Outcome.FAILED),
    )


def with_measured(diagnosis: Diagnosis, measured: Measured, about: About) -> Diagnosis:
    """Return the diagnosis of a log with the measurements of its run, which can prove that memory
    ran out, or that there was enough of it.
    """
    if measured.status == 0:
        return diagnosis
    if measured.had_enough:
        doubted = (_with_doubt(finding, measured) for finding in diagnosis.findings)
        diagnosis = replace(diagnosis, findings=tuple(_ranked(doubted)))
    found = _out_of_memory(diagnosis.findings, measured, about)
    if found:
        others = [finding for finding in diagnosis.findings if finding.cause != found.cause]
        ranked = apart(_ranked([found, *others]))
        explained = {"findings": tuple(ranked), "unexplained": ()}
        return replace(diagnosis, status=Status.FAILED, **explained)
    silent = diagnosis.status in (Status.NOTHING_FAILED, Status.EMPTY)
    if silent and (measured.status or measured.failed):
        shown = tuple(map(_step, measured.failed[:_MOST_SHOWN]))
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=shown)
    return diagnosis


def _ranked(findings: Iterable[FoundCause]) -> list[FoundCause]:
    return sorted(findings, key=lambda finding: -finding.confidence)


def _out_of_memory(
    findings: Sequence[FoundCause], measured: Measured, about: About
) -> FoundCause | None:
    if not measured.oom_kills and not measured.killed:
        return None
    evidence = tuple(_memory(measured))
    about = about.of_run(replace(about.run, alone=measured.alone))
    for finding in findings:
        if finding.cause in (_OF_CUDA, _OF_HOST):
            evidence = (*evidence, *finding.evidence)
            alone = measured.alone and answers(failure(finding.cause), about)
            return replace(
                finding, confidence=1.0, evidence=evidence, **(alone._asdict() if alone else {})
            )
    if findings and not measured.killed:
        return None  # it was killed and tried again; what failed is something else
    cuda = any(attempt.record.step.role is Role.CUDA for attempt in measured.killed)
    confidence = 1.0 if measured.killed else _LIKELY
    cause = failure(_OF_CUDA if cuda else _OF_HOST)
    return finding_of(cause, confidence, evidence, about.with_groups({}, cause.known))


def _with_doubt(finding: FoundCause, measured: Measured) -> FoundCause:
    """Return a finding that a process was killed for lack of memory as a guess."""
    texts = (evidence.text for evidence in finding.evidence)
    if finding.cause not in (_OF_CUDA, _OF_HOST) or not any(map(_KILLED.search, texts)):
        return finding
    text = (
        "the kernel killed no process of the run for lack of memory, and the most it used was "
        f"{size(measured.peak)} of {size(measured.limit)}: perhaps a user, a job scheduler or a "
        "daemon such as earlyoom sent the signal"
    )
    doubt = LogEvidence(line=0, text=text)
    confidence = min(finding.confidence, _DOUBTFUL)
    return replace(finding, confidence=confidence, evidence=(doubt, *finding.evidence))


def _memory(measured: Measured) -> Iterable[LogEvidence]:
    if measured.oom_kills:
        text = f"the kernel killed {measured.oom_kills} processes of the run for lack of memory"
        if measured.peak:
            text += f"; the most it used was {size(measured.peak)} of {size(measured.limit)}"
        yield LogEvidence(line=0, text=text)
    yield from map(_step, measured.killed[:_MOST_SHOWN])


def _step(attempt: Attempt) -> LogEvidence:
    step, record = attempt.record.step, attempt.record
    how = "was killed for lack of memory" if attempt.outcome is Outcome.OOM else "failed"
    took = f"after {record.wall_s:.0f} s, with {size(record.peak_bytes)}"
    status = f", status {attempt.status}" if attempt.status else ""
    return LogEvidence(
        line=0, text=f"{step.role} {step.source or step.output} {how} {took}{status}"
    )
