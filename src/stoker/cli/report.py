"""`stoker report`: write a web page about a run."""

from pathlib import Path

import click


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--against", metavar="RUN2", help="Compare with an earlier run.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    metavar="FILE",
    help="The page to write. Default: report.html.",
)
@click.option(
    "--what-if/--no-what-if",
    "what_if",
    default=True,
    help="Simulate the build on other machines. Default: yes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the data of the page as JSON.")
def command(
    run: str | None, against: str | None, output: Path, what_if: bool, as_json: bool
) -> None:
    """Write a page about a governed run: timeline, memory, critical path, every step.

    \b
    stoker report                         the latest run
    stoker report 12 -o build.html        run 12 of `stoker history`
    stoker report 12 --against 11         what became slower or larger, and why

    RUN is a number from `stoker history` or the run folder of a build. The page is one file that
    needs no network. Prices for the cost of a build are read from stoker.toml.
    """
    from stoker.outside.files import write_named
    from stoker.outside.terminal import print_json
    from stoker.report.page import page_data, report_page
    from stoker.report.reporting import make_report

    def say(text: str) -> None:
        click.echo(f"stoker: {text}", err=True)

    report = make_report(run, against=against, what_if=what_if, say=say)
    if as_json:
        print_json(page_data(report))
        return
    write_named(output, report_page(report))
    click.echo(output)
