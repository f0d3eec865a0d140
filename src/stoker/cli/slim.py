"""`stoker slim`: keep the device code of chosen GPUs, cut out the rest."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option("--for", "gpus", metavar="GPUS", help="sm90,sm86+ptx, h100,rtx4090 or native.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where it goes: a folder for a wheel (default: dist), a file for a library.",
)
@click.option("--strip", is_flag=True, help="Cut out symbol tables and dead space, too.")
@click.option(
    "--recompress",
    type=click.Choice(["zstd"]),
    help="Pack kept LZ4 code anew: less disk, for drivers since 550.54.14.",
)
@click.option("--nvidia", is_flag=True, help="NVIDIA's own libraries, too: private, see docs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be kept and cut.")
@click.option("--json", "as_json", is_flag=True, help="What was done, as JSON.")
@click.option("--force", is_flag=True, help="Replace an output that is there.")
@click.option("--undo", "undoing", is_flag=True, help="Put back what was slimmed in place.")
@click.option(
    "--discard", is_flag=True, help="Keep no originals for --undo; alone: delete those kept."
)
def command(
    target: str, gpus: str | None, undoing: bool, discard: bool, as_json: bool, **output: Any
) -> None:
    """Keep the device code that the chosen GPUs run, and cut the rest out of the libraries.

    A wheel gives a new wheel. A library, a folder, or a distribution of the active environment by
    its NAME, such as torch, is slimmed in place, unless a library goes to --out.

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
    from stoker.flows.slimming import discard, find_target, undo
    from stoker.model.errors import UsageError
    from stoker.model.units import size

    if gpus is not None:
        raise UsageError("--undo puts everything back: it takes no --for")
    target = find_target(word)
    if undoing:
        names = undo(target)
        for name in names:
            click.echo(f"put back {name}", err=True)
        if not names:
            click.echo("nothing had been replaced yet: everything is as it was", err=True)
    else:
        click.echo(f"deleted originals of {size(discard(target))}", err=True)


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
    from stoker.deliver.slim.cuts import SlimRequest
    from stoker.deliver.slim.library import SlimOptions
    from stoker.flows.slimming import OutputOptions, find_target, gpu_targets, slim
    from stoker.model.errors import UsageError
    from stoker.report.console import print_json, show
    from stoker.report.slimming import slim_lines, slim_page

    if gpus is None:
        raise UsageError("which GPUs is it for?", hints=["--for h100, --for sm90,sm86+ptx"])
    options = SlimOptions(strip=strip, recompress=recompress is not None)
    request = SlimRequest(gpus=gpu_targets(gpus), options=options, nvidia=nvidia)
    report = slim(find_target(word), request, OutputOptions(dry_run=dry_run, **output))
    if as_json:
        print_json(report)
    elif dry_run:
        show(slim_page(report))
    else:
        click.echo(slim_lines(report), err=True)
        if report.output:
            click.echo(report.output)
