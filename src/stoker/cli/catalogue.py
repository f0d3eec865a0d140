"""`stoker catalogue`: publish wheels, remove them, rank them for a machine, serve them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from stoker.outside.long_work import say

_KEY = click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sign the catalogue with this ed25519 key of ssh-keygen.",
)


@click.group()
def catalogue() -> None:
    """Keep wheels in a catalogue that any web server can serve.

    A catalogue is a folder or an object store: a package index for each variant, and a page to
    search by GPU and CPU. `stoker install` installs from it.

    \b
    stoker catalogue publish dist --to /srv/wheels
    stoker catalogue select /srv/wheels torch --for h100
    stoker catalogue serve /srv/wheels
    """


@catalogue.command(short_help="Add wheels to a catalogue.")
@click.argument("wheels", nargs=-1, required=True, metavar="WHEELS...")
@click.option(
    "--to",
    "place",
    required=True,
    metavar="INDEX",
    help="The catalogue: a folder, or s3://bucket/prefix. A new one is made.",
)
@click.option("--variant", metavar="NAME", help="The variant's name. Default: from the wheel.")
@click.option("--force", is_flag=True, help="Also publish wheels that `stoker verify` rejects.")
@click.option("--replace", is_flag=True, help="Replace a wheel of the same name and variant.")
@click.option(
    "--wheel-variants",
    is_flag=True,
    help="Also as wheel variants (draft PEP 825), for uv with --preview-features wheel-variants.",
)
@click.option(
    "--variant-provider",
    "variant_providers",
    metavar="NAME=REQUIREMENT",
    multiple=True,
    help="Package that tells installers about hardware of this namespace, such as amd.",
)
@_KEY
@click.option("--dry-run", is_flag=True, help="Check the wheels, and publish nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was published as JSON.")
def publish(wheels: tuple[str, ...], place: str, as_json: bool, **options: Any) -> None:
    """Add wheels, or all wheels of a folder, to a catalogue.

    Each variant gets a package index of its own, and the catalogue a page for people. Publishing
    the same wheel again changes nothing. Several publishers may work at the same time.

    \b
    stoker catalogue publish dist --to /srv/wheels
    stoker catalogue publish torch-2.9.1+cu128.sm90-cp312-cp312-manylinux_2_28_x86_64.whl \
        --to s3://wheels
    stoker catalogue publish dist/mill-1.0-py3-none-any.whl --to wheels --variant cpu-avx2
    """
    from stoker.catalogue import publishing
    from stoker.catalogue.shown import wheels_page
    from stoker.model.value import counted
    from stoker.outside.long_work import shown
    from stoker.outside.terminal import print_json, show, tell

    wanted = publishing.PublishOptions(**options)
    with shown():
        report = publishing.publish(wheels, place, wanted, say=say)
    for note in report.notes:
        tell(f"note: {note}")
    if as_json:
        print_json(report)
        return
    show(wheels_page(report.wheels))
    count = len(report.added)
    there = len(report.wheels) - count
    done = "would be published" if options["dry_run"] else "published"
    were = "was" if there == 1 else "were"
    told = f"{counted(count, 'wheel')} {done} to {place}"
    say(told + (f"; {there} {were} there already" if there else ""))


@catalogue.command(short_help="Remove wheels from a catalogue.")
@click.argument("index")
@click.argument("names", nargs=-1, required=True, metavar="NAMES...")
@click.option("--variant", metavar="NAME", help="Only in this variant.")
@_KEY
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def remove(
    index: str, names: tuple[str, ...], variant: str | None, key: Path | None, as_json: bool
) -> None:
    """Remove wheels from a catalogue, by file name, project, or project and version.

    The files stay until `stoker catalogue prune`, so that downloads in progress do not fail.

    \b
    stoker catalogue remove /srv/wheels torch==2.8.0
    stoker catalogue remove /srv/wheels torch --variant cu126-sm75
    """
    from stoker.catalogue.publishing import unpublish
    from stoker.catalogue.shown import wheels_page
    from stoker.outside.terminal import print_json, show

    gone = unpublish(index, names, variant, key=key, say=say)
    if as_json:
        print_json(gone, "wheels")
        return
    show(wheels_page(gone))
    say(f"{len(gone)} removed; `stoker catalogue prune {index}` deletes their files")


@catalogue.command(short_help="Delete files that a catalogue no longer needs.")
@click.argument("index")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the N newest versions of each project in each variant. Default: all.",
)
@_KEY
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def prune(index: str, keep: int | None, key: Path | None, dry_run: bool, as_json: bool) -> None:
    """Delete the files of a catalogue that no page refers to, and old versions if asked for.

    \b
    stoker catalogue prune /srv/wheels --dry-run
    stoker catalogue prune /srv/wheels --keep 3
    """
    from stoker.catalogue import publishing
    from stoker.catalogue.shown import pruned_text
    from stoker.outside.terminal import print_json

    pruned = publishing.prune(index, keep=keep, dry_run=dry_run, key=key, say=say)
    if as_json:
        print_json(pruned)
        return
    for wheel in pruned.wheels:
        click.echo(f"{wheel.variant}/{wheel.file}")
    say(pruned_text(pruned, dry_run=dry_run))


@catalogue.command(short_help="Rank the variants for a machine, with reasons.")
@click.argument("index")
@click.argument("projects", nargs=-1, metavar="[PROJECTS]...")
@click.option(
    "--for",
    "wished",
    metavar="MACHINE",
    help="Another machine, such as h100, 'l40s avx2', cpu. Default: this one.",
)
@click.option(
    "--python", metavar="X.Y|PATH", help="The interpreter. Default: the active environment's."
)
@click.option("--json", "as_json", is_flag=True, help="Print the choices as JSON.")
def select(
    index: str, projects: tuple[str, ...], wished: str | None, python: str | None, as_json: bool
) -> None:
    """Rank the variants of a project for a machine, each with the reason: native code, compatible
    code, through PTX, CPU only, or why it does not run.

    INDEX is a folder, the address of a catalogue, or s3://bucket/prefix. The default project is
    torch, or the only one there is; extensions named after it must match it.

    \b
    stoker catalogue select https://wheels.example.org
    stoker catalogue select /srv/wheels torch==2.9.1 flash-attn --for "l40s linux-x86_64"
    """
    from stoker.catalogue.installing import select as select_wheels
    from stoker.catalogue.shown import selection_page
    from stoker.cli.chosen import told_options
    from stoker.machine.python import target_python
    from stoker.outside.terminal import print_json, show
    from stoker.settings.declared import CommandLine

    target = target_python(python)
    settings = told_options(CommandLine()).install
    located, selection = select_wheels(
        index, projects, python=target, wished=wished, settings=settings
    )
    if located.note:
        say(f"note: {located.note}")
    own = selection.wheels[0].project
    others = [name for name in located.catalogue.projects if name != own]
    if others and not projects:
        say(f"no project was named, so this is {own}; there are also {', '.join(others[:10])}")
    if as_json:
        print_json(selection)
    else:
        show(selection_page(selection))


@catalogue.command(short_help="Serve a catalogue over HTTP on this machine.")
@click.argument("index")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8643, show_default=True, help="0 chooses one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--quiet", is_flag=True, help="Do not log requests.")
def serve(index: str, port: int, host: str, quiet: bool) -> None:
    """Serve a catalogue folder over HTTP for testing, until you press Ctrl-C.

    The server is read-only. For production, any web server can serve the same folder.

    \b
    stoker catalogue serve /srv/wheels
    stoker catalogue serve wheels --port 0
    """
    from stoker.catalogue.publishing import serving

    def log(line: str) -> None:
        if not quiet:
            say(line)

    with serving(index, host=host, port=port, log=log) as (running, url, catalogue):
        click.echo(url)
        names = sorted({wheel.project for wheel in catalogue.own.wheels})
        if names:
            name = "torch" if "torch" in names else names[0]
            say(f"install from it: stoker install {url} {name}")
        with suppress(KeyboardInterrupt):
            running.serve_forever()
