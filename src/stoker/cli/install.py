"""`stoker install`: install the wheels that suit a machine, or slim packages on the way."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoker.model.errors import UsageError

if TYPE_CHECKING:
    from stoker.machine.installers import Installer
    from stoker.settings.install import InstallSettings


@click.command()
@click.argument("words", nargs=-1, metavar="[INDEX] REQUIREMENTS...")
@click.option(
    "-r",
    "--requirement",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Also install what this file requires.",
)
@click.option(
    "--catalogue",
    "catalogues",
    multiple=True,
    metavar="INDEX",
    help="Also choose from this catalogue. stoker.toml can name others.",
)
@click.option(
    "--slim",
    is_flag=True,
    help="Slim packages from the package index instead of using a catalogue.",
)
@click.option(
    "--for",
    "wished",
    metavar="MACHINE",
    help="Choose for another machine, such as h100 or 'l40s avx2'.",
)
@click.option(
    "--python",
    metavar="X.Y|PATH",
    help="Python interpreter to install for. Default: the active environment.",
)
@click.option(
    "--installer", type=click.Choice(["pip", "uv"]), help="Default: the one that is available."
)
@click.option(
    "--dry-run", is_flag=True, help="Only show what would be chosen, or downloaded with --slim."
)
@click.option("--print", "only_print", is_flag=True, help="Print the command, and install nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was installed as JSON.")
def install(
    words: tuple[str, ...],
    files: tuple[Path, ...],
    catalogues: tuple[str, ...],
    slim: bool,
    wished: str | None,
    python: str | None,
    installer: str | None,
    dry_run: bool,
    only_print: bool,
    as_json: bool,
) -> None:
    """Install the wheels that suit this machine and its PyTorch best.

    Without INDEX, the wheels of each project in catalogues, in the indexes of pip and in other
    places that stoker knows are judged by their names, metadata, symbols and device code, without
    downloading them whole, and each refusal is printed with its reason. INDEX is a catalogue, or
    any package index with wheel variants (draft PEP 825): then only that place counts. Each wheel
    is pinned by its address and hash. Other requirements come from the package index that pip or uv
    is configured for. With --slim there is no catalogue: the packages come from the package index,
    and torch and NVIDIA's libraries are slimmed before they are installed.

    \b
    stoker install flash-attn
    stoker install -r requirements.txt --catalogue https://wheels.example.org
    stoker install https://wheels.example.org torch flash-attn
    stoker install /srv/wheels torch==2.9.1 --print
    stoker install torch==2.9.1 --slim --for h100 --dry-run
    """
    from stoker.catalogue.finding import is_place
    from stoker.catalogue.installing import installer_for
    from stoker.machine.python import target_python

    if not words and not files:
        raise UsageError("name what to install", hints=["stoker install flash-attn"])
    alone = slim or (words and is_place(words[0]))
    if alone and (files or catalogues):
        what = "--slim" if slim else f"the catalogue {words[0]}"
        hints = ["name a catalogue with --catalogue, and requirements without INDEX"]
        raise UsageError(f"-r and --catalogue cannot be used with {what}", hints=hints)
    chosen = installer_for(target := target_python(python), installer)
    output = {"only_print": only_print, "dry_run": dry_run, "as_json": as_json}
    if slim:
        _slim_install(words, chosen, target, wished, **output)
    elif alone:
        _install_from(words, chosen, target, wished, **output)
    else:
        _find_and_install(words, files, catalogues, chosen, target, wished, **output)


def _install_from(
    words: tuple[str, ...],
    installer: "Installer",
    python: str,
    wished: str | None,
    *,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, install, install_command, select
    from stoker.catalogue.shown import selection_page
    from stoker.outside.progress import shown
    from stoker.outside.terminal import print_json, show

    if len(words) < 2:
        hints = ["stoker install INDEX torch", "stoker install torch==2.9.1 --slim"]
        raise UsageError("name what to install from the catalogue", hints=hints)
    located, selection = select(words[0], words[1:], python=python, wished=wished)
    if only_print:
        click.echo(command_line(install_command(located, selection, installer)))
        return
    if dry_run:
        print_json(selection) if as_json else show(selection_page(selection))
        return
    check_installable(selection.host, python)
    for wheel in selection.wheels:
        _say(f"{wheel.file} of {wheel.variant}")
    _say(selection.reason)
    with shown():
        install(located, selection, installer, say=_say)
    if as_json:
        print_json(selection.wheels, "wheels")


def _find_and_install(
    words: tuple[str, ...],
    files: tuple[Path, ...],
    catalogues: tuple[str, ...],
    installer: "Installer",
    python: str,
    wished: str | None,
    *,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from stoker.catalogue.finding import find, nothing_fits, read_place
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, read_supply, run_installer, wanted_by
    from stoker.model.value import size
    from stoker.outside.progress import shown, stage
    from stoker.outside.terminal import print_json

    place, supply = read_place(python, wished), read_supply(catalogues, _install_settings())
    found = []
    for one in wanted_by(words, files, place.host):
        with shown(), stage(f"looking for {one}"):
            result = find(one, place, supply, say=_say)
        if result.best is None:
            raise nothing_fits(result)
        best = result.best.choice
        received = size(result.downloaded_bytes)
        _say(f"{best.wheel.file}: {best.reason}; {received} read of {len(result.judged)} wheels")
        found.append(result)
    command = installer.install([one.reference for one in found])
    if only_print:
        click.echo(command_line(command))
        return
    if not dry_run:
        check_installable(place.host, python)
        with shown(), stage("installing"):
            run_installer(command, _say)
    if as_json:
        print_json(found, "found")


def _install_settings() -> "InstallSettings":
    """Return the table of stoker.toml, and tell what of it is ignored."""
    from stoker.cli.chosen import told_options
    from stoker.settings.declared import CommandLine

    return told_options(CommandLine()).install


def _say(text: str) -> None:
    from stoker.outside import progress

    progress.say(text)


def _slim_install(
    words: tuple[str, ...],
    installer: "Installer",
    python: str,
    wished: str | None,
    *,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from stoker.catalogue.shown import downloads_page
    from stoker.catalogue.slim_install import resolve, slim_install, slim_targets
    from stoker.model.value import size
    from stoker.outside.progress import shown
    from stoker.outside.terminal import print_json, show

    if only_print:
        raise UsageError("--print cannot be used with --slim, which needs more than one command")
    targets = slim_targets(wished, python)
    if dry_run:
        downloads = resolve(words, installer)
        print_json(downloads, "downloads") if as_json else show(downloads_page(downloads))
        return
    with shown():
        done = slim_install(words, targets, installer, say=_say)
    if as_json:
        print_json(done, "wheels")
    before, after = sum(one.before_bytes for one in done), sum(one.after_bytes for one in done)
    _say(f"wheels with device code: {size(before)} -> {size(after)}")
