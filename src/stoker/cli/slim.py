"""`stoker slim`: keep the device code of chosen GPUs, remove the rest."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option(
    "--for",
    "gpus",
    metavar="GPUS",
    help="The GPUs to keep code for: sm90,sm86+ptx or h100,rtx4090 or native.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Output folder for a wheel (default: dist), or output file for a library.",
)
@click.option("--strip", is_flag=True, help="Also remove symbol tables and unused space.")
@click.option(
    "--recompress",
    type=click.Choice(["zstd"]),
    help="Compress kept LZ4 code with zstd: smaller, needs driver 550.54.14 or later.",
)
@click.option(
    "--nvidia", is_flag=True, help="Also slim NVIDIA's own libraries, for private use only."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be kept and removed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@click.option("--undo", "undoing", is_flag=True, help="Restore what was slimmed in place.")
@click.option(
    "--discard", is_flag=True, help="Keep no originals for --undo. Without --for: delete them."
)
def command(
    target: str, gpus: str | None, undoing: bool, discard: bool, as_json: bool, **output: Any
) -> None:
    """Keep the device code that the chosen GPUs run, and remove the rest from the libraries.

    A wheel gives a new wheel. A folder, a library without --out, or a distribution of the active
    environment, given by its NAME such as torch, is slimmed in place.

    \b
    stoker slim torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl --for h100
    stoker slim torch --for native
    stoker slim torch --undo
    """
    if undoing or (discard and gpus is None):
        _go_back(target, gpus, undoing)
    else:
        _slim(target, gpus, as_json, discard=discard, **output)


def _go_back(word: str, gpus: str | None, undoing: bool) -> None:
    from stoker.model.errors import UsageError
    from stoker.model.value import size
    from stoker.wheel.slim.slimming import discard, find_target, undo

    if gpus is not None:
        raise UsageError("--undo restores everything: leave out --for")
    target = find_target(word)
    if undoing:
        names = undo(target)
        for name in names:
            click.echo(f"restored {name}", err=True)
        if not names:
            click.echo("no file had been replaced, so nothing was restored", err=True)
    else:
        click.echo(f"deleted the originals ({size(discard(target))})", err=True)


def _slim(
    word: str,
    gpus: str | None,
    as_json: bool,
    *,
    strip: bool,
    recompress: str | None,
    nvidia: bool,
    dry_run: bool,
    **output: Any,
) -> None:
    from stoker.model.errors import UsageError
    from stoker.outside.progress import shown, stage
    from stoker.outside.terminal import print_json, show, tell
    from stoker.wheel.slim.cuts import SlimRequest
    from stoker.wheel.slim.library import SlimOptions
    from stoker.wheel.slim.slimming import (
        OutputOptions,
        find_target,
        gpu_targets,
        slim,
        slim_lines,
        slim_page,
    )

    if gpus is None:
        raise UsageError(
            "no GPUs are given", hints=["name them with --for h100 or --for sm90,sm86+ptx"]
        )
    options = SlimOptions(strip=strip, recompress=recompress is not None)
    request = SlimRequest(gpus=gpu_targets(gpus), options=options, nvidia=nvidia)
    with shown(), stage(f"slimming {word}"):
        report = slim(find_target(word), request, OutputOptions(dry_run=dry_run, **output))
    if as_json:
        print_json(report)
    elif dry_run:
        show(slim_page(report))
    else:
        tell(slim_lines(report))
        if report.output:
            click.echo(report.output)
