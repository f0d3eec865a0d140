"""`stoker diagnose`: find a log, a run or both, and diagnose them."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from stoker.diagnose.sieve import read_log
from stoker.diagnose.signs import parameters
from stoker.diagnose.values import Diagnosis, Evidence, FoundCause, Status
from stoker.diagnose.verdict import (
    Measured,
    diagnose,
    filled,
    first_error,
    merged,
    of_attempts,
    of_summary,
    with_measured,
)
from stoker.govern.history import History
from stoker.govern.running import OutputFile, opened
from stoker.knowledge.failures import Failure, Fix
from stoker.machine.system import read_machine
from stoker.machine.tools import read_toolbox
from stoker.model.build import StageEnd, StageResult
from stoker.model.errors import StorageError, UsageError
from stoker.model.runs import Run, RunSummary
from stoker.model.secrets import redact
from stoker.model.value import Value
from stoker.outside.files import read_json
from stoker.outside.terminal import Indented, Listing, whole
from stoker.plan.records import RECORD

_LAST_LINES = 15  # of a log without an error
_HINTS = ("give a log file, - for standard input, a run folder, or a run of `stoker history`",)


class _Record(Value, frozen=True, kw_only=True):
    """What matters here of record.json in a run folder."""

    stages: tuple[StageResult, ...] = ()
    summary: RunSummary | None = None
    error: str | None = None


def diagnose_what(what: str, run: str | None = None) -> Diagnosis:
    """Diagnose a file, ``-``, a run folder or a run's number; ``run`` is the run that
    wrote a file.
    """
    if what == "-":
        return _of_stream(sys.stdin.buffer, run)
    path = Path(what)
    try:
        if path.is_dir():
            return diagnose_folder(path)
        if not path.exists() and what.isdecimal():
            return _of_run(_find_run(what))
        with path.open("rb") as stream:
            return _of_stream(stream, run, file=what)
    except FileNotFoundError as error:
        raise UsageError(f"there is no log or run '{what}'", hints=_HINTS) from error
    except OSError as error:
        raise StorageError(f"cannot read {what}: {error.strerror}") from error


def diagnose_folder(folder: Path) -> Diagnosis:
    """Diagnose a run of `stoker build`: the logs of its failed stages, or all logs if none is
    named.
    """
    record = _record(folder)
    facts = _facts("stoker build")
    logs = list(_failed_logs(folder, record))
    if not logs and not record.stages:
        raise UsageError(f"no *.log in {folder}", hints=_HINTS)
    diagnosis = merged([_of_file(log, facts) for log in logs])
    diagnosis = with_measured(diagnosis, of_summary(record.summary), facts)
    if record.error and not (diagnosis.findings or diagnosis.unexplained):
        # The build failed between its stages.
        error = Evidence(line=0, text=redact(record.error), file=RECORD)
        return replace(diagnosis, status=Status.UNKNOWN, unexplained=(error,))
    return diagnosis


def diagnose_outputs(outputs: tuple[OutputFile, ...], summary: RunSummary | None) -> Diagnosis:
    """Diagnose a command of `stoker run` from its output and its measurements."""
    found = [diagnose(read_log(stream)) for stream in opened(outputs)]
    return with_measured(merged(found), of_summary(summary), {})


def excerpt(log: Path) -> str:
    """Return the first complete error of a stage's log, or its last lines if it has none."""
    try:
        with log.open("rb") as stream:
            read = read_log(stream)
    except OSError:
        return ""
    lines = first_error(read) or read.lines[-_LAST_LINES:]
    return "\n".join(redact(line.text) for line in lines)


def _of_stream(stream: BinaryIO, run: str | None, file: str = "") -> Diagnosis:
    if run is None:
        return diagnose(read_log(stream), file=file)
    found = _find_run(run)
    facts = _facts(found.command)
    diagnosis = diagnose(read_log(stream), file=file, facts=facts)
    return with_measured(diagnosis, _measured(found), facts)


def _of_run(run: Run) -> Diagnosis:
    return with_measured(merged([]), _measured(run), _facts(run.command))


def _of_file(log: Path, facts: Mapping[str, str]) -> Diagnosis:
    with log.open("rb") as stream:
        return diagnose(read_log(stream), file=log.name, facts=facts)


def _failed_logs(folder: Path, record: _Record) -> Iterator[Path]:
    if not record.stages:
        yield from sorted(folder.glob("*.log"))
    for stage in record.stages:
        if stage.end is StageEnd.FAILED and (folder / Path(stage.log).name).exists():
            yield folder / Path(stage.log).name


def _record(folder: Path) -> _Record:
    record = read_json(folder / RECORD, _Record)
    return record or _Record(summary=read_json(folder / "summary.json", RunSummary))


def _find_run(number: str) -> Run:
    with History() as history:
        return history.find(number)


def _measured(run: Run) -> Measured:
    with History() as history:
        return of_attempts(history.attempts(run.id), run.summary)


def _facts(command: str) -> Mapping[str, str]:
    return parameters(read_machine(), read_toolbox(os.environ), command)


# -- diagnosis -------------------------------------------------------------------------------------
# A diagnosis as a terminal page, as one line, as a script; a cause as its page in the docs.


_WIDEST = 400  # characters of a line of evidence on a terminal


def diagnosis_page(diagnosis: Diagnosis) -> RenderableType:
    if diagnosis.status is Status.NOTHING_FAILED:
        return Text(f"Nothing failed; lines read: {diagnosis.lines}.")
    parts = [part for finding in diagnosis.findings for part in (*_finding(finding), Text())]
    if diagnosis.status is Status.UNKNOWN:
        parts += _unexplained(diagnosis.unexplained)
    return Group(*parts)


def short_diagnosis(diagnosis: Diagnosis) -> str:
    """Return the best finding in two lines, for the end of a failed run; empty if there is none."""
    for finding in diagnosis.findings[:1]:
        evidence = _where(finding.evidence[0]) + finding.evidence[0].text.strip()[:_WIDEST]
        hint = f"`stoker diagnose --explain {finding.cause}` tells what to do"
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
        "`stoker diagnose LOG` names them, `stoker diagnose --explain CAUSE` prints one.",
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
    tail = "`stoker diagnose --explain` lists the causes; docs/how-to/add-a-cause.md adds one."
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
