"""`stoker trace`: write a run as a trace for Perfetto."""

from pathlib import Path

import click


@click.command()
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("trace.json"),
    metavar="FILE",
    help="The trace to write. Default: trace.json.",
)
def command(run: str | None, output: Path) -> None:
    """Write a governed run as a trace that Perfetto opens: steps, waits, counters of memory.

    \b
    stoker trace                          the latest run
    stoker trace 12 -o build.json         run 12 of `stoker history`

    RUN is a number from `stoker history` or the run folder of a build. What compilers recorded of
    their own phases (clang with -ftime-trace, nvcc with --time or -fdevice-time-trace) is merged
    into their steps. Open the trace in Perfetto's UI, or in chrome://tracing.
    """
    from stoker.outside.files import write_named
    from stoker.report.reporting import analyse_run, find_phases
    from stoker.report.trace import perfetto_trace

    found = analyse_run(run)
    write_named(output, perfetto_trace(found, find_phases(found)))
    click.echo(output)
