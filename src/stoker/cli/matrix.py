"""`stoker matrix`: every variant of stoker.toml across Python versions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.chosen import progress_view, read_request, run_options, with_settings
from stoker.cli.request import setting_options
from stoker.settings.declared import OPTIONS, SettingGroup

if TYPE_CHECKING:
    from stoker.builds.matrices.matrix import MatrixJob, MatrixResult
    from stoker.builds.matrices.running import MatrixWatcher
    from stoker.govern.client.progress import View
    from stoker.model.errors import StokerError


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--only", metavar="PATTERN", default="", help="Names that contain or match PATTERN.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="X.Y,...",
    help="Python versions, e.g. 3.11,3.12. Default: those of the file, else the one here.",
)
@setting_options(SettingGroup.MATRIX)
@setting_options(SettingGroup.BUILD)
@setting_options(SettingGroup.PLAN, without=("variant", "python"))
@click.option("--dry-run", is_flag=True, help="Only list what would be made, and the estimate.")
@click.option("--verbose", is_flag=True, help="Show the full output of all tools.")
@click.option("--json", "as_json", is_flag=True, help="Print the jobs or the results as JSON.")
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
def matrix(**options: Any) -> None:
    """Build every variant of stoker.toml, or of FILE, or slim a wheel for each of them.

    Each wheel has its variant in its version, such as 2.9.1+cu128.sm90, so all of them fit into one
    folder. A variant that fails does not stop the others. The same command continues a matrix that
    was interrupted, and makes only what has changed. DIR/matrix.json lists the results.

    \b
    stoker matrix --dry-run
    stoker matrix --python 3.11,3.12 --out wheels
    stoker matrix --only 'cu128*'
    stoker matrix gpus.toml --from slim --wheel torch==2.9.1 --out wheels
    """
    from stoker.builds.matrices.matrix_plan import MatrixWanted, plan_matrix
    from stoker.builds.matrices.running import check_made, run_matrix
    from stoker.builds.matrices.terminal_page import jobs_page, results_page, whole_line
    from stoker.outside.terminal import print_json, show

    settings = with_settings(options)
    out = Path(settings["out"])
    words = (word for text in options["pythons"] for word in text.split(","))
    wanted = MatrixWanted(
        asked=read_request({**options, "out": None}),
        out=out,
        only=options["only"],
        pythons=tuple(word.strip() for word in words if word.strip()),
    )
    planned = plan_matrix(wanted)
    jobs = [item.job for item in planned]
    if options["dry_run"]:
        print_json(jobs, "jobs") if options["as_json"] else show(jobs_page(jobs))
        return
    view = progress_view(settings)
    view.write(f"stoker: {whole_line(jobs)}\n")
    try:
        made = run_matrix(planned, out, _governing, _watcher(view, verbose=options["verbose"]))
    finally:
        view.close()
    print_json(made) if options["as_json"] else show(results_page(made.results))
    check_made(made.results, out)


def _governing(chosen: Any) -> Any:
    """Return the options of a build from the settings of its variant."""
    groups = (SettingGroup.GOVERN, SettingGroup.CHAIN)
    names = [name for name, option in OPTIONS.items() if option.group in groups]
    return run_options({name: chosen.value(name) for name in names})


def _watcher(view: "View", *, verbose: bool) -> "MatrixWatcher":
    from stoker.builds.building import Watcher
    from stoker.builds.matrices.running import MatrixWatcher
    from stoker.builds.matrices.terminal_page import job_begin_line, job_end_line
    from stoker.builds.stages import StageError
    from stoker.cli.building import diagnose
    from stoker.outside.streams import error_text
    from stoker.report.ci import stage_line

    def begin(number: int, total: int, job: "MatrixJob") -> None:
        view.write(job_begin_line(number, total, job))

    def end(result: "MatrixResult", error: "StokerError | None") -> None:
        if isinstance(error, StageError):
            diagnose(error, view)
        if error is not None:
            view.write(error_text(error))
        view.write(job_end_line(result))

    def echo(chunk: bytes) -> None:
        view.write_own(chunk.decode(errors="replace"))

    return MatrixWatcher(
        begin=begin,
        end=end,
        build=Watcher(
            show=view.show,
            tell=lambda result: view.write(stage_line(result)),
            say=lambda text: view.write(f"stoker: {text}\n"),
            end=lambda _: None,
            echo=echo if verbose else None,
        ),
    )
