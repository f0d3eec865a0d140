"""`stoker install` without a catalogue: the wheels that fit, of all places, and a build where none
does. Only this way imports what builds.
"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from stoker.builds.building import Built
from stoker.builds.obtaining import Building, BuildWish, ObtainedBuild, obtain
from stoker.catalogue.finding import Found, pinned, read_place
from stoker.catalogue.host import check_installable
from stoker.catalogue.installing import ASIDE, read_supply, run_installer, wanted_by
from stoker.catalogue.judging import Place
from stoker.catalogue.locking import pyproject_lines, resolved_lock, write_lock
from stoker.catalogue.prewarming import Prewarming, prewarmings
from stoker.cli.build import build
from stoker.cli.build_options import Part, taken
from stoker.cli.building import build_with
from stoker.cli.governed import run_governed
from stoker.cli.install import InstallOptions
from stoker.cli.installing import install_settings, print_commands, tell_unchecked
from stoker.machine.installers import Installer
from stoker.model.errors import UsageError
from stoker.outside import folders
from stoker.outside.files import folder_of_process
from stoker.outside.long_work import say, shown, stage
from stoker.outside.terminal import print_json


def find_or_build(
    options: InstallOptions, python: str, installer: Installer, settings: dict[str, Any]
) -> int:
    """Install the wheels that fit, of all places, and build what has none; with --prewarm compile
    kernels after that.
    """
    place = read_place(python, options.wished)
    supply = read_supply(options.catalogues, install_settings())
    tell_unchecked(supply.catalogues)
    printed_only = options.only_print or options.lines
    dry = options.dry_run or printed_only
    if options.wished and not dry:
        check_installable(place.host, python)
    wanted = wanted_by(options.words, options.files, place.host)
    warm: tuple[Prewarming, ...] = ()
    if options.prewarm:
        names = [one.name for one in wanted]
        warm = prewarmings(names, place.host.gpus, python, options.kernels)
    wish = _wish(options, settings)
    obtained = [obtain(one, place, supply, python, wish, dry_run=dry, say=say) for one in wanted]
    results = [result for result, _ in obtained]
    found = [result for result in results if result.best]
    if len(found) < len(results) and (printed_only or options.lock):
        hints = ["install it once; the wheel is kept"]
        raise UsageError("what is not built yet has no address and no hash", hints=hints)
    if not options.dry_run:
        found = [pinned(one, place, supply, say=say) for one in found]
    command = installer.install([one.reference for one in found])
    if options.lines:
        click.echo("\n".join(pyproject_lines(found)))
        return 0
    if options.only_print:
        warming = (["stoker", "run", "--", *one.command] for one in warm)
        print_commands([command, *warming], supply.index.web)
        return 0
    if options.lock:
        _write_lock(options.lock, found, place, installer)
    if not options.dry_run:
        with shown(), stage("installing"):
            run_installer(command, say, supply.index.web)
    if options.as_json:
        builds = [plan for _, plan in obtained if plan]
        print_json({"found": results, "builds": builds, "prewarmed": warm})
    return _prewarm(warm, settings, dry_run=options.dry_run)


def _wish(options: InstallOptions, settings: dict[str, Any]) -> BuildWish:
    if options.no_build:
        when = Building.NEVER
    else:
        when = Building.ALWAYS if options.only_build else Building.IF_NONE
    build = partial(_built, settings)
    return BuildWish(when, options.isolation, bool(options.keep_targets), build)


def _built(settings: dict[str, Any], plan: ObtainedBuild) -> Built:
    """Build as `stoker build` does, with the settings for governed runs of this command."""
    out = folders.cache() / "install" / "built"
    words = [plan.source.requirement, "--variant", plan.variant, "--python", plan.python]
    words += ["--out", str(out)]
    words += ["--isolation", plan.isolation.value] if plan.isolation else []
    words += ["--keep-targets"] if plan.keep_targets else []
    options = build.make_context("stoker build", words).params | settings
    taken(options, Part.CONTAINER)
    return build_with(options)


def _write_lock(path: Path, found: list[Found], place: Place, installer: Installer) -> None:
    with shown(), stage("locking"), folder_of_process(folders.cache() / "install", ASIDE) as work:
        made = resolved_lock(found, place, installer, work)
    write_lock(made, path)
    say(f"{path}: {len(made.packages)} packages")


def _prewarm(warm: tuple[Prewarming, ...], settings: dict[str, Any], *, dry_run: bool) -> int:
    """Compile kernels in governed runs; return the status of the first that fails."""
    for one in warm:
        say(one.in_words)
        if dry_run:
            continue
        status = run_governed(
            one.command, respect_jobs=False, summary_file=None, explain=False, **settings
        )
        if status:
            return status
    return 0
