"""`stoker history`: list governed runs, what their steps needed and why they waited."""

from pathlib import Path

import click

_FEW = 20  # steps that are shown without --all


@click.command()
@click.argument("run", metavar="[RUN]", required=False)
@click.option("--all", "everything", is_flag=True, help="Show every step, not only the largest.")
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
def command(
    run: str | None,
    everything: bool,
    step: str | None,
    target: Path | None,
    source: Path | None,
    as_json: bool,
) -> None:
    """List governed runs; with RUN, list its steps and what each needed.

    \b
    stoker history
    stoker history 12
    stoker history 12 --step RegisterCUDA.cpp
    stoker history 12 --export build.json

    RUN is a number from the list or the run folder of a build.
    """
    from stoker.govern import past_runs
    from stoker.govern.explanation import step_page
    from stoker.govern.past_runs import runs_page, steps_page
    from stoker.govern.progress import summary_text
    from stoker.outside.terminal import print_json, show

    if source is not None:
        learned, steps = past_runs.import_trace(source)
        click.echo(f"learned {steps} steps from {source} as run {learned}", err=True)
    elif run is None:
        if target is not None or step is not None:
            raise click.UsageError("--export and --step need a run: stoker history RUN")
        runs = past_runs.runs()
        print_json(runs, "runs") if as_json else show(runs_page(runs))
    elif target is not None:
        click.echo(f"wrote {past_runs.export(run, target)} steps to {target}", err=True)
    else:
        attempts = past_runs.attempts_of(run, step)
        if as_json:
            print_json(attempts, "steps")
        elif step is not None:
            show(step_page(attempts))
        else:
            show(steps_page(attempts, len(attempts) if everything else _FEW))
            if summary := past_runs.summary_of(run):
                click.echo(summary_text(summary), nl=False)
