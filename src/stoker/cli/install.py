"""`stoker install`: install the best variant for a machine, or slim packages on the way."""

from typing import TYPE_CHECKING

import click

from stoker.model.errors import UsageError

if TYPE_CHECKING:
    from stoker.machine.installers import Installer
    from stoker.model.plan import GpuTarget


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[INDEX] REQUIREMENTS...")
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
    slim: bool,
    wished: str | None,
    python: str | None,
    installer: str | None,
    dry_run: bool,
    only_print: bool,
    as_json: bool,
) -> None:
    """Install the wheels that suit this machine and its PyTorch best.

    Without INDEX, the wheels of each project in the indexes of pip are judged by their names,
    metadata, symbols and device code, without downloading them whole, and each refusal is printed
    with its reason. INDEX is a catalogue, or any package index with wheel variants (draft PEP 825).
    Each wheel is pinned by its address and hash. Other requirements come from the package index
    that pip or uv is configured for. With --slim there is no catalogue: the packages come from the
    package index, and torch and NVIDIA's libraries are slimmed before they are installed.

    \b
    stoker install flash-attn
    stoker install https://wheels.example.org torch flash-attn
    stoker install /srv/wheels torch==2.9.1 --print
    stoker install torch==2.9.1 --slim --for h100 --dry-run
    """
    from stoker.catalogue.installing import installer_for
    from stoker.catalogue.slim_install import slim_targets
    from stoker.machine.python import target_python
    from stoker.outside.progress import shown
    from stoker.outside.terminal import print_json, show

    chosen = installer_for(target := target_python(python), installer)
    if slim:
        if only_print:
            raise UsageError(
                "--print cannot be used with --slim, which needs more than one command"
            )
        with shown():
            targets = slim_targets(wished, target)
            _slim_install(words, targets, chosen, dry_run=dry_run, as_json=as_json)
        return
    from stoker.catalogue.finding import is_place

    if not is_place(words[0]):
        _find_and_install(
            words,
            chosen,
            target,
            wished,
            only_print=only_print,
            dry_run=dry_run,
            as_json=as_json,
        )
        return
    if len(words) < 2:
        hints = ["stoker install INDEX torch", "stoker install torch==2.9.1 --slim"]
        raise UsageError("name what to install from the catalogue", hints=hints)
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, install, install_command, select
    from stoker.catalogue.shown import selection_page

    located, selection = select(words[0], words[1:], python=target, wished=wished)
    if only_print:
        click.echo(command_line(install_command(located, selection, chosen)))
        return
    if dry_run:
        print_json(selection) if as_json else show(selection_page(selection))
        return
    check_installable(selection.host, target)
    for wheel in selection.wheels:
        _say(f"{wheel.file} of {wheel.variant}")
    _say(selection.reason)
    with shown():
        install(located, selection, chosen, say=_say)
    if as_json:
        print_json(selection.wheels, "wheels")


def _find_and_install(
    words: tuple[str, ...],
    installer: "Installer",
    python: str,
    wished: str | None,
    *,
    only_print: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from stoker.catalogue.choosing import read_word
    from stoker.catalogue.finding import find, nothing_fits, read_place
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, run_installer
    from stoker.model.value import size
    from stoker.outside.package_index import read_index
    from stoker.outside.progress import shown, stage
    from stoker.outside.terminal import print_json

    wanted = [read_word(word) for word in words]
    place, index = read_place(python, wished), read_index()
    found = []
    for one in wanted:
        with shown(), stage(f"looking for {one}"):
            result = find(one, place, index, say=_say)
        if result.best is None:
            raise nothing_fits(one, result.judged)
        best = result.best.choice
        received = size(result.downloaded_bytes)
        _say(f"{best.wheel.file}: {best.reason}; {received} read of {len(result.judged)} wheels")
        found.append(result)
    command = installer.install([one.best.reference for one in found if one.best])
    if only_print:
        click.echo(command_line(command))
        return
    if not dry_run:
        check_installable(place.host, python)
        with shown(), stage("installing"):
            run_installer(command, _say)
    if as_json:
        print_json(found, "found")


def _say(text: str) -> None:
    from stoker.outside import progress

    progress.say(text)


def _slim_install(
    words: tuple[str, ...],
    targets: "tuple[GpuTarget, ...]",
    installer: "Installer",
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from stoker.catalogue.shown import downloads_page
    from stoker.catalogue.slim_install import resolve, slim_install
    from stoker.model.value import size
    from stoker.outside.terminal import print_json, show

    if dry_run:
        downloads = resolve(words, installer)
        print_json(downloads, "downloads") if as_json else show(downloads_page(downloads))
        return
    done = slim_install(words, targets, installer, say=_say)
    if as_json:
        print_json(done, "wheels")
    before, after = sum(one.before_bytes for one in done), sum(one.after_bytes for one in done)
    _say(f"wheels with device code: {size(before)} -> {size(after)}")
