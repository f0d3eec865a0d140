"""`stoker history`: what was measured."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.IntRange(0, 2**62), metavar="[RUN]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every step, not only the hungriest.")
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the run as a trace that others can import or simulate.",
)
@click.option(
    "--import",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Learn from a trace that somebody else exported.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    run: int | None, everything: bool, target: Path | None, source: Path | None, as_json: bool
) -> None:
    """List governed runs; with RUN, its steps and what each needed."""
    from stoker.flows import remembering
    from stoker.report.console import print_json, show
    from stoker.report.history import runs_page, steps_page

    if source is not None:
        click.echo(f"learned {remembering.take_in(source)} steps from {source}", err=True)
    elif target is not None and run is not None:
        click.echo(f"wrote {remembering.export(run, target)} steps to {target}", err=True)
    elif target is not None:
        raise click.UsageError("--export needs the number of a run")
    elif as_json:
        found = remembering.runs() if run is None else remembering.steps(run)
        print_json(found)
    elif run is None:
        show(runs_page(remembering.runs()))
    else:
        attempts = remembering.steps(run)
        show(steps_page(attempts, len(attempts) if everything else 20))
