"""The four ways of `stoker install`, each from its arguments to what it prints.

A module of its own, so that `stoker install --help` imports no feature. Only the way that may build
imports what builds.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stoker.catalogue.access import LocatedCatalogue
from stoker.catalogue.finding import Found, read_place
from stoker.catalogue.host import check_installable
from stoker.catalogue.installing import (
    ASIDE,
    install,
    read_supply,
    run_installer,
    select,
    wanted_by,
    wheels_command,
)
from stoker.catalogue.judging import Place
from stoker.catalogue.locking import (
    locked_install,
    pyproject_lines,
    read_lock,
    resolved_lock,
    write_lock,
)
from stoker.catalogue.prewarming import prewarmings
from stoker.catalogue.shown import downloads_page, selection_page
from stoker.catalogue.slim_install import resolve, slim_install, slim_targets
from stoker.cli.chosen import told_options
from stoker.machine.installers import Installer
from stoker.model.errors import UsageError
from stoker.model.value import size
from stoker.outside import folders
from stoker.outside.files import folder_of_process
from stoker.outside.long_work import say, shown, stage
from stoker.outside.terminal import print_json, show
from stoker.settings.declared import CommandLine
from stoker.settings.tables import InstallSettings

if TYPE_CHECKING:
    from stoker.builds.building import Built
    from stoker.builds.obtaining import BuildWish, ObtainedBuild


class Call(NamedTuple):
    """What all ways to install need: with what, for whom, and how much of it."""

    installer: Installer
    python: str
    wished: str | None
    only_print: bool
    dry_run: bool
    as_json: bool


def from_lock(path: Path, call: Call) -> None:
    """Install exactly what a pylock.toml names."""
    read = read_lock(path)
    command = locked_install(read, call.installer)
    if call.only_print:
        click.echo(shlex.join(command))
        return
    if not call.dry_run:
        with shown(), stage("installing"):
            run_installer(command, say)
    if call.as_json:
        print_json(read.packages, "packages")


def slimmed(words: tuple[str, ...], call: Call) -> None:
    """Install packages of the package index, slimmed for a machine."""
    if call.only_print:
        raise UsageError("--print cannot be used with --slim, which needs more than one command")
    targets = slim_targets(call.wished, call.python)
    if call.dry_run:
        downloads = resolve(words, call.installer)
        print_json(downloads, "downloads") if call.as_json else show(downloads_page(downloads))
        return
    with shown():
        done = slim_install(words, targets, call.installer, say=say)
    if call.as_json:
        print_json(done, "wheels")
    before, after = sum(one.before_bytes for one in done), sum(one.after_bytes for one in done)
    say(f"wheels with device code: {size(before)} -> {size(after)}")


def from_catalogue(words: tuple[str, ...], call: Call) -> None:
    """Install from the catalogue that the first word names, and from no other place."""
    if len(words) < 2:
        hints = ["stoker install INDEX torch", "stoker install torch==2.9.1 --slim"]
        raise UsageError("name what to install from the catalogue", hints=hints)
    located, selection = select(
        words[0], words[1:], python=call.python, wished=call.wished, settings=_install_settings()
    )
    _tell_unchecked([located])
    if call.only_print:
        click.echo(shlex.join(wheels_command(located, selection, call.installer)))
        return
    if call.dry_run:
        print_json(selection) if call.as_json else show(selection_page(selection))
        return
    check_installable(selection.host, call.python)
    for wheel in selection.wheels:
        say(f"{wheel.file} of {wheel.variant}")
    say(selection.reason)
    with shown():
        install(located, selection, call.installer, say=say)
    if call.as_json:
        print_json(selection.wheels, "wheels")


def found_or_built(
    words: tuple[str, ...],
    files: tuple[Path, ...],
    catalogues: tuple[str, ...],
    call: Call,
    wish: "BuildWish",
    *,
    lock: Path | None,
    lines: bool,
    kernels: tuple[str, ...] | None,
    settings: dict[str, Any],
) -> int:
    """Install the wheels that fit, of all places, and build what has none; with ``kernels`` compile
    kernels after that. Return the exit status. ``settings`` are those of governed runs.
    """
    from stoker.builds.obtaining import obtain
    from stoker.cli.governed import run_governed

    place = read_place(call.python, call.wished)
    supply = read_supply(catalogues, _install_settings())
    _tell_unchecked(supply.catalogues)
    dry = call.dry_run or call.only_print or lines
    if not dry:
        check_installable(place.host, call.python)
    wanted = wanted_by(words, files, place.host)
    names = [one.name for one in wanted]
    warm = () if kernels is None else prewarmings(names, place.host.gpus, call.python, kernels)
    plans: list[ObtainedBuild] = []
    results: list[Found] = []
    for requirement in wanted:
        result, plan = obtain(requirement, place, supply, call.python, wish, dry_run=dry, say=say)
        results.append(result)
        plans += [plan] if plan else []
    found = [one for one in results if one.best]
    command = call.installer.install([one.reference for one in found])
    if (call.only_print or lines or lock) and dry and len(found) < len(results):
        hints = ["install it once; the wheel is kept"]
        raise UsageError("what is not built yet has no address and no hash", hints=hints)
    if lines:
        click.echo("\n".join(pyproject_lines(found)))
        return 0
    if call.only_print:
        click.echo(shlex.join(command))
        for one in warm:
            click.echo(shlex.join(["stoker", "run", "--", *one.command]))
        return 0
    if lock:
        _write_lock(lock, found, place, call.installer)
    if not call.dry_run:
        with shown(), stage("installing"):
            run_installer(command, say)
    if call.as_json:
        print_json({"found": results, "builds": plans, "prewarmed": warm})
    for one in warm:
        say(one.in_words)
        if call.dry_run:
            continue
        status = run_governed(
            one.command, respect_jobs=False, summary_file=None, explain=False, **settings
        )
        if status:
            return status
    return 0


def _write_lock(path: Path, found: list[Found], place: Place, installer: Installer) -> None:
    with (
        shown(),
        stage("locking"),
        folder_of_process(folders.cache() / "install", ASIDE) as work,
    ):
        made = resolved_lock(found, place, installer, work)
    write_lock(made, path)
    say(f"{path}: {len(made.packages)} packages")


def built(settings: dict[str, Any], plan: "ObtainedBuild") -> "Built":
    """Build as `stoker build` does, with the settings for governed runs of this command."""
    from stoker.cli.build import build
    from stoker.cli.build_options import Part, taken
    from stoker.cli.building import performed

    out = folders.cache() / "install" / "built"
    words = [plan.source.requirement, "--variant", plan.variant, "--python", plan.python]
    words += ["--out", str(out)]
    words += ["--isolation", plan.isolation.value] if plan.isolation else []
    words += ["--keep-targets"] if plan.keep_targets else []
    options = build.make_context("stoker build", words).params | settings
    taken(options, Part.CONTAINER)
    return performed(options)


def _install_settings() -> InstallSettings:
    """Return the table of stoker.toml, and tell what of it is ignored."""
    return told_options(CommandLine()).install


def _tell_unchecked(catalogues: Iterable[LocatedCatalogue]) -> None:
    """Tell that the signature of a catalogue was not checked."""
    for located in catalogues:
        if located.note:
            say(f"note: {located.note}")
