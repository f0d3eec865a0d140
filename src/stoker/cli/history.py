"""`stoker history` and `stoker watch`: past runs and their steps, and a build that runs now."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stoker.govern.client.broadcast import Watching

_FEW = 20  # steps that are shown without --all


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show every run, also those without steps; with RUN, every step.",
)
@click.option(
    "--step",
    metavar="NAME",
    help="Explain why the steps with NAME in their source or output waited, paused or were killed.",
)
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the run as a trace that can be imported or simulated elsewhere.",
)
@click.option(
    "--import",
    "source",
    type=click.Path(path_type=Path, readable=False),
    metavar="FILE",
    help="Learn from a trace that was exported on another machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def history(
    run: str | None,
    everything: bool,
    step: str | None,
    target: Path | None,
    source: Path | None,
    as_json: bool,
) -> None:
    """List governed runs that have steps; with RUN, list its steps and what each needed.

    \b
    stoker history
    stoker history 12
    stoker history 12 --step RegisterCUDA.cpp
    stoker history 12 --export build.json

    RUN is a number from the list or the run folder of a build.
    """
    from stoker.diagnose.kept import with_causes
    from stoker.govern.client.explanation import step_page
    from stoker.govern.client.summary import summary_text
    from stoker.govern.history import past_runs
    from stoker.govern.history.past_runs import runs_page, steps_page
    from stoker.outside.terminal import print_json, show

    if source is not None:
        learned, steps = past_runs.import_trace(source)
        click.echo(f"learned {steps} steps from {source} as run {learned}", err=True)
    elif run is None:
        if target is not None or step is not None:
            raise click.UsageError("--export and --step need a run: stoker history RUN")
        runs = with_causes(past_runs.runs())
        shown = runs if everything else past_runs.with_steps(runs)
        print_json(shown, "runs") if as_json else show(runs_page(shown, len(runs) - len(shown)))
    elif target is not None:
        click.echo(f"wrote {past_runs.export(run, target)} steps to {target}", err=True)
    else:
        measured = past_runs.measured_run(run)
        attempts = past_runs.attempts_of(measured, step)
        if as_json:
            print_json(attempts, "steps")
        elif step is not None:
            show(step_page(attempts))
        else:
            show(steps_page(attempts, len(attempts) if everything else _FEW))
            if measured.run.summary:
                click.echo(summary_text(measured.run.summary), nl=False)


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
def watch(run: str | None, as_json: bool) -> None:
    """Show a running build: stage, progress, time left, memory, the steps, and why others wait.

    \b
    stoker watch                 the build that is running
    stoker watch 4711            the build of process 4711, if there are several
    stoker watch --json          its events, for a program

    It changes nothing in the build and ends with it. Ctrl-C leaves the build running. RUN is the id
    of the process of `stoker run` or `stoker build`, or the name of a build's run folder.
    """
    from stoker.govern.client.broadcast import watched

    with watched(run) as build:
        if as_json:
            import msgspec

            for event in build.events():
                sys.stdout.write(f"{msgspec.json.encode(event).decode()}\n")
                sys.stdout.flush()
        else:
            click.echo(_show(build), nl=False)


def _show(build: "Watching") -> str:
    """Show the build until it ends, and return the last words."""
    from stoker.govern.client.progress import LogView, PageView
    from stoker.govern.client.summary import summary_text
    from stoker.model.events import RunEnds

    view = PageView(sys.stdout) if sys.stdout.isatty() else LogView(sys.stdout)
    end: RunEnds | None = None
    try:
        for event in build.events():
            view.show(event)
            end = event if isinstance(event, RunEnds) else end
    except KeyboardInterrupt:
        return "the build continues\n"
    finally:
        view.close()
    if end is None:
        return "the process of the build was killed\n"
    return summary_text(end.summary) if end.summary else "the build has ended\n"
