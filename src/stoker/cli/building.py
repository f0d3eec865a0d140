"""What `stoker build` and `stoker develop` share: from options to a build and its output."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stoker.cli.build_options import Part, taken
from stoker.cli.chosen import progress_view, read_request, run_options, same_command, with_settings
from stoker.cli.ci import CiReport
from stoker.model.errors import UnfinishedError, UsageError
from stoker.model.value import byte_count

if TYPE_CHECKING:
    from stoker.builds.building import Built, Watcher
    from stoker.builds.jobs.job import FarmPart
    from stoker.builds.stages import StageError
    from stoker.diagnose.values import Diagnosis
    from stoker.govern.client.progress import View
    from stoker.model.build import BuildRequest


def build_and_print(options: dict[str, Any], *, editable: bool = False) -> None:
    """Build, show progress on stderr, and print the outputs, or with --json the record.

    The record of a build that failed or was interrupted is printed, too.
    """
    as_json = options["as_json"]
    built = build_with(options, editable=editable)
    for path in () if as_json else built.record.outputs:
        click.echo(path)


def build_with(options: dict[str, Any], *, editable: bool = False) -> "Built":
    """Build, and show progress on stderr; return the build."""
    from stoker.builds.building import build
    from stoker.builds.repeating import read_recorded
    from stoker.builds.stages import StageError
    from stoker.govern.client.summary import summary_text
    from stoker.model.build import BuildRequest
    from stoker.report.ci import end_line

    (record,), part = taken(options, Part.RECORD).values(), _part(options)
    asked = read_request(options)
    options = with_settings(options, recorded=record is not None)
    recorded = read_recorded(Path(record)) if record else None
    request = recorded.request if recorded else BuildRequest(source=".")
    view = progress_view(options)
    ci = CiReport(view.write_own, junit=options.get("junit"))
    ended: list[Built] = []
    diagnosis: Diagnosis | None = None
    try:
        built = build(
            asked,
            with_options(request, options, editable=editable),
            run_options(options),
            _watcher(view, options, ci, ended),
            recorded=recorded,
            part=part,
        )
    except StageError as error:
        diagnosis = diagnose(error, view)
        raise
    except UnfinishedError as error:
        error.hints = (*error.hints, f"`{same_command()}` continues")
        raise
    finally:
        view.close()
        for each in ended:
            ci.built(each, diagnosis)
    if built.record.summary and built.record.summary.steps:
        view.write(summary_text(built.record.summary))
    view.write(end_line(built.record, built.folder))
    return built


def _part(options: dict[str, Any]) -> "FarmPart | None":
    """Return the part of this job in a build with a checkpoint, and take its options away."""
    where, size, shard, finish = taken(options, Part.JOB).values()
    if not where:
        if shard or finish:
            raise UsageError(
                "--shard and --finish need --checkpoint", hints=["--checkpoint FOLDER"]
            )
        return None
    if shard and finish:
        raise UsageError("a shard does not finish the build", hints=["leave out --shard"])
    if not (most := byte_count(size)):
        raise UsageError(f"--checkpoint-size {size}: not a size", hints=["for example 20G"])
    from stoker.builds.jobs.checkpoint import Checkpoint
    from stoker.builds.jobs.job import FarmPart
    from stoker.builds.jobs.shards import parse_shard

    checkpoint = Checkpoint(where, most_bytes=most)
    return FarmPart(
        checkpoint=checkpoint, shard=parse_shard(shard) if shard else None, finish=finish
    )


def with_options(
    request: "BuildRequest", options: dict[str, Any], *, editable: bool
) -> "BuildRequest":
    """Return the request with the options that were given; they replace those of a record."""
    # The results do not go to the folder of a recorded build.
    started = msgspec.structs.replace(request, source=request.source or ".", out="dist")
    return started.given({**options, "editable": editable})


def _watcher(
    view: "View", options: dict[str, Any], ci: CiReport, ended: "list[Built]"
) -> "Watcher":
    """``ended`` receives the build when it has ended in any way."""
    from stoker.builds.building import Watcher
    from stoker.govern.client.explanation import with_decisions_logged
    from stoker.outside.terminal import print_json

    def echo(chunk: bytes) -> None:
        view.write_own(chunk.decode(errors="replace"))

    def end(built: "Built") -> None:
        ended.append(built)
        if options["as_json"]:
            print_json(built)
        if options.get("report"):
            _write_report(built, view)

    return Watcher(
        show=with_decisions_logged(view.show),
        tell=ci.stage,
        say=lambda text: view.write(f"stoker: {text}\n"),
        end=end,
        echo=echo if options["verbose"] else None,
        shell_on_failure=options["shell_on_failure"],
    )


def _write_report(built: "Built", view: "View") -> None:
    """A build in which nothing was compiled has no run to report."""
    from stoker.model.errors import StokerError
    from stoker.outside.files import write_whole
    from stoker.report.html_page import report_page
    from stoker.report.reporting import make_report

    page = Path(built.folder) / "report.html"
    try:
        report = make_report(built.folder, say=lambda _: None)
        write_whole(page, report_page(report), private=True)
    except StokerError as error:
        view.write(f"stoker: no report was written: {error}\n")
    else:
        view.write(f"stoker: report in {page}\n")


def diagnose(error: "StageError", view: "View") -> "Diagnosis | None":
    """Print the likely cause before the error itself, and return the diagnosis."""
    from stoker.diagnose.run_diagnoses import keep_build
    from stoker.diagnose.texts import short_diagnosis
    from stoker.diagnose.values import FailedRun
    from stoker.outside.folders import current_folder

    if not error.of_command:
        return None
    command = shlex.join(["stoker", *sys.argv[1:]])
    failed = FailedRun(command=command, folder=str(current_folder()))
    diagnosis = keep_build(error.log.parent, failed)
    view.write(short_diagnosis(diagnosis))
    return diagnosis
