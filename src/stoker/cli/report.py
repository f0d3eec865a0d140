"""`stoker report`: write a web page about a run, or a trace for Perfetto."""

from pathlib import Path

import click

from stoker.model.errors import UsageError


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--against", metavar="RUN2", help="Compare with an earlier run.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write. Default: report.html, or trace.json with --trace.",
)
@click.option("--trace", is_flag=True, help="Write a trace that Perfetto opens, not a page.")
@click.option(
    "--what-if/--no-what-if",
    "what_if",
    default=True,
    help="Simulate the build on other machines. Default: yes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the data of the page as JSON.")
def command(
    run: str | None,
    against: str | None,
    out: Path | None,
    trace: bool,
    what_if: bool,
    as_json: bool,
) -> None:
    """Write a page about a governed run: timeline, memory, critical path, every step.

    \b
    stoker report                         the latest run
    stoker report 12 -o build.html        run 12 of `stoker history`
    stoker report 12 --against 11         what became slower or larger, and why
    stoker report 12 --trace              a trace: steps, waits, counters of memory

    RUN is a number from `stoker history` or the run folder of a build. The page is one file that
    needs no network. Prices for the cost of a build are read from stoker.toml. A trace also has
    what compilers recorded of their own phases (clang with -ftime-trace, nvcc with --time or
    -fdevice-time-trace); open it in Perfetto's UI, or in chrome://tracing.
    """
    from stoker.outside.files import write_named
    from stoker.outside.terminal import print_json
    from stoker.report.page import page_data, report_page
    from stoker.report.reporting import analyse_run, find_phases, make_report

    if trace:
        if against or as_json:
            raise UsageError("--trace has no comparison and is JSON itself")
        from stoker.report.trace import perfetto_trace

        found = analyse_run(run)
        out = out or Path("trace.json")
        write_named(out, perfetto_trace(found, find_phases(found)))
        click.echo(out)
        return

    def say(text: str) -> None:
        click.echo(f"stoker: {text}", err=True)

    report = make_report(run, against=against, what_if=what_if, say=say)
    if as_json:
        print_json(page_data(report))
        return
    out = out or Path("report.html")
    write_named(out, report_page(report))
    click.echo(out)
