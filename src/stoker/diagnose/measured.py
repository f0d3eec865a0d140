"""What the governor measured of a run, and what that says about its causes.

A log can only hint that memory ran out; the kernel's counter knows.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stoker.diagnose.values import Diagnosis, Evidence, FoundCause, Status
from stoker.diagnose.verdict import apart, finding_of
from stoker.knowledge.failures import failures
from stoker.model.govern import Role
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.model.value import Value, size

_OF_CUDA, _OF_HOST = "oom-nvcc", "oom-host-compiler"
_LIKELY = 0.9  # that memory was it, where the counter moved and no other cause is known
_MOST_SHOWN = 5


class Measured(Value, frozen=True, kw_only=True):
    """Measurements of a run. ``killed`` and ``failed`` are steps whose last attempt ended so."""

    status: int | None = None  # of the command
    oom_kills: int = 0
    peak: int = 0
    limit: int = 0
    killed: tuple[Attempt, ...] = ()
    failed: tuple[Attempt, ...] = ()


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
    return msgspec.structs.replace(
        of_summary(summary),
        killed=tuple(attempt for attempt in last if attempt.outcome is Outcome.OOM),
        failed=tuple(attempt for attempt in last if attempt.outcome is Outcome.FAILED),
    )


def with_measured(diagnosis: Diagnosis, measured: Measured, facts: Mapping[str, str]) -> Diagnosis:
    """Return the diagnosis of a log with the measurements of its run, which can prove that memory
    ran out.
    """
    if measured.status == 0:
        return diagnosis
    found = _out_of_memory(diagnosis.findings, measured, facts)
    if found:
        others = [finding for finding in diagnosis.findings if finding.cause != found.cause]
        ranked = sorted([found, *others], key=lambda finding: -finding.confidence)
        return msgspec.structs.replace(
            diagnosis, status=Status.FAILED, findings=tuple(apart(ranked)), unexplained=()
        )
    if diagnosis.status is Status.NOTHING_FAILED and (measured.status or measured.failed):
        shown = tuple(map(_step, measured.failed[:_MOST_SHOWN]))
        return msgspec.structs.replace(diagnosis, status=Status.UNKNOWN, unexplained=shown)
    return diagnosis


def _out_of_memory(
    findings: Sequence[FoundCause], measured: Measured, facts: Mapping[str, str]
) -> FoundCause | None:
    if not measured.oom_kills and not measured.killed:
        return None
    evidence = tuple(_memory(measured))
    for finding in findings:
        if finding.cause in (_OF_CUDA, _OF_HOST):
            return msgspec.structs.replace(
                finding, confidence=1.0, evidence=(*evidence, *finding.evidence)
            )
    if findings and not measured.killed:
        return None  # it was killed and tried again; what failed is something else
    cuda = any(attempt.record.step.role is Role.CUDA for attempt in measured.killed)
    confidence = 1.0 if measured.killed else _LIKELY
    cause = failures()[_OF_CUDA if cuda else _OF_HOST]
    return finding_of(cause, confidence, evidence, facts)


def _memory(measured: Measured) -> Iterable[Evidence]:
    if measured.oom_kills:
        text = f"the kernel killed {measured.oom_kills} processes of the run for lack of memory"
        if measured.peak:
            text += f"; the most it used was {size(measured.peak)} of {size(measured.limit)}"
        yield Evidence(line=0, text=text)
    yield from map(_step, measured.killed[:_MOST_SHOWN])


def _step(attempt: Attempt) -> Evidence:
    step, record = attempt.record.step, attempt.record
    how = "was killed for lack of memory" if attempt.outcome is Outcome.OOM else "failed"
    took = f"after {record.seconds:.0f} s, with {size(record.peak)}"
    status = f", status {attempt.status}" if attempt.status else ""
    return Evidence(line=0, text=f"{step.role} {step.source or step.output} {how} {took}{status}")
