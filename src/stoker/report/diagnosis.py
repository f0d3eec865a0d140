"""A diagnosis as a terminal page, as one line, as a script; a cause as its page in the docs."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.diagnose.values import Diagnosis, Evidence, FoundCause, Status
from stoker.diagnose.verdict import filled
from stoker.knowledge.failures import Failure, Fix
from stoker.outside.terminal import Indented, Listing, whole

_WIDEST = 400  # characters of a line of evidence on a terminal


def page(diagnosis: Diagnosis) -> RenderableType:
    if diagnosis.status is Status.NOTHING_FAILED:
        return Text(f"Nothing failed; lines read: {diagnosis.lines}.")
    parts = [part for finding in diagnosis.findings for part in (*_finding(finding), Text())]
    if diagnosis.status is Status.UNKNOWN:
        parts += _unexplained(diagnosis.unexplained)
    return Group(*parts)


def short(diagnosis: Diagnosis) -> str:
    """Return the best finding in two lines, for the end of a failed run; empty if there is none."""
    for finding in diagnosis.findings[:1]:
        evidence = _where(finding.evidence[0]) + finding.evidence[0].text.strip()[:_WIDEST]
        hint = f"`stoker explain {finding.cause}` tells what to do"
        return f"stoker: {finding.title}; {hint}\n  {evidence}\n"
    return ""


def fix_script(diagnosis: Diagnosis) -> str:
    """Return a shell script for review: the first fix of each finding, others as comments."""
    lines = ["#!/bin/sh", "# From `stoker diagnose`. Read it before you run it."]
    for finding in diagnosis.findings:
        lines += ["", f"# {finding.cause}: {finding.title}"]
        for number, fix in enumerate(finding.fix):
            before = "# " if number else ""
            lines += [f"# {'Or: ' if number else ''}{fix.text}"]
            lines += [before + line for command in fix.commands for line in command.splitlines()]
    return "\n".join(lines) + "\n"


def cause_page(cause: Failure) -> RenderableType:
    """Return the page of a cause, with default values in its fixes."""
    return Group(
        _title(cause.name, f"{cause.title} ({cause.stage})"),
        _said("Why", " ".join(cause.why.split())),
        *_fixes(filled(cause, {})),
        *_more(cause.misled_by, cause.threads),
    )


def cause_list(causes: Iterable[Failure]) -> RenderableType:
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
        "`stoker diagnose LOG` names them, `stoker explain CAUSE` prints one.",
        "",
        "| cause | stage | what it is |",
        "|---|---|---|",
        *(f"| [{one.name}](#{one.name}) | {one.stage} | {one.title} |" for one in causes),
    ]
    for cause in causes:
        lines += ["", *_markdown(cause)]
    return "\n".join(lines) + "\n"


def _finding(finding: FoundCause) -> Iterator[RenderableType]:
    yield _title(finding.cause, f"{finding.title}  ({finding.confidence:.0%} sure)")
    for evidence in finding.evidence:
        yield _indented(_line(evidence))
    yield _said("Why", finding.why)
    yield from _fixes(finding.fix)
    yield from _more(finding.misled_by, finding.links)


def _unexplained(lines: Sequence[Evidence]) -> list[RenderableType]:
    head = "It failed, and the cause is unknown. The first error:"
    tail = "`stoker explain` lists the known causes; docs/how-to/add-a-cause.md adds one."
    if all(evidence.line == 0 and not evidence.file for evidence in lines):
        head = "It failed. Its output, which would tell why, was not kept."
        head += " What was measured:" if lines else ""
        tail = "`stoker diagnose LOG --run N` joins both, where a log is left."
    shown = [_indented(_line(evidence)) for evidence in lines]
    return [Text(head, style="bold"), *shown, Text(tail, style="dim")]


def _title(name: str, text: str) -> Text:
    return Text.assemble((name, "bold red"), "  ", text)


def _line(evidence: Evidence) -> Text:
    return Text.assemble((_where(evidence), "dim"), evidence.text[:_WIDEST])


def _where(evidence: Evidence) -> str:
    if not evidence.line:
        return f"{evidence.file or 'measured'}: "
    return f"{evidence.file}:{evidence.line}: " if evidence.file else f"line {evidence.line}: "


def _fixes(fixes: Iterable[Fix]) -> Iterator[RenderableType]:
    for number, fix in enumerate(fixes):
        yield _said("Or" if number else "Fix", fix.text)
        for command in fix.commands:
            yield whole(" " * 8, ("$ ", "dim"), command)


def _more(misled_by: Iterable[str], links: Iterable[str]) -> Iterator[RenderableType]:
    for text in misled_by:
        yield _said("Not", text)
    for link in links:
        yield _said("See", link)


def _said(word: str, text: str) -> RenderableType:
    return Indented(text, 8, Text(f"  {word}", style="bold"))


def _indented(what: Text) -> Indented:
    return Indented(what, 2)


def _markdown(cause: Failure) -> Iterator[str]:
    yield f"## {cause.name}"
    yield f"{cause.title[0].upper()}{cause.title[1:]}. Stage: {cause.stage}."
    yield ""
    yield " ".join(cause.why.split())
    for fix in filled(cause, {}):
        yield ""
        yield f"{fix.text}:" if fix.commands else f"{fix.text}."
        if fix.commands:
            yield from ("```sh", *fix.commands, "```")
    if cause.misled_by:
        yield from ("", "Do not be misled:", *(f"- {text}" for text in cause.misled_by))
    if cause.threads:
        yield from ("", "Seen in " + ", ".join(f"<{link}>" for link in cause.threads))
