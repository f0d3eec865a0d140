"""What a failed run leaves that no log has, small enough to paste into an issue.

The command, the memory of its steps against the limit, what was killed, what else ran, the tools
with their versions, the first error, and what was tried. All of it is without secrets.
"""

from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from stoker.diagnose.ages import versions_of
from stoker.diagnose.kept import KeptRun, earlier_runs, kept_run, last_failed
from stoker.diagnose.lines import Texts
from stoker.diagnose.run_diagnoses import diagnose_kept
from stoker.diagnose.sieve import Log, read_log
from stoker.diagnose.steps import failed_step
from stoker.diagnose.translated import in_english
from stoker.diagnose.values import Diagnosis, FailedRun, what_to_give
from stoker.diagnose.verdict import diagnose, first_error
from stoker.govern.history.store import History
from stoker.knowledge.failures import products
from stoker.model.errors import StokerError
from stoker.model.runs import Attempt, Outcome
from stoker.model.secrets import redact
from stoker.model.value import Value, indented_json, size

MOST_BYTES = 4096
_MOST_LINES = 8
_LONGEST = 240  # characters of a line
_MOST_STEPS = 4
_VERSION_LINE = 40  # bytes of what `--json` adds


class StepEvidence(Value, frozen=True, kw_only=True):
    """A step that failed, or was killed, with the most memory that it used."""

    step: str
    end: Outcome
    peak_bytes: int
    wall_s: float


class Evidence(Value, frozen=True, kw_only=True):
    """What is known of a failure. What was not measured is 0, or empty."""

    run: int = 0  # its number in the history
    command: str = ""
    folder: str = ""
    status: int = 0  # of the command
    wall_s: float = 0.0
    peak_bytes: int = 0  # the most that the steps used at once
    limit_bytes: int = 0
    kernel_kills: int = 0
    pauses: int = 0
    repeated_steps: int = 0
    other_cpu_s: float = 0.0  # of programs outside of the run
    steps: tuple[StepEvidence, ...] = ()
    failed_step: str = ""
    error: tuple[str, ...] = ()  # the first one
    tools: dict[str, str] = {}  # versions that the log shows, or that installed tools tell
    cause: str = ""  # empty if it is unknown
    confidence: float = 0.0
    tried: tuple[str, ...] = ()  # fixes that were offered for the same command before


def evidence(what: str | None) -> Evidence:
    """Return the evidence of the last run that failed, of one with a number, or of a log."""
    if what is not None and not what.isdecimal():
        return _of_log(Path(what))
    kept = kept_run(int(what)) if what else last_failed()
    if kept is None:
        raise what_to_give("no run that failed is kept")
    content = kept.log.read_bytes() if kept.log.exists() else b""
    known = _of_text(read_log(BytesIO(content)), diagnose_kept(kept), kept.failed)
    return _bounded(_with_measured(known, kept))


def _of_log(path: Path) -> Evidence:
    try:
        with path.open("rb") as stream:
            log = read_log(stream)
    except OSError as error:
        raise what_to_give(f"there is no log or run '{path}'") from error
    return _bounded(_of_text(log, diagnose(log)))


def _of_text(log: Log, diagnosis: Diagnosis, failed: FailedRun | None = None) -> Evidence:
    texts = Texts([line.text for line in in_english(log.lines)])
    version = versions_of(texts, failed)  # of a run here, installed tools are asked
    shown = {product.name: version(product.name) for product in products()}
    best = next(iter(diagnosis.findings), None)
    return Evidence(
        failed_step=redact(failed_step(texts)),
        error=tuple(redact(one.text)[:_LONGEST] for one in first_error(log)[:_MOST_LINES]),
        tools={name: number for name, number in shown.items() if number},
        cause=best.cause if best else "",
        confidence=best.confidence if best else 0.0,
    )


def _with_measured(known: Evidence, kept: KeptRun) -> Evidence:
    known = replace(
        known,
        run=kept.run,
        command=redact(kept.failed.command)[: 2 * _LONGEST],
        folder=kept.failed.folder,
        steps=tuple(_steps(kept)),
        tried=tuple(dict.fromkeys(one.fix for one in earlier_runs(kept) if one.fix)),
    )
    summary = kept.summary
    if summary is None:
        return known
    return replace(
        known,
        status=summary.status,
        wall_s=round(summary.wall_s, 1),
        peak_bytes=summary.peak_bytes,
        limit_bytes=summary.limit_bytes,
        kernel_kills=summary.oom_kills,
        pauses=summary.pauses,
        repeated_steps=summary.retries,
        other_cpu_s=round(summary.other_cpu_s or 0.0, 1),
    )


def _steps(kept: KeptRun) -> Iterator[StepEvidence]:
    """Yield the steps that did not end well, those that used most memory first."""
    attempts: tuple[Attempt, ...] = ()
    with suppress(StokerError), History() as history:  # it may have been cleaned
        attempts = tuple(history.attempts(history.find(str(kept.run)).id))
    ended = [one for one in attempts if one.outcome is not Outcome.DONE]
    for one in sorted(ended, key=lambda one: -one.record.peak_bytes)[:_MOST_STEPS]:
        name = one.record.step.source or one.record.step.output
        yield StepEvidence(
            step=redact(name)[:_LONGEST],
            end=one.outcome,
            peak_bytes=one.record.peak_bytes,
            wall_s=round(one.record.wall_s, 1),
        )


def _bounded(found: Evidence) -> Evidence:
    """Return evidence that is small enough, without the last lines of its error if need be."""
    while found.error and len(indented_json(found)) > MOST_BYTES - _VERSION_LINE:
        found = replace(found, error=found.error[:-1])
    return found


def evidence_text(found: Evidence) -> str:
    """Return the evidence as lines that people read."""
    memory = f"{size(found.peak_bytes)} of {size(found.limit_bytes)}" if found.limit_bytes else ""
    counts = (
        (found.kernel_kills, "killed by the kernel"),
        (found.pauses, "pauses"),
        (found.repeated_steps, "steps repeated"),
    )
    rows = (
        ("run", str(found.run or "")),
        ("command", found.command),
        ("folder", found.folder),
        ("ended", f"status {found.status} after {found.wall_s:.0f} s" if found.command else ""),
        ("memory", memory),
        ("", ", ".join(f"{count} {what}" for count, what in counts if count)),
        ("others", f"{found.other_cpu_s:.0f} s of CPU time" if found.other_cpu_s else ""),
        *(("step", f"{one.step} {one.end}, {size(one.peak_bytes)}") for one in found.steps),
        ("failed", found.failed_step),
        *(("error", line) for line in found.error),
        ("tools", ", ".join(f"{name} {number}" for name, number in found.tools.items())),
        ("cause", f"{found.cause} ({found.confidence:.0%})" if found.cause else "unknown"),
        *(("tried", text) for text in found.tried),
    )
    return "".join(f"{name:8} {text}\n" for name, text in rows if text)
