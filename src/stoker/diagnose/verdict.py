"""From a log, and what was measured of its run, to the causes in order of confidence.

Pure: reads nothing, asks the machine nothing; facts about it come with the run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stoker.diagnose.secrets import redact
from stoker.diagnose.sieve import Log
from stoker.diagnose.signs import Match, find_matches
from stoker.diagnose.steps import Steps, find_steps
from stoker.diagnose.values import Diagnosis, Evidence, Finding, Line, Status
from stoker.knowledge.failures import Failure, Fix

_OF_ECHO = 0.5  # how sure a sign in a line that only repeats can be, at most
_OF_QUIET = 0.8  # what is left of a sign that successful builds show too
_SURE = 0.85  # a second cause of one step must be as sure as this
_CLEARLY = 0.15  # less sure than the first: not worth naming in the same step
_WORTH_NAMING = 0.5  # beside a better one
_APART = 0.01  # between two that are equally sure; the earlier one goes first
_MOST_EVIDENCE = 6
_PASTABLE = re.compile(r"[\w.,:+/@%=-]{1,200}").fullmatch  # a log must not write our commands


def diagnose(log: Log, *, file: str = "", facts: Mapping[str, str] | None = None) -> Diagnosis:
    """``facts`` are parameters of fixes that are known of the machine of the run."""
    steps = find_steps(log.lines)
    matches = [match for match in find_matches(log.lines, steps) if _counts(match, steps)]
    if not matches and not steps.failed:
        return Diagnosis(status=Status.NOTHING_FAILED, lines=log.total)
    best = _apart(_independent(_best_of_each(matches, steps), steps))
    findings = [
        _finding(confidence, match, matches, log.lines, file, facts or {})
        for confidence, match in best
    ]
    return Diagnosis(
        status=Status.FAILED if findings else Status.UNKNOWN,
        findings=tuple(findings),
        unexplained=() if findings else tuple(_first_error(log.lines, steps, file)),
        lines=log.total,
    )


def _counts(match: Match, steps: Steps) -> bool:
    """What successful builds show too, and what was mended later, is no sign."""
    return not steps.taken_back(match.line) or (steps.failed and not match.sign.quiet)


def _strength(match: Match, steps: Steps) -> float:
    strength = match.sign.strength * (_OF_QUIET if match.sign.quiet else 1)
    return min(strength, _OF_ECHO) if match.line in steps.echoes else strength


def _best_of_each(matches: Iterable[Match], steps: Steps) -> list[tuple[float, Match]]:
    """The strongest and then the first match of every cause, the strongest cause first."""
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
    """Without those that are only a weaker reading of what a better one explains."""
    first: dict[int, float] = {}
    for strength, match in ranked:
        step = steps.step[match.line]
        if step in first and strength < max(_SURE, first[step] - _CLEARLY):
            continue
        if first and strength < _WORTH_NAMING:
            continue
        first.setdefault(step, strength)
        yield strength, match


def _apart(ranked: Iterable[tuple[float, Match]]) -> Iterator[tuple[float, Match]]:
    """No two have the same confidence."""
    limit = 1.0
    for strength, match in ranked:
        confidence = round(min(strength, limit), 2)
        limit = confidence - _APART
        yield confidence, match


def _finding(
    confidence: float,
    match: Match,
    matches: Iterable[Match],
    lines: Sequence[Line],
    file: str,
    facts: Mapping[str, str],
) -> Finding:
    cause = match.cause
    others = [other.line for other in matches if other.cause is cause]
    shown = sorted(dict.fromkeys([match.line, *match.with_lines, *others][:_MOST_EVIDENCE]))
    return Finding(
        cause=cause.name,
        title=cause.title,
        stage=cause.stage,
        confidence=confidence,
        evidence=tuple(_evidence(lines[index], file) for index in shown),
        why=" ".join(cause.why.split()),
        fix=filled(cause, {**facts, **match.groups}),
        links=cause.threads,
        misled_by=cause.misled_by,
    )


def filled(cause: Failure, known: Mapping[str, str]) -> tuple[Fix, ...]:
    """The fixes of a cause; what is not known of their parameters has its default."""
    values = cause.defaults | {name: text for name, text in known.items() if _PASTABLE(text)}
    return tuple(
        Fix(
            text=fix.text.format_map(values),
            commands=tuple(command.format_map(values) for command in fix.commands),
        )
        for fix in cause.fix
    )


def _evidence(line: Line, file: str) -> Evidence:
    return Evidence(line=line.number, text=redact(line.text), file=file)


def _first_error(lines: Sequence[Line], steps: Steps, file: str) -> Iterator[Evidence]:
    """The first error that nothing took back, or the first line that says that something failed."""
    errors = [line for line in steps.errors if not steps.taken_back(line)] or steps.errors
    for index in steps.block((errors or sorted(steps.echoes))[0]):
        yield _evidence(lines[index], file)
