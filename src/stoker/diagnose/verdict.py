"""Ranks the causes of a log by confidence.

Pure but for the facts in fixes, which are read when a fix needs them.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stoker.diagnose.about import About
from stoker.diagnose.ages import source_month, suspects, versions_of
from stoker.diagnose.answers import answers, headline, value
from stoker.diagnose.lines import Texts
from stoker.diagnose.not_fatal import is_behind_error, is_gone_past
from stoker.diagnose.sieve import Line, Log
from stoker.diagnose.signs import LogSearch, Match, find_matches
from stoker.diagnose.split_paths import split_paths
from stoker.diagnose.steps import LogSteps, failed_step, find_steps
from stoker.diagnose.symptoms import find_symptoms
from stoker.diagnose.translated import in_english
from stoker.diagnose.values import Diagnosis, FailedRun, FoundCause, LogEvidence, Status
from stoker.knowledge.failures import Depth, Failure, shows_other_ecosystem, stated
from stoker.model.secrets import redact

_OF_ECHO = 0.5  # how sure a sign in a line that only repeats can be, at most
_OF_QUIET = 0.8  # what is left of a sign that successful builds show too
_SURE = 0.85  # a second cause of one step must be as sure as this
_CLEARLY = 0.15  # less sure than the first: not worth naming in the same step
_LEAST = 0.45  # strength below which a sign is not looked at
_LEAST_SAID = 0.55  # an answer that is not right more often than this is none
_TWO, _CLOSE, _SAFE = 2, 0.01, 0.85  # two causes that are as close as this, and not as sure
_APART = 0.01  # between two that are equally sure; the earlier one goes first
_MOST_LINKS = 2
_MESSAGE = "message"  # a group that is a whole sentence
_MOST_TESTED, _ODD_SHARE = 400, 0.2  # lines in which it is tested whether a log is text
_BROKEN = "\ufffd"  # what bytes become that are no text
_MOST_EVIDENCE = 12  # lines of an excerpt
_MOST_BELOW = 3  # lines that belong to a message of a compiler


def diagnose(log: Log, *, file: str = "", about: About | None = None) -> Diagnosis:
    """Return the diagnosis of a log. ``about`` is what is known of the run and the machine."""
    log = msgspec.structs.replace(log, lines=tuple(in_english(log.lines)))
    about = (about or About()).of_log(log.lines)
    if not any(line.text for line in log.lines) or _is_binary(log.lines):
        return Diagnosis(status=Status.EMPTY, lines=log.total, run=about.run)
    texts = Texts([line.text for line in log.lines])
    steps = find_steps(log.lines, texts)
    search = LogSearch(
        lines=log.lines,
        texts=texts,
        steps=steps,
        given=lambda name: bool(value(name, about)),
        versions=versions_of(texts),
    )
    found = [
        match
        for match in (*find_matches(search), *split_paths(search))
        if _counts(match, steps)
        and not is_gone_past(match, search)
        and not is_behind_error(match, search)
    ]
    if not found and not steps.failed:
        return Diagnosis(
            status=Status.NOTHING_FAILED,
            succeeded=bool(steps.last_success),
            unexplained=_first_error(log.lines, steps, file),
            lines=log.total,
            run=about.run,
        )
    explained = {match.line for match in found if match.strength >= _SURE}
    known = (match for match in found if match.strength >= _SURE)
    settled = {steps.step[one.line] for one in known if one.cause.depth is not Depth.SYMPTOM}
    search = msgspec.structs.replace(search, settled=frozenset(settled))
    symptoms = (one for one in find_symptoms(search, explained) if not is_gone_past(one, search))
    matches = [one for one in (*found, *symptoms) if not _is_excluded(one, search)]
    if about.shows(shows_other_ecosystem()):
        matches = [one for one in matches if one.cause.depth is Depth.RESOURCE]
    ranked = list(_independent(_best_of_each(matches, steps), steps))
    named = [
        finding_of(
            match.cause,
            stated(match.cause.name, strength),
            _excerpt(match, log.lines, steps, file),
            about.with_groups(_groups(match, matches), match.cause.known),
        )
        for strength, match in ranked
    ]
    findings = [one for one in named if one.confidence >= _LEAST_SAID]
    if not findings or _are_close(ranked, findings, steps):
        unknown = Diagnosis(
            status=Status.UNKNOWN,
            unexplained=_first_error(log.lines, steps, file),
            lines=log.total,
            run=about.run,
        )
        return _with_known(unknown, texts)
    diagnosis = Diagnosis(
        status=Status.FAILED, findings=tuple(apart(findings)), lines=log.total, run=about.run
    )
    return diagnosis if findings[0].fix else _with_known(diagnosis, texts)


def _is_binary(lines: Sequence[Line]) -> bool:
    """Return whether most characters are none of a text, as in random bytes."""
    text = "".join(line.text for line in lines[:_MOST_TESTED])
    odd = sum(not (letter.isprintable() or letter == "\t") or letter == _BROKEN for letter in text)
    return odd > len(text) * _ODD_SHARE


def _are_close(
    ranked: Sequence[tuple[float, Match]], findings: Sequence[FoundCause], steps: LogSteps
) -> bool:
    """Return whether the two best causes explain the same step and are about equally likely, so
    that neither is an answer.
    """
    if len(findings) < _TWO or len({steps.step[match.line] for _, match in ranked[:_TWO]}) > 1:
        return False
    first, second = (finding.confidence for finding in findings[:_TWO])
    return first < _SAFE and first - second < _CLOSE


def _with_known(diagnosis: Diagnosis, texts: Texts) -> Diagnosis:
    """Return a diagnosis without a fix with what is known instead: the step that failed, and what
    is newer than the source.
    """
    month = source_month(diagnosis.run)
    return msgspec.structs.replace(
        diagnosis,
        step=redact(failed_step(texts)),
        suspects=suspects(texts, month, diagnosis.run),
        source=month or "",
    )


def merged(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Return the diagnosis of several logs of one build."""
    best: dict[str, FoundCause] = {}
    for finding in sorted(_all_findings(diagnoses), key=lambda finding: -finding.confidence):
        best.setdefault(finding.cause, finding)
    statuses = {diagnosis.status for diagnosis in diagnoses}
    ranked = (Status.FAILED, Status.UNKNOWN, Status.NOTHING_FAILED, Status.EMPTY)
    silent = Diagnosis(status=Status.EMPTY)
    unknown = next((one for one in diagnoses if one.unexplained), silent)
    return Diagnosis(
        status=next((one for one in ranked if one in statuses), Status.NOTHING_FAILED),
        findings=tuple(apart(best.values())),
        unexplained=unknown.unexplained,
        step=unknown.step,
        suspects=unknown.suspects,
        source=unknown.source,
        lines=sum(diagnosis.lines for diagnosis in diagnoses),
        run=next((diagnosis.run for diagnosis in diagnoses), FailedRun()),
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
    cause: Failure, confidence: float, evidence: tuple[LogEvidence, ...], about: About
) -> FoundCause:
    fix, look = answers(cause, about)
    return FoundCause(
        cause=cause.name,
        title=headline(cause, about),
        stage=cause.stage,
        confidence=confidence,
        evidence=evidence,
        why=" ".join(cause.why.split()),
        fix=fix,
        look=look,
        links=cause.threads[:_MOST_LINKS],
        misled_by=cause.misled_by,
    )


def _groups(match: Match, matches: Iterable[Match]) -> dict[str, tuple[str, ...]]:
    """Return what a match names, and what the same sign names elsewhere in the log; of messages
    only its own.
    """
    found: dict[str, dict[str, None]] = {}
    others = (one for one in matches if one.sign == match.sign and one.cause is match.cause)
    for one in (match, *others):
        for name, text in one.groups.items():
            if one is match or name != _MESSAGE:
                found.setdefault(name, {})[text] = None
    return {name: tuple(texts) for name, texts in found.items()}


def _counts(match: Match, steps: LogSteps) -> bool:
    """Return whether a match is evidence: not if successful builds print it too, or if the build
    recovered later. A warning of CMake does not count if CMake names an error itself, or wrote the
    files of the build after it.
    """
    if steps.refusals and (match.quiet or match.line in steps.notices):
        return any(match.line in message for message in steps.refusals.values())
    if match.line in steps.notices and steps.taken_back(match.line):
        return False
    return not steps.taken_back(match.line) or (steps.failed and not match.quiet)


def _is_excluded(match: Match, search: LogSearch) -> bool:
    """Return whether the log shows that a cause is another one than that of a match."""
    return any(search.texts.search(pattern, most=1) for pattern in match.cause.excludes)


def _strength(match: Match, steps: LogSteps) -> float:
    quiet = match.quiet or match.line in steps.warned
    strength = match.strength * (_OF_QUIET if quiet else 1)
    return min(strength, _OF_ECHO) if match.line in steps.echoes else strength


def _best_of_each(matches: Iterable[Match], steps: LogSteps) -> list[tuple[float, Match]]:
    """Return the strongest, then first, match of every cause, the strongest cause first."""
    best: dict[str, tuple[float, Match]] = {}
    for match in matches:
        found = (_strength(match, steps), match)
        if match.cause.name not in best or _order(found) < _order(best[match.cause.name]):
            best[match.cause.name] = found
    return sorted(best.values(), key=_order)


def _order(found: tuple[float, Match]) -> tuple[bool, float, int]:
    strength, match = found
    return match.cause.depth is Depth.SYMPTOM, -strength, match.line


def _independent(
    ranked: Iterable[tuple[float, Match]], steps: LogSteps
) -> Iterator[tuple[float, Match]]:
    """Return the causes without those that are only a weaker reading of a better one."""
    first: dict[int, float] = {}
    lines: set[int] = set()
    for strength, match in ranked:
        step = steps.step[match.line]
        if strength < _LEAST or match.line in lines:
            continue
        if step in first and (
            match.cause.depth is Depth.SYMPTOM or strength < max(_SURE, first[step] - _CLEARLY)
        ):
            continue
        first.setdefault(step, strength)
        lines.add(match.line)
        yield strength, match


def _excerpt(
    match: Match, lines: Sequence[Line], steps: LogSteps, file: str
) -> tuple[LogEvidence, ...]:
    """Return the lines that show a cause: one message, complete but not longer than a few lines. A
    symptom is nothing but its message, which is shown as a whole.
    """
    if match.cause.depth is Depth.SYMPTOM:
        return tuple(_evidence(lines[index], file) for index in steps.block(match.line))
    begin = match.line
    end = max(
        [begin + 1, *(line + 1 for line in match.with_lines if 0 < line - begin <= _MOST_BELOW)]
    )
    for message in steps.refusals.values():
        if begin in message:
            begin, end = message.start, message.stop
    while end < min(len(lines), match.line + 1 + _MOST_BELOW) and _belongs(lines[end].text):
        end += 1
    while begin > 0 and lines[begin - 1].text.lstrip().startswith('File "') and end - begin < 4:
        begin -= 1
    return tuple(_evidence(line, file) for line in lines[begin : min(end, begin + _MOST_EVIDENCE)])


def _belongs(text: str) -> bool:
    """Return whether a line quotes the source for the message above it."""
    return text[:1] == " " and "|" in text[:12]


def _evidence(line: Line, file: str) -> LogEvidence:
    return LogEvidence(line=line.number, text=redact(line.said or line.text), file=file)


def first_error(log: Log) -> tuple[LogEvidence, ...]:
    """Return the first error of a log with the lines that belong to it; empty if there is none."""
    lines = in_english(log.lines)
    texts = Texts([line.text for line in lines])
    return _first_error(lines, find_steps(lines, texts), "")


def _first_error(lines: Sequence[Line], steps: LogSteps, file: str) -> tuple[LogEvidence, ...]:
    first = steps.first_error
    block = () if first is None else steps.block(first)
    return tuple(_evidence(lines[index], file) for index in block)
