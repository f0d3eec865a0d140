"""A diagnosis as plain text: a few lines at the end of a failed run, and a script that fixes it."""

from collections.abc import Iterator

from stoker.diagnose.values import Diagnosis, FilledFix, FoundCause, LogEvidence
from stoker.knowledge.failures import Shell
from stoker.model.shell import NOTHING, Template, fill, outside, recorded, with_arguments
from stoker.model.visible import visible

WIDEST = 400  # characters of a line of evidence
_SURE = 0.8  # from here on, what an answer says is the share of such answers that are right
_LIKELY = 0.55
_SHORT_EVIDENCE = 4  # lines of evidence at the end of a failed run


def short_diagnosis(diagnosis: Diagnosis) -> str:
    """Return the causes with evidence and first fix, for the end of a failed run; empty if there
    is none.
    """
    lines: list[str] = []
    for finding in diagnosis.findings:
        lines.append(f"stoker: {finding.title} ({finding.cause}, {sureness(finding)})")
        lines += [
            f"  {where(one)}{one.text[:WIDEST]}" for one in finding.evidence[:_SHORT_EVIDENCE]
        ]
        word = "Fix" if finding.fix else "Next"
        for fix in finding.advice[:1]:
            lines.append(f"  {word}: {fix.text}")
            lines += [f"    $ {command}" for command in typed(fix)]
    if not lines and diagnosis.unexplained:
        what = f"{visible(diagnosis.step)} failed, and " if diagnosis.step else ""
        lines.append(f"stoker: {what}the cause is unknown; the first error:")
        lines += [f"  {where(one)}{one.text[:WIDEST]}" for one in diagnosis.unexplained]
        lines += [f"  Age: {text}"] if (text := suspected(diagnosis)) else []
    if lines:
        lines.append("  For an issue: stoker diagnose --evidence")
    return "".join(f"{line}\n" for line in lines)


def suspected(diagnosis: Diagnosis) -> str:
    """Return what may be too new for the source, for a diagnosis without a cause; empty if nothing
    is.
    """
    if not diagnosis.suspects:
        return ""
    listed = ", ".join(
        f"{one.product} {one.version} ({one.released})" for one in diagnosis.suspects
    )
    if diagnosis.source:
        return f"newer than the source, which is of {diagnosis.source}: {listed}"
    return f"the newest that the log shows: {listed}"


def typed(fix: FilledFix) -> tuple[str, ...]:
    """Return the commands of a fix as a user would type them."""
    return (*fix.commands, fix.build) if fix.build else fix.commands


def sureness(finding: FoundCause) -> str:
    """Return how likely a cause is: a number only where many answers were compared with it."""
    if finding.confidence >= 1:
        return "proven"
    if finding.confidence >= _SURE:
        return f"{finding.confidence:.0%} sure"
    return "likely" if finding.confidence >= _LIKELY else "a guess"


def where(evidence: LogEvidence) -> str:
    """Return the place of a line, to be written before it."""
    if not evidence.line:
        return f"{evidence.file or 'measured'}: "
    return f"{evidence.file}:{evidence.line}: " if evidence.file else f"line {evidence.line}: "


def fix_script(diagnosis: Diagnosis) -> str:
    """Return a script for review: the first fix of each finding, the others as comments, and then
    the build. It runs under dash and stops at the first error.
    """
    lines = [
        "#!/bin/sh",
        "# From `stoker diagnose`. Read it before you run it: sh fix.sh [BUILD COMMAND]",
        "set -e",
    ]
    if diagnosis.run.folder:
        folder = fill(Template("cd {folder}"), {"folder": outside(diagnosis.run.folder)})
        lines.append(folder or "exit 1  # the name of the folder cannot be written here")
    for finding in diagnosis.findings:
        lines += ["", f"# {finding.cause}: {_comment(finding.title)}"]
        for number, fix in enumerate(finding.advice):
            is_run = number == 0 and fix in finding.fix and fix.shell is Shell.SH
            lines += _scripted(fix, comment=not is_run)
    return "\n".join([*lines, "", *_rebuilt(diagnosis)]) + "\n"


def _scripted(fix: FilledFix, *, comment: bool) -> Iterator[str]:
    yield f"# {'Or: ' if comment else ''}{_comment(fix.text)}"
    yield from (f"#   {line}" if comment else line for line in fix.commands)
    if comment and fix.build:
        yield f"#   {fix.build}"


def _comment(text: str) -> str:
    return visible(" ".join(text.split()))


def _rebuilt(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the lines that build: the command of the user, else the one that failed."""
    failed = recorded(diagnosis.run.command) or NOTHING
    builds = [fix.build for finding in diagnosis.findings for fix in finding.fix[:1] if fix.build]
    special = [build for build in builds if build != failed]
    known = (special or builds or [failed])[0]
    yield "# The build."
    yield 'if [ "$#" -gt 0 ]; then'
    yield f"    {with_arguments(known, failed)}"
    if known:
        yield from ("else", f"    {known}")
    yield "fi"
