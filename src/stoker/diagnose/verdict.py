"""Ranks the causes of a log, and of the measurements of its run, by confidence.

Pure: reads nothing, asks the machine nothing; facts about it come with the run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stoker.diagnose.sieve import Log
from stoker.diagnose.signs import Match, command_in, find_matches
from stoker.diagnose.steps import Steps, find_steps
from stoker.diagnose.values import Diagnosis, Evidence, FoundCause, Line, Status
from stoker.knowledge.failures import Failure, Fix, failures
from stoker.model.govern import Role
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.model.secrets import redact
from stoker.model.value import Value, size

_OF_ECHO = 0.5  # how sure a sign in a line that only repeats can be, at most
_OF_QUIET = 0.8  # what is left of a sign that successful builds show too
_SURE = 0.85  # a second cause of one step must be as sure as this
_CLEARLY = 0.15  # less sure than the first: not worth naming in the same step
_WORTH_NAMING = 0.5  # beside a better one
_APART = 0.01  # between two that are equally sure; the earlier one goes first
_MOST_EVIDENCE = 6
_PASTABLE = re.compile(r"[\w.,:+/@%=-]{1,200}").fullmatch  # a log must not write our commands


def diagnose(log: Log, *, file: str = "", facts: Mapping[str, str] | None = None) -> Diagnosis:
    """Return the diagnosis of a log. ``facts`` are parameters of fixes that are known of the run's
    machine.
    """
    steps = find_steps(log.lines)
    matches = [match for match in find_matches(log.lines, steps) if _counts(match, steps)]
    if not matches and not steps.failed:
        return Diagnosis(status=Status.NOTHING_FAILED, lines=log.total)
    command = command_in(log.lines)
    findings = [
        finding_of(
            match.cause,
            strength,
            _evidence_of(match, matches, log.lines, file),
            {**command, **(facts or {}), **_pastable(match.groups)},
        )
        for strength, match in _independent(_best_of_each(matches, steps), steps)
    ]
    return Diagnosis(
        status=Status.FAILED if findings else Status.UNKNOWN,
        findings=tuple(apart(findings)),
        unexplained=() if findings else _first_error(log.lines, steps, file),
        lines=log.total,
    )


def merged(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis of several logs of one build."""
    best: dict[str, FoundCause] = {}
    for finding in sorted(_all_findings(diagnoses), key=lambda finding: -finding.confidence):
        best.setdefault(finding.cause, finding)
    statuses = {diagnosis.status for diagnosis in diagnoses}
    ranked = (Status.FAILED, Status.UNKNOWN)
    return Diagnosis(
        status=next((one for one in ranked if one in statuses), Status.NOTHING_FAILED),
        findings=tuple(apart(best.values())),
        unexplained=next((one.unexplained for one in diagnoses if one.unexplained), ()),
        lines=sum(diagnosis.lines for diagnosis in diagnoses),
    )


def _all_findings(diagnoses: Iterable[Diagnosis]) -> Iterator[FoundCause]:
    for diagnosis in diagnoses:
        yield from diagnosis.findings


def apart(ranked: Iterable[FoundCause]) -> Iterator[FoundCause]:
    """Yield the findings with distinct confidences."""
    limit = 1.0
    for finding in ranked:
        confidence = round(min(finding.confidence, limit), 2)
        limit = confidence - _APART
        yield msgspec.structs.replace(finding, confidence=confidence)


def finding_of(
    cause: Failure, confidence: float, evidence: tuple[Evidence, ...], known: Mapping[str, str]
) -> FoundCause:
    return FoundCause(
        cause=cause.name,
        title=cause.title,
        stage=cause.stage,
        confidence=confidence,
        evidence=evidence,
        why=" ".join(cause.why.split()),
        fix=filled(cause, known),
        links=cause.threads,
        misled_by=cause.misled_by,
    )


def filled(cause: Failure, known: Mapping[str, str]) -> tuple[Fix, ...]:
    """Return the fixes of a cause; parameters that are not known have their default."""
    values = cause.defaults | {name: redact(text) for name, text in known.items()}
    return tuple(
        Fix(
            text=fix.text.format_map(values),
            commands=tuple(_fitting(command.format_map(values)) for command in fix.commands),
        )
        for fix in cause.fix
    )


def _fitting(command: str) -> str:
    """Return the command without `stoker run`, if stoker already governs what it would run."""
    return command.replace("stoker run -- stoker ", "stoker ")


def _counts(match: Match, steps: Steps) -> bool:
    """Return whether a match is evidence: not if successful builds print it too, or if the build
    recovered later. A warning of CMake does not count if CMake names an error itself.
    """
    if steps.refusals and (match.sign.quiet or match.line in steps.notices):
        return any(match.line in message for message in steps.refusals.values())
    return not steps.taken_back(match.line) or (steps.failed and not match.sign.quiet)


def _strength(match: Match, steps: Steps) -> float:
    strength = match.sign.strength * (_OF_QUIET if match.sign.quiet else 1)
    return min(strength, _OF_ECHO) if match.line in steps.echoes else strength


def _best_of_each(matches: Iterable[Match], steps: Steps) -> list[tuple[float, Match]]:
    """Return the strongest, then first, match of every cause, the strongest cause first."""
    best: dict[str, tuple[float, Match]] = {}
    for match in matches:
        found = (_strength(match, steps), match)
        if match.cause.name not in best or _order(found) < _order(best[match.cause.name]):
            best[match.cause.name] = found
    return sorted(best.values(), key=_order)


def _order(found: tuple[float, Match]) -> tuple[float, int]:
    return -found[0], found[1].line


def _independent(
    ranked: Iterable[tuple[float, Match]], steps: Steps
) -> Iterator[tuple[float, Match]]:
    """Return the causes without those that are only a weaker reading of a better one."""
    first: dict[int, float] = {}
    for strength, match in ranked:
        step = steps.step[match.line]
        if step in first and strength < max(_SURE, first[step] - _CLEARLY):
            continue
        if first and strength < _WORTH_NAMING:
            continue
        first.setdefault(step, strength)
        yield strength, match


def _pastable(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in groups.items() if _PASTABLE(text)}


def _evidence_of(
    match: Match, matches: Iterable[Match], lines: Sequence[Line], file: str
) -> tuple[Evidence, ...]:
    others = [other.line for other in matches if other.cause is match.cause]
    shown = list(dict.fromkeys([match.line, *match.with_lines, *others]))[:_MOST_EVIDENCE]
    return tuple(_evidence(lines[index], file) for index in sorted(shown))


def _evidence(line: Line, file: str) -> Evidence:
    return Evidence(line=line.number, text=redact(line.text), file=file)


def first_error(log: Log) -> tuple[Evidence, ...]:
    """Return the first error of a log with the lines that belong to it; empty if there is none."""
    return _first_error(log.lines, find_steps(log.lines), "")


def _first_error(lines: Sequence[Line], steps: Steps, file: str) -> tuple[Evidence, ...]:
    first = steps.first_error
    block = () if first is None else steps.block(first)
    return tuple(_evidence(lines[index], file) for index in block)


# -- measured --------------------------------------------------------------------------------------
# What the governor measured of a run, and what that says about its causes.
#
# A log can only hint that memory ran out; the kernel's counter knows.


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
