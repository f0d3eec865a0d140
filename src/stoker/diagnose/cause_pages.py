"""A cause as a page for a terminal, and all of them as the reference in the docs."""

from collections.abc import Iterable, Iterator, Sequence

from stoker.diagnose.answers import unfilled
from stoker.diagnose.pages import FIX, OTHERWISE, WHY, more, said, title
from stoker.knowledge.failures import Failure, Fix, without_mark
from stoker.outside.terminal import Group, Listing, Page, Text, whole


def cause_page(cause: Failure) -> Page:
    """Return the page of a cause; placeholders are shown by their names."""
    fixes = (
        part
        for number, fix in enumerate(cause.fix)
        for part in (
            said(OTHERWISE if number else FIX, unfilled(fix.text)),
            *(whole(" " * 8, ("$ ", "dim"), command) for command in _templates(fix)),
        )
    )
    return Group(
        title(cause.name, f"{cause.title} ({cause.stage})"),
        said(WHY, " ".join(cause.why.split())),
        *fixes,
        *more(cause.misled_by, cause.threads),
    )


def _templates(fix: Fix) -> list[str]:
    commands = (*fix.commands, fix.build) if fix.build else fix.commands
    return [unfilled(without_mark(command)) for command in commands]


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
