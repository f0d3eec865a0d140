"""`stoker export`: write builds, or the workers of a cluster, in the format of another system."""

from pathlib import Path
from typing import Any

import click

from stoker.cli.chosen import told_request
from stoker.cli.request import request_options
from stoker.knowledge.export_targets import BuilderSize, ExportFormat
from stoker.model.errors import UsageError
from stoker.model.value import byte_count

_OF_A_BUILD = ("source", "matrix", "only", "stoker", "torch", "torch_index")


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
    help="CPUs of the machine that will build, or of each worker.",
)
@click.option(
    "--memory",
    "builder_memory",
    metavar="SIZE",
    help="Memory of the machine that will build.  [default: 64G; of a worker: from the history]",
)
@click.option(
    "--disk",
    "builder_disk",
    default="100G",
    show_default=True,
    metavar="SIZE",
    help="Disk of the machine that will build, or of each worker.",
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True, max=240),
    default=6,
    show_default=True,
    help="Time limit of each build; on Slurm, also of the workers.",
)
@click.option(
    "--shards",
    type=click.IntRange(2, 256),
    metavar="N",
    help="Build each variant in N jobs that compile, and one that links; see docs/how-to/farm.md.",
)
@click.option(
    "--image", help="Builder image for all variants, best with a digest; or the workers'."
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Export workers of sccache-dist instead of a build: kubernetes, slurm or compose.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="With --cluster: number of workers.  [default: 2]",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="With --cluster: a network, such as 10.0.0.0/24, whose machines may use the workers.",
)
@click.option(
    "--trust-network", is_flag=True, help="Let --allow name a network with public addresses."
)
@click.option(
    "--stoker",
    metavar="WHEEL|URL",
    help="The wheel of stoker that the other machine installs; a file is copied to --out.",
)
@click.option(
    "--torch",
    metavar="VERSION",
    help="PyTorch that an extension is compiled with, as in `stoker build --torch`.",
)
@click.option(
    "--torch-index",
    metavar="URL",
    help="Package index that has it, as in `stoker build --torch-index`.",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write the files to a folder.")
@click.option("--force", is_flag=True, help="Replace files that exist already.")
@click.option("--json", "as_json", is_flag=True, help="Print paths and contents as JSON.")
def export(
    format: str,  # noqa: A002
    cluster: bool,
    out: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the build of a variant as a Dockerfile, a CI workflow, a cluster job or a Nix file.

    FORMAT: dockerfile, cloudbuild, github-actions, gitlab, slurm, kubernetes, compose, nix or flox.
    With --cluster, write the workers of sccache-dist; they need no SOURCE.

    SOURCE: what to build, pinned: a git URL with a tag or commit, or NAME==VERSION. Default: the
    `source` of stoker.toml. Without --out the files are printed.

    \b
    stoker export dockerfile https://github.com/pytorch/pytorch@v2.9.1 --variant h100 --stoker URL
    stoker export github-actions flash-attn==2.8.3 --torch 2.9.1 --matrix --stoker URL --out .
    stoker export kubernetes --cluster --workers 8 --cpus 16 --out workers
    """
    from stoker.export.cluster import render_cluster
    from stoker.export.exporting import ExportWanted, export, origin_of_stoker, write
    from stoker.export.farm import count_jobs, render_farm
    from stoker.export.files import render
    from stoker.export.workers import ClusterWanted, export_cluster
    from stoker.outside.terminal import print_json

    own = {name: options.pop(name) for name in _OF_A_BUILD}
    workers, shards = options["workers"], options["shards"]
    networks = {name: options.pop(name) for name in ("allow", "trust_network")}
    request, form = told_request(options), ExportFormat(format)
    size = {
        "cpus": options["builder_cpus"],
        "disk_bytes": _bytes("--disk", options["builder_disk"]),
        "seconds": int(options["hours"] * 3600),
    }
    memory, wheel = options["builder_memory"], None
    if cluster:
        if any(own.values()) or shards or request.options:
            raise UsageError(
                "--cluster exports workers, not a build: leave out SOURCE, variants, --shards "
                "and --stoker",
                hints=[
                    f"stoker export {form} --cluster",
                    "distccd is started by hand: docs/how-to/distribute.md",
                ],
            )
        wanted = ClusterWanted(
            format=form,
            workers=workers or 2,
            memory_bytes=_bytes("--memory", memory) if memory else None,
            image=options["image"],
            **size,
            **networks,
        )
        files = render_cluster(export_cluster(wanted))
    elif workers or any(networks.values()):
        raise UsageError("--workers, --allow and --trust-network belong to --cluster")
    else:
        machine = BuilderSize(memory_bytes=_bytes("--memory", memory or "64G"), **size)
        build = ExportWanted(
            format=form, size=machine, image=options["image"], shards=shards or 0, **own
        )
        planned = export(build, request)
        files = render_farm(planned) if shards else render(planned)
        if shards:
            click.echo(str(count_jobs(planned)), err=True)
        wheel = origin_of_stoker(build.stoker, form).wheel
    if as_json:
        print_json(files, "files")
    if out is not None:
        write(files, out, wheel=wheel, force=force)
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
