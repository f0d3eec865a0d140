"""`stoker run`: run any build command under the governor."""

import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.ci import CiReport
from stoker.cli.request import run_options, setting_options, with_settings
from stoker.model.errors import StorageError
from stoker.outside.streams import ci_system
from stoker.settings.declared import Group

if TYPE_CHECKING:
    from stoker.diagnose.values import Diagnosis
    from stoker.govern.running import OutputFile
    from stoker.model.events import AnyEvent
    from stoker.model.runs import RunSummary


@click.command(context_settings={"allow_interspersed_args": False})
@setting_options(Group.GOVERN)
@setting_options(Group.CHAIN)
@click.option(
    "--respect-jobs", is_flag=True, help="Leave -jN of make and ninja as it is, and use N CPUs."
)
@click.option("--summary", "summary_file", metavar="FILE", help="Write the summary as JSON.")
@click.option("--explain", is_flag=True, help="Say why steps waited, were paused or were killed.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    command: tuple[str, ...],
    respect_jobs: bool,
    summary_file: str | None,
    explain: bool,
    **arguments: Any,
) -> int:
    """Run a build command under the governor, which runs as many compilers as fit in memory.

    \b
    stoker run -- ninja -C build
    stoker run -- pip install flash-attn --no-build-isolation
    stoker run --memory 8G -- make -j64
    stoker run --explain -- ninja -C build

    The exit status is that of the command, and its output is not changed.
    """
    from msgspec.structs import replace

    from stoker.accelerate.cached import run_cache
    from stoker.govern.explanation import RunExplanation, SerialBuild, with_decisions_logged
    from stoker.govern.progress import Progress, make_view, summary_text, unseen_text
    from stoker.govern.running import jobs_of, kept_outputs, run

    settings = with_settings(arguments)
    if respect_jobs and (jobs := jobs_of(command)):
        settings["cpus"] = min(settings["cpus"] or jobs, jobs)
    progress = settings["progress"]
    outputs = kept_outputs()
    # Python has no sys.stderr if the descriptor is closed.
    view = make_view(Progress(progress), sys.stderr or io.StringIO())
    explanation, serial = RunExplanation(), SerialBuild()

    def show(event: "AnyEvent") -> None:
        view.show(event)
        explanation.show(event)
        serial.show(event)

    try:
        options = replace(run_options(settings), respect_jobs=respect_jobs)
        finished = run(command, options, run_cache(options.chain), with_decisions_logged(show))
    finally:
        view.close()
    if finished.summary and progress not in ("quiet", "json"):
        view.write(summary_text(finished.summary) + serial.text(finished.summary.cpus))
    if explain:
        view.write(explanation.text())
    if finished.unseen_cpu_seconds:
        view.write(unseen_text(finished.unseen_cpu_seconds))
    if summary_file:
        view.write(_write(Path(summary_file), finished.summary))
    quiet, in_ci = progress in ("quiet", "json"), ci_system(os.environ)
    diagnosis = None
    if finished.status and not finished.interrupted and (in_ci or not quiet):
        diagnosis = _diagnosis(outputs, finished.summary)
    if diagnosis and not quiet:
        view.write(_cause(diagnosis, outputs, finished.summary))
    if in_ci:
        CiReport(view.write).ran(shlex.join(command), finished, diagnosis)
    return finished.status


def _diagnosis(outputs: "tuple[OutputFile, ...]", summary: "RunSummary | None") -> "Diagnosis":
    from stoker.diagnose.diagnosing import diagnose_outputs

    return diagnose_outputs(outputs, summary)


def _cause(
    diagnosis: "Diagnosis", outputs: "tuple[OutputFile, ...]", summary: "RunSummary | None"
) -> str:
    """Return the likely cause of a failed command, from its output and its steps."""
    from stoker.diagnose.diagnosing import short_diagnosis

    found = short_diagnosis(diagnosis)
    if not found and not outputs and summary and summary.steps:
        return "stoker: write the output to a file, and `stoker diagnose FILE` names the cause\n"
    return found


def _write(path: Path, summary: "RunSummary | None") -> str:
    """Write the summary; return a message if that failed. The exit status stays the command's."""
    import msgspec

    from stoker.outside.files import write_named

    if summary is None:
        return f"stoker: no summary in {path}: there is no governor\n"
    try:
        write_named(path, msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    except StorageError as error:
        return f"stoker: {error}\n"
    return ""
