"""A diagnosis as a page for a terminal; a cause as its page in the docs."""

from collections.abc import Iterable, Iterator, Sequence

from stoker.diagnose.answers import unfilled
from stoker.diagnose.texts import WIDEST, sureness, typed, where
from stoker.diagnose.values import Diagnosis, Evidence, FoundCause, Status
from stoker.knowledge.failures import Failure, Fix, command_of
from stoker.outside.terminal import Group, Indented, Listing, Page, Text, whole

_KINDS = {Status.NOTHING_FAILED: "Nothing failed", Status.EMPTY: "The log is empty"}
# Words before a text; a page is easier to read if each stands alone in its column.
_WHY, _FIX, _OTHERWISE, _NOT_IT, _MORE = "Why", "Fix", "Or", "Note", "Seen"


def diagnosis_page(diagnosis: Diagnosis) -> Page:
    if diagnosis.status in _KINDS:
        return Text(f"{_KINDS[diagnosis.status]}; lines read: {diagnosis.lines}.")
    parts = [part for finding in diagnosis.findings for part in (*_finding(finding), Text())]
    if diagnosis.status is Status.UNKNOWN:
        parts += _unexplained(diagnosis.unexplained)
    return Group(*parts)


def _finding(finding: FoundCause) -> Iterator[Page]:
    yield _title(finding.cause, f"{finding.title}  ({sureness(finding)})")
    for evidence in finding.evidence:
        yield _indented(_line(evidence))
    yield _said(_WHY, finding.why)
    for number, fix in enumerate(finding.fix):
        yield _said(_OTHERWISE if number else _FIX, fix.text)
        for command in typed(fix):
            yield whole(" " * 8, ("$ ", "dim"), command)
    yield from _more(finding.misled_by, finding.links)


def _unexplained(lines: Sequence[Evidence]) -> list[Page]:
    head = "It failed, and the cause is unknown. The first error:"
    tail = "`stoker diagnose --explain` lists the causes; docs/how-to/add-a-cause.md adds one."
    if all(evidence.line == 0 and not evidence.file for evidence in lines):
        head = "It failed. Its output, which would tell why, was not kept."
        head += " What was measured:" if lines else ""
        tail = "`stoker diagnose LOG --run N` joins both, where a log is left."
    shown = [_indented(_line(evidence)) for evidence in lines]
    return [Text(head, style="bold"), *shown, Text(tail, style="dim")]


def _title(name: str, text: str) -> Text:
    return Text.assemble((name, "error"), "  ", text)


def _line(evidence: Evidence) -> Text:
    return Text.assemble((where(evidence), "dim"), evidence.text[:WIDEST])


def _more(misled_by: Iterable[str], links: Iterable[str]) -> Iterator[Page]:
    for text in misled_by:
        yield _said(_NOT_IT, text)
    for link in links:
        yield _said(_MORE, link)


def _said(word: str, text: str) -> Page:
    return Indented(text, 8, Text(f"  {word}", style="bold"))


def _indented(what: Text) -> Indented:
    return Indented(what, 2)


# -- causes ----------------------------------------------------------------------------------------


def cause_page(cause: Failure) -> Page:
    """Return the page of a cause; placeholders are shown by their names."""
    fixes = (
        part
        for number, fix in enumerate(cause.fix)
        for part in (
            _said(_OTHERWISE if number else _FIX, unfilled(fix.text)),
            *(whole(" " * 8, ("$ ", "dim"), command) for command in _templates(fix)),
        )
    )
    return Group(
        _title(cause.name, f"{cause.title} ({cause.stage})"),
        _said(_WHY, " ".join(cause.why.split())),
        *fixes,
        *_more(cause.misled_by, cause.threads),
    )


def _templates(fix: Fix) -> list[str]:
    commands = (*fix.commands, fix.build) if fix.build else fix.commands
    return [unfilled(command_of(command)) for command in commands]


def cause_list(causes: Iterable[Failure]) -> Page:
    table = Listing("", "", "")
    for cause in causes:
        table.add(Text(cause.name, style="bold"), Text(cause.stage, style="dim"), cause.title)
    return table


def reference(causes: Sequence[Failure]) -> str:
    """Return the text of docs/reference/causes.md."""
    lines = [
        "# Causes of failed builds",
        "",
        f"{len(causes)} causes, generated from `src/stoker/knowledge/failures/`;",
        "`stoker diagnose LOG` names them, `stoker diagnose --explain CAUSE` prints one. Words in",
        "angle brackets are filled in from the log, the run and the machine; a fix that lacks one",
        "of them is not offered.",
        "",
        "| cause | stage | what it is |",
        "|---|---|---|",
        *(f"| [{one.name}](#{one.name}) | {one.stage} | {one.title} |" for one in causes),
    ]
    for cause in causes:
        lines += ["", *_markdown(cause)]
    return "\n".join(lines) + "\n"


def _markdown(cause: Failure) -> Iterator[str]:
    yield f"## {cause.name}"
    yield f"{cause.title[0].upper()}{cause.title[1:]}. Stage: {cause.stage}."
    yield ""
    yield " ".join(cause.why.split())
    for fix in cause.fix:
        commands = _templates(fix)
        yield ""
        yield f"{unfilled(fix.text)}{':' if commands else '.'}"
        if commands:
            yield from ("```sh", *commands, "```")
    if cause.misled_by:
        yield from ("", "Do not be misled:", *(f"- {text}" for text in cause.misled_by))
    if cause.threads:
        yield from ("", "Seen in " + ", ".join(f"<{link}>" for link in cause.threads))
