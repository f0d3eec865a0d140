"""The four ways of `stoker install`, which of them its options choose, and what each prints.

A module of its own, so that `stoker install --help` imports no feature. Only the way that may build
imports what builds.
"""

import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stoker.catalogue.access import LocatedCatalogue
from stoker.catalogue.finding import Found, is_place, read_place
from stoker.catalogue.host import check_installable
from stoker.catalogue.installing import (
    ASIDE,
    install,
    installer_for,
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
from stoker.catalogue.prewarming import Prewarming, prewarmings
from stoker.catalogue.shown import downloads_page, selection_page
from stoker.catalogue.slim_install import resolve, slim_install, slim_targets
from stoker.cli.chosen import told_options
from stoker.machine.installers import Installer
from stoker.machine.python import target_python
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
    from stoker.builds.obtaining import ObtainedBuild


class InstallOptions(NamedTuple):
    """The arguments of `stoker install` that are its own, by the names that its options have."""

    words: tuple[str, ...]
    files: tuple[Path, ...]
    catalogues: tuple[str, ...]
    no_build: bool
    only_build: bool
    lock: Path | None
    locked: Path | None
    lines: bool
    slim: bool
    prewarm: bool
    kernels: tuple[str, ...]
    wished: str | None
    python: str | None
    installer: str | None
    dry_run: bool
    only_print: bool
    as_json: bool
    isolation: str | None
    keep_targets: bool | None

    @property
    def from_one_place(self) -> bool:
        """Whether INDEX or --slim names the only place that counts."""
        return self.slim or bool(self.words and is_place(self.words[0]))


class _Target(NamedTuple):
    """The Python that is installed for, and what installs."""

    python: str
    installer: Installer


def install_with(options: InstallOptions, settings: dict[str, Any]) -> int:
    """Install in the way that the options choose, and return the exit status. ``settings`` are
    those of governed runs.
    """
    _check(options)
    python = target_python(options.python)
    target = _Target(python, installer_for(python, options.installer))
    if options.locked:
        _from_lock(options.locked, options, target)
    elif options.slim:
        _slimmed(options, target)
    elif options.from_one_place:
        _from_catalogue(options, target)
    else:
        return _found_or_built(options, target, settings)
    return 0


def _check(options: InstallOptions) -> None:
    """Refuse options that do not belong together."""
    if options.locked and (options.words or options.files or options.lock or options.prewarm):
        raise UsageError("--locked installs what the file names, and nothing else")
    if not (options.locked or options.words or options.files):
        raise UsageError("name what to install", hints=["stoker install flash-attn"])
    for word in options.words:
        if word.endswith(".whl") or word.startswith("git+"):
            hints = ["a file or an address: pip install, or uv pip install"]
            hints.append("a source tree: `stoker build` makes a wheel of it")
            raise UsageError(f"'{word}' is not the name of a project", hints=hints)
    if options.no_build and options.only_build:
        raise UsageError("--no-build and --only-build exclude each other")
    if options.kernels and not options.prewarm:
        raise UsageError("--kernels chooses what --prewarm compiles, so it needs --prewarm")
    of_all_places = (options.files, options.catalogues, options.only_build, options.lock)
    if options.from_one_place and any((*of_all_places, options.lines, options.prewarm)):
        what = "--slim" if options.slim else f"the catalogue {options.words[0]}"
        raise UsageError(
            "-r, --catalogue, --only-build, --lock, --lines and --prewarm cannot be used with "
            f"{what}",
            hints=["name a catalogue with --catalogue, and requirements without INDEX"],
        )


def _from_lock(path: Path, options: InstallOptions, target: _Target) -> None:
    """Install exactly what a pylock.toml names."""
    read = read_lock(path)
    command = locked_install(read, target.installer)
    if options.only_print:
        click.echo(shlex.join(command))
        return
    if not options.dry_run:
        with shown(), stage("installing"):
            run_installer(command, say)
    if options.as_json:
        print_json(read.packages, "packages")


def _slimmed(options: InstallOptions, target: _Target) -> None:
    """Install packages of the package index, slimmed for a machine."""
    if options.only_print:
        raise UsageError("--print cannot be used with --slim, which needs more than one command")
    targets = slim_targets(options.wished, target.python)
    if options.dry_run:
        downloads = resolve(options.words, target.installer)
        print_json(downloads, "downloads") if options.as_json else show(downloads_page(downloads))
        return
    with shown():
        done = slim_install(options.words, targets, target.installer, say=say)
    if options.as_json:
        print_json(done, "wheels")
    before, after = sum(one.before_bytes for one in done), sum(one.after_bytes for one in done)
    say(f"wheels with device code: {size(before)} -> {size(after)}")


def _from_catalogue(options: InstallOptions, target: _Target) -> None:
    """Install from the catalogue that the first word names, and from no other place."""
    index, *words = options.words
    if not words:
        hints = ["stoker install INDEX torch", "stoker install torch==2.9.1 --slim"]
        raise UsageError("name what to install from the catalogue", hints=hints)
    located, selection = select(
        index, words, python=target.python, wished=options.wished, settings=_install_settings()
    )
    _tell_unchecked([located])
    if options.only_print:
        click.echo(shlex.join(wheels_command(located, selection, target.installer)))
        return
    if options.dry_run:
        print_json(selection) if options.as_json else show(selection_page(selection))
        return
    if options.wished:
        check_installable(selection.host, target.python)
    for wheel in selection.wheels:
        say(f"{wheel.file} of {wheel.variant}")
    say(selection.reason)
    with shown():
        install(located, selection, target.installer, say=say)
    if options.as_json:
        print_json(selection.wheels, "wheels")


def _found_or_built(options: InstallOptions, target: _Target, settings: dict[str, Any]) -> int:
    """Install the wheels that fit, of all places, and build what has none; with --prewarm compile
    kernels after that.
    """
    from stoker.builds.obtaining import Building, BuildWish, obtain
    from stoker.cli.governed import run_governed

    if options.no_build:
        when = Building.NEVER
    else:
        when = Building.ALWAYS if options.only_build else Building.IF_NONE
    build = partial(_built, settings)
    wish = BuildWish(when, options.isolation, bool(options.keep_targets), build)
    place = read_place(target.python, options.wished)
    supply = read_supply(options.catalogues, _install_settings())
    _tell_unchecked(supply.catalogues)
    dry = options.dry_run or options.only_print or options.lines
    if options.wished and not dry:
        check_installable(place.host, target.python)
    wanted = wanted_by(options.words, options.files, place.host)
    names = [one.name for one in wanted]
    warm: Sequence[Prewarming] = ()
    if options.prewarm:
        warm = prewarmings(names, place.host.gpus, target.python, options.kernels)
    plans: list[ObtainedBuild] = []
    results: list[Found] = []
    for requirement in wanted:
        result, plan = obtain(requirement, place, supply, target.python, wish, dry_run=dry, say=say)
        results.append(result)
        plans += [plan] if plan else []
    found = [one for one in results if one.best]
    command = target.installer.install([one.reference for one in found])
    if (options.only_print or options.lines or options.lock) and dry and len(found) < len(results):
        hints = ["install it once; the wheel is kept"]
        raise UsageError("what is not built yet has no address and no hash", hints=hints)
    if options.lines:
        click.echo("\n".join(pyproject_lines(found)))
        return 0
    if options.only_print:
        click.echo(shlex.join(command))
        for one in warm:
            click.echo(shlex.join(["stoker", "run", "--", *one.command]))
        return 0
    if options.lock:
        _write_lock(options.lock, found, place, target.installer)
    if not options.dry_run:
        with shown(), stage("installing"):
            run_installer(command, say)
    if options.as_json:
        print_json({"found": results, "builds": plans, "prewarmed": warm})
    for one in warm:
        say(one.in_words)
        if options.dry_run:
            continue
        status = run_governed(
            one.command, respect_jobs=False, summary_file=None, explain=False, **settings
        )
        if status:
            return status
    return 0


def _write_lock(path: Path, found: list[Found], place: Place, installer: Installer) -> None:
    with shown(), stage("locking"), folder_of_process(folders.cache() / "install", ASIDE) as work:
        made = resolved_lock(found, place, installer, work)
    write_lock(made, path)
    say(f"{path}: {len(made.packages)} packages")


def _built(settings: dict[str, Any], plan: "ObtainedBuild") -> "Built":
    """Build as `stoker build` does, with the settings for governed runs of this command."""
    from stoker.cli.build import build
    from stoker.cli.build_options import Part, taken
    from stoker.cli.building import build_with

    out = folders.cache() / "install" / "built"
    words = [plan.source.requirement, "--variant", plan.variant, "--python", plan.python]
    words += ["--out", str(out)]
    words += ["--isolation", plan.isolation.value] if plan.isolation else []
    words += ["--keep-targets"] if plan.keep_targets else []
    options = build.make_context("stoker build", words).params | settings
    taken(options, Part.CONTAINER)
    return build_with(options)


def _install_settings() -> InstallSettings:
    """Return the table of stoker.toml, and tell what of it is ignored."""
    return told_options(CommandLine()).install


def _tell_unchecked(catalogues: Iterable[LocatedCatalogue]) -> None:
    """Tell that the signature of a catalogue was not checked."""
    for located in catalogues:
        if located.note:
            say(f"note: {located.note}")
