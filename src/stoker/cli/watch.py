"""`stoker watch`: look at a running build from another terminal."""

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stoker.govern.broadcast import Watching


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
def command(run: str | None, as_json: bool) -> None:
    """Show a running build: stage, progress, time left, memory, the steps, and why others wait.

    \b
    stoker watch                 the build that is running
    stoker watch 4711            the build of process 4711, if there are several
    stoker watch --json          its events, for a program

    It changes nothing in the build and ends with it. Ctrl-C leaves the build running. RUN is the id
    of the process of `stoker run` or `stoker build`, or the name of a build's run folder.
    """
    from stoker.govern.broadcast import watched

    with watched(run) as build:
        if as_json:
            _print_events(build)
        else:
            click.echo(_show(build), nl=False)


def _print_events(build: "Watching") -> None:
    import msgspec

    for event in build.events():
        sys.stdout.write(f"{msgspec.json.encode(event).decode()}\n")
        sys.stdout.flush()


def _show(build: "Watching") -> str:
    """Show the build until it ends, and return the last words."""
    from stoker.govern.progress import LogView, PageView, summary_text
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
