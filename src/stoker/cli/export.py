"""`stoker export`: write the build of one or more variants in the format of another system."""

from pathlib import Path
from typing import Any

import click

from stoker.cli.request import read_request, request_options
from stoker.model.errors import UsageError
from stoker.model.export import BuilderSize, ExportFormat
from stoker.model.units import byte_count


@click.command()
@click.argument("format", type=click.Choice([str(form) for form in ExportFormat]), metavar="FORMAT")
@click.argument("source", required=False)
@request_options(source=False)
@click.option("--matrix", is_flag=True, help="Export every variant of stoker.toml.")
@click.option(
    "--only",
    metavar="TEXT",
    default="",
    help="With --matrix: names that contain TEXT, or a pattern.",
)
@click.option(
    "--cpus",
    "builder_cpus",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="CPUs of the machine that will build.",
)
@click.option(
    "--memory",
    "builder_memory",
    default="64G",
    show_default=True,
    metavar="SIZE",
    help="Memory of the machine that will build.",
)
@click.option(
    "--disk",
    "builder_disk",
    default="100G",
    show_default=True,
    metavar="SIZE",
    help="Disk of the machine that will build.",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=240),
    default=6,
    show_default=True,
    help="Time limit of each build.",
)
@click.option("--image", help="Builder image for all variants, best with a digest.")
@click.option(
    "--stoker",
    "requirement",
    metavar="REQUIREMENT",
    help="What pip installs to get stoker there.  [default: stoker[tools]==VERSION]",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the files to a folder.")
@click.option("--force", is_flag=True, help="Replace files that exist already.")
@click.option("--json", "as_json", is_flag=True, help="Print paths and contents as JSON.")
def command(
    format: str,  # noqa: A002
    source: str | None,
    matrix: bool,
    only: str,
    builder_cpus: int,
    builder_memory: str,
    builder_disk: str,
    hours: float,
    image: str | None,
    requirement: str | None,
    out: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the build of a variant as a Dockerfile, a CI workflow, a cluster job or a Nix file.

    FORMAT: dockerfile, cloudbuild, github-actions, gitlab, slurm, kubernetes, nix or flox.

    SOURCE: what to build, pinned: a git URL with a tag or commit, or NAME==VERSION. Default: the
    `source` of stoker.toml. Without --out the files are printed.

    \b
    stoker export dockerfile https://github.com/pytorch/pytorch@v2.9.1 --variant cu128-sm90
    stoker export github-actions flash-attn==2.8.3 --matrix --out .
    """
    from stoker import __version__
    from stoker.flows.exporting import ExportWanted, export, write
    from stoker.report.console import print_json
    from stoker.report.export import render

    wanted = ExportWanted(
        format=ExportFormat(format),
        source=source,
        matrix=matrix,
        only=only,
        size=BuilderSize(
            cpus=builder_cpus,
            memory_bytes=_bytes("--memory", builder_memory),
            disk_bytes=_bytes("--disk", builder_disk),
            seconds=int(hours * 3600),
        ),
        requirement=requirement or f"stoker[tools]=={__version__}",
        image=image,
    )
    files = render(export(wanted, read_request(options)))
    if as_json:
        print_json(files)
    if out is not None:
        write(files, out, force=force)
        for file in files:
            click.echo(str(out / file.path), err=as_json)
    elif not as_json:
        for file in files:
            click.echo(f"# {file.path}", err=len(files) == 1)
            click.echo(file.text, nl=False)


def _bytes(flag: str, text: str) -> int:
    if found := byte_count(text):
        return found
    raise UsageError(f"{flag} {text} is no amount of memory or disk", hints=["such as 64G"])
