"""`stoker run`: run any build command under the governor."""

import io
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.ci import CiReport
from stoker.cli.request import run_options, same_command, setting_options, with_settings
from stoker.model.errors import ExitStatus, StorageError
from stoker.outside.streams import ci_system
from stoker.settings.declared import SettingGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.diagnose.sieve import Sieve
    from stoker.diagnose.values import Diagnosis
    from stoker.govern.running import Finished
    from stoker.model.events import AnyEvent
    from stoker.model.runs import RunSummary


@click.command(context_settings={"allow_interspersed_args": False})
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
@click.option(
    "--respect-jobs", is_flag=True, help="Leave -jN of make and ninja as it is, and use N CPUs."
)
@click.option("--summary", "summary_file", metavar="FILE", help="Write the summary as JSON.")
@click.option("--explain", is_flag=True, help="Say why steps waited, were paused or were killed.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
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

    The exit status is that of the command, and its output is not changed. With --stop-after it is
    75 if steps were not started, or were stopped, because the time was over.
    """
    from msgspec.structs import replace

    from stoker.accelerate.cached import run_cache
    from stoker.diagnose.sieve import Sieve
    from stoker.govern.explanation import RunExplanation, SerialBuild, with_decisions_logged
    from stoker.govern.progress import Progress, make_view, summary_text, unseen_text
    from stoker.govern.running import jobs_of, kept_outputs, opened, run

    settings = with_settings(arguments)
    if respect_jobs and (jobs := jobs_of(command)):
        settings["cpus"] = min(settings["cpus"] or jobs, jobs)
    progress = settings["progress"]
    outputs, output = kept_outputs(), Sieve()
    # Python has no sys.stderr if the descriptor is closed.
    view = make_view(Progress(progress), sys.stderr or io.StringIO())
    explanation, serial = RunExplanation(), SerialBuild()

    def show(event: "AnyEvent") -> None:
        view.show(event)
        explanation.show(event)
        serial.show(event)

    try:
        options = replace(run_options(settings), respect_jobs=respect_jobs)
        finished = run(
            command, options, run_cache(options.chain), with_decisions_logged(show), output.feed
        )
    finally:
        view.close()
    if finished.summary and progress not in ("quiet", "json"):
        view.write(summary_text(finished.summary) + serial.text(finished.summary.cpus))
    if explain:
        view.write(explanation.text())
    view.write(_unfinished(finished))
    if finished.unseen_cpu_seconds:
        view.write(unseen_text(finished.unseen_cpu_seconds))
    if summary_file:
        view.write(_write(Path(summary_file), finished.summary))
    quiet, in_ci = progress in ("quiet", "json"), ci_system(os.environ)
    diagnosis = None
    if finished.status and not finished.interrupted and not finished.unfinished:
        for stream in opened(outputs):
            output.feed_all(stream)
        diagnosis = _diagnosis(output, command, finished.summary, view.write, quiet=quiet)
    if in_ci:
        CiReport(view.write).ran(shlex.join(command), finished, diagnosis)
    return finished.status


def _unfinished(finished: "Finished") -> str:
    """Return why the command stopped before its end, and what continues it."""
    if not finished.unfinished:
        return ""
    continues = (
        f"; `{same_command()}` continues" if finished.status == ExitStatus.UNFINISHED else ""
    )
    return f"stoker: {finished.unfinished}{continues}\n"


def _diagnosis(
    output: "Sieve",
    command: tuple[str, ...],
    summary: "RunSummary | None",
    write: "Callable[[str], None]",
    *,
    quiet: bool,
) -> "Diagnosis | None":
    """Keep the output of a command that failed, and write and return its diagnosis."""
    from stoker.diagnose.kept import keep_run
    from stoker.diagnose.texts import short_diagnosis
    from stoker.diagnose.values import FailedRun
    from stoker.outside.folders import current_folder

    failed = FailedRun(command=shlex.join(command), folder=str(current_folder()))
    try:
        diagnosis = keep_run(output.content(), failed, summary)
    except StorageError as error:
        write(f"stoker: the output was not kept: {error}\n")
        return None
    if not quiet:
        write(short_diagnosis(diagnosis))
    return diagnosis


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
