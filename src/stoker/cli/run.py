"""`stoker run`: any build command, governed."""

from pathlib import Path

import click
import msgspec

from stoker.model.errors import ExitStatus, UsageError

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def _bytes(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``8G``, ``512M``, ``1.5GiB``."""
    if value is None:
        return None
    text = value.strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], text[-1]) if text and text[-1] in _UNITS else (text, "")
    try:
        amount = float(number) * _UNITS[unit]
    except ValueError:
        amount = 0.0
    if amount <= 0:
        raise UsageError(f"--{parameter.name} {value}: not an amount of memory", hints=["try 8G"])
    return int(amount)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--memory", callback=_bytes, metavar="SIZE", help="Use no more than this, e.g. 8G.")
@click.option(
    "--keep-free", "keep_free", callback=_bytes, metavar="SIZE", help="Leave this much to others."
)
@click.option("--cpus", type=click.IntRange(min=1), metavar="N", help="Use no more CPUs than N.")
@click.option("--nice", is_flag=True, help="Give way to everything else on the machine.")
@click.option(
    "--policy", default="adaptive", metavar="NAME", help="adaptive, fixed, levels, two-phase."
)
@click.option("--respect-jobs", is_flag=True, help="A -jN of the command caps the CPUs.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "live", "log", "json", "quiet"]),
    default="auto",
    help="How to show what happens, on stderr.",
)
@click.option("--summary", "summary_file", metavar="FILE", help="Write the summary as JSON.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    command: tuple[str, ...],
    memory: int | None,
    keep_free: int | None,
    cpus: int | None,
    nice: bool,
    policy: str,
    respect_jobs: bool,
    progress: str,
    summary_file: str | None,
) -> int:
    """Run a build command under the governor: as fast as memory allows, never out of it.

    \b
    stoker run -- ninja -C build
    stoker run -- pip install flash-attn --no-build-isolation
    stoker run --memory 8G -- make -j64

    Ends with the command's own status; its output stays its own.
    """
    from stoker.flows.running import RunOptions, jobs_of, run
    from stoker.outside.files import write_whole
    from stoker.report.progress import Progress, make_view, summary_text

    if respect_jobs and (jobs := jobs_of(command)):
        cpus = min(cpus or jobs, jobs)
    options = RunOptions(memory=memory, keep_free=keep_free, cpus=cpus, nice=nice, policy=policy)
    view = make_view(Progress(progress))
    try:
        finished = run(command, options, view.show)
    finally:
        view.close()
    if finished.summary and progress not in ("quiet", "json"):
        click.echo(summary_text(finished.summary), err=True, nl=False)
    if finished.unseen_cpu_seconds:
        text = (
            f"stoker: {finished.unseen_cpu_seconds:.0f} CPU seconds went to compiles it never saw"
        )
        click.echo(
            f"{text}\n  `stoker attach BUILD` puts the launcher into a build folder", err=True
        )
    if summary_file and finished.summary:
        write_whole(Path(summary_file), msgspec.json.format(msgspec.json.encode(finished.summary)))
    return finished.status or ExitStatus.OK
