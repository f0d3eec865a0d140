"""A diagnosis as a page for a terminal."""

from collections.abc import Iterable, Iterator

from stoker.diagnose.texts import WIDEST, sureness, suspected, typed, where
from stoker.diagnose.values import Diagnosis, FoundCause, LogEvidence, Status
from stoker.model.visible import visible
from stoker.outside.terminal import Group, Indented, Page, Text, whole

_KINDS = {Status.NOTHING_FAILED: "Nothing failed", Status.EMPTY: "There is no log to read here"}
_AFTER_ERRORS = "It ended well after errors, of which the first is:"
_SILENT = (
    "Nor does the log say that the build succeeded: if it failed, its error is in lines that were "
    "not pasted, or in the log of another tool."
)
# Words before a text; a page is easier to read if each stands alone in its column.
WHY, FIX, OTHERWISE, NOT_IT, MORE, SUSPECTS = "Why", "Fix", "Or", "Note", "Seen", "Age"
NEXT, STEP = "Next", "Step"


def diagnosis_page(diagnosis: Diagnosis) -> Page:
    if diagnosis.trials and diagnosis.status is Status.NOTHING_FAILED:
        return Text("The command passes as it is now, so that there is no cause to prove.")
    if diagnosis.status in _KINDS:
        if diagnosis.unexplained:
            shown = (_indented(_line(one)) for one in diagnosis.unexplained)
            return Group(Text(_AFTER_ERRORS, style="bold"), *shown)
        text = f"{_KINDS[diagnosis.status]}; lines read: {diagnosis.lines}."
        silent = diagnosis.status is Status.NOTHING_FAILED and not diagnosis.succeeded
        return Text(f"{text} {_SILENT}" if silent else text)
    parts = [part for finding in diagnosis.findings for part in (*_finding(finding), Text())]
    if diagnosis.findings and not diagnosis.findings[0].fix:
        parts += [*_known(diagnosis), Text()]
    if diagnosis.status is Status.UNKNOWN:
        parts += _unexplained(diagnosis)
    if diagnosis.trials:
        parts.append(Text(_tried(diagnosis), style="bold"))
    return Group(*parts)


def _tried(diagnosis: Diagnosis) -> str:
    changes = len(diagnosis.trials) - 1
    if diagnosis.is_proven:
        return (
            f"Proven: the command passed with these commands before it; changes tried: {changes}."
        )
    return f"Nothing was proven: the command failed with each change; changes tried: {changes}."


def _finding(finding: FoundCause) -> Iterator[Page]:
    yield title(finding.cause, f"{finding.title}  ({sureness(finding)})")
    for evidence in finding.evidence:
        yield _indented(_line(evidence))
    yield said(WHY, finding.why)
    yield from _advised(finding)
    yield from more(finding.misled_by, finding.links)


def _unexplained(diagnosis: Diagnosis) -> list[Page]:
    lines = diagnosis.unexplained
    head = "It failed, and the cause is unknown. The first error:"
    if diagnosis.step:
        head = f"{visible(diagnosis.step)} failed, and the cause is unknown. The first error:"
    tail = "`stoker diagnose --explain` lists the causes; docs/how-to/add-a-cause.md adds one."
    if all(evidence.line == 0 and not evidence.file for evidence in lines):
        head = "It failed. Its output, which would tell why, was not kept."
        head += " What was measured:" if lines else ""
        tail = "`stoker diagnose LOG --run N` joins both, where a log is left."
    shown = [_indented(_line(evidence)) for evidence in lines]
    aged = [said(SUSPECTS, text)] if (text := suspected(diagnosis)) else []
    return [Text(head, style="bold"), *shown, *aged, Text(tail, style="dim")]


def _known(diagnosis: Diagnosis) -> Iterator[Page]:
    """Yield what is known besides a cause for which there is no complete fix."""
    if diagnosis.step:
        yield said(STEP, f"{visible(diagnosis.step)} failed")
    if text := suspected(diagnosis):
        yield said(SUSPECTS, text)


def _advised(finding: FoundCause) -> Iterator[Page]:
    """Yield the fixes, and where to look: first if there is no fix."""
    first = FIX if finding.fix else NEXT
    for number, fix in enumerate(finding.advice):
        yield said(OTHERWISE if number else first, fix.text)
        for command in typed(fix):
            yield whole(" " * 8, ("$ ", "dim"), command)


def title(name: str, text: str) -> Text:
    return Text.assemble((name, "error"), "  ", text)


def _line(evidence: LogEvidence) -> Text:
    return Text.assemble((where(evidence), "dim"), evidence.text[:WIDEST])


def more(misled_by: Iterable[str], links: Iterable[str]) -> Iterator[Page]:
    for text in misled_by:
        yield said(NOT_IT, text)
    for link in links:
        yield said(MORE, link)


def said(word: str, text: str) -> Page:
    return Indented(text, 8, Text(f"  {word}", style="bold"))


def _indented(what: Text) -> Indented:
    return Indented(what, 2)
