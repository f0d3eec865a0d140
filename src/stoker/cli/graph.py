"""`stoker graph`: the targets of a build, what blocks them, and what a change rebuilds."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stoker.report.graph import BuildGraph


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
def command(
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
    from stoker.model.errors import UsageError
    from stoker.outside.files import write_named
    from stoker.outside.terminal import print_json, show
    from stoker.report.graphing import graph_html, graph_of, graph_page, graph_svg

    kinds = {
        ".svg": graph_svg,
        ".html": graph_html,
        ".json": _json,
    }
    if out and out.suffix not in kinds:
        raise UsageError(
            f"the kind of {out} is unknown", hints=[f"name a file with {', '.join(kinds)}"]
        )
    graph = graph_of(place, impact=impact, say=lambda text: click.echo(f"stoker: {text}", err=True))
    if out:
        write_named(out, kinds[out.suffix](graph))
        click.echo(out)
    elif as_json:
        print_json(graph)
    else:
        show(graph_page(graph, everything=everything))


def _json(graph: "BuildGraph") -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(graph)).decode() + "\n"
