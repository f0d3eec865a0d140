"""`stoker report` and `stoker graph`: a page or trace of a run, and the targets of a build."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.model.errors import UsageError
from stoker.model.value import indented_json

if TYPE_CHECKING:
    from stoker.report.graphs.build_graph import BuildGraph


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
@click.option("--force", is_flag=True, help="Also replace a file that is not a page of stoker.")
@click.option("--json", "as_json", is_flag=True, help="Print the data of the page as JSON.")
def report(
    run: str | None,
    against: str | None,
    out: Path | None,
    trace: bool,
    what_if: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write a page about a governed run: timeline, memory, critical path, every step.

    \b
    stoker report                         the latest run that has steps
    stoker report 12 -o build.html        run 12 of `stoker history`
    stoker report 12 --against 11         what became slower or larger, and why
    stoker report 12 --trace              a trace: steps, waits, counters of memory

    RUN is a number from `stoker history` or the run folder of a build. The page is one file that
    needs no network. Prices for the cost of a build are read from stoker.toml. A trace also has
    what compilers recorded of their own phases (clang with -ftime-trace, nvcc with --time or
    -fdevice-time-trace); open it in Perfetto's UI, or in chrome://tracing.
    """
    from stoker.outside.files import write_named, write_page
    from stoker.outside.terminal import print_json, tell
    from stoker.report.html_page import page_data, report_page
    from stoker.report.reporting import analyse_run, find_phases, make_report

    def say(text: str) -> None:
        tell(f"stoker: {text}")

    if trace:
        if against or as_json:
            raise UsageError("--trace has no comparison and is JSON itself")
        from stoker.report.perfetto import perfetto_trace

        found = analyse_run(run, say=say)
        out = out or Path("trace.json")
        write_named(out, perfetto_trace(found, find_phases(found)))
        click.echo(out)
        return

    report = make_report(run, against=against, what_if=what_if, say=say)
    if as_json:
        print_json(page_data(report))
        return
    out = out or Path("report.html")
    write_page(out, report_page(report), force=force)
    click.echo(out)


@click.command()
@click.argument(
    "place", type=click.Path(path_type=Path, readable=False), default=Path(), metavar="[FOLDER]"
)
@click.option("--targets", "everything", is_flag=True, help="List every target and step.")
@click.option("--impact", metavar="FILE", help="List what a change to FILE rebuilds.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a drawing (.svg), a page (.html) or the data (.json).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def graph(
    place: Path, everything: bool, impact: str | None, out: Path | None, as_json: bool
) -> None:
    """Show the targets of a build: time, memory, what each needs, and what blocks the start.

    \b
    stoker graph build                       a build folder of ninja
    stoker graph pytorch                     a source tree that stoker has built
    stoker graph build --impact c10/util/Exception.h
    stoker graph build -o graph.html

    Targets come from CMake's file API if the build folder has its answer, else from build.ninja.
    Times and memory are those of the latest build under stoker; for other steps ninja's log has
    the time.
    """
    from stoker.outside.files import write_named
    from stoker.outside.terminal import print_json, show, tell
    from stoker.report.graphs.drawing import graph_svg
    from stoker.report.graphs.html_page import graph_html
    from stoker.report.graphs.reading import graph_of
    from stoker.report.graphs.terminal_page import graph_page

    kinds = {".svg": graph_svg, ".html": graph_html, ".json": _json}
    if out and out.suffix not in kinds:
        raise UsageError(
            f"the kind of {out} is unknown", hints=[f"name a file with {', '.join(kinds)}"]
        )
    graph = graph_of(place, impact=impact, say=lambda text: tell(f"stoker: {text}"))
    if out:
        write_named(out, kinds[out.suffix](graph))
        click.echo(out)
    elif as_json:
        print_json(graph)
    else:
        show(graph_page(graph, everything=everything))


def _json(graph: "BuildGraph") -> str:
    return indented_json(graph).decode() + "\n"
