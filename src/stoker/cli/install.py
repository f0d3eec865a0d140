"""`stoker install`: install the wheels that suit a machine, or slim packages on the way."""

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stoker.cli.request import setting_options
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.requirements import Requirement

    from stoker.builds.building import Built
    from stoker.builds.obtaining import ObtainedBuild
    from stoker.catalogue.access import LocatedCatalogue
    from stoker.catalogue.candidates import Supply
    from stoker.catalogue.finding import Found
    from stoker.catalogue.judging import Place
    from stoker.catalogue.prewarming import Prewarming
    from stoker.machine.installers import Installer
    from stoker.settings.tables import InstallSettings


class Call(NamedTuple):
    """What all ways to install need: with what, for whom, and how much of it."""

    installer: "Installer"
    python: str
    wished: str | None
    only_print: bool
    dry_run: bool
    as_json: bool


class Building(Enum):
    """When a project is built."""

    IF_NONE = "if no wheel fits"
    ALWAYS = "always"
    NEVER = "never"


class BuildWish(NamedTuple):
    """When and how a project is built; ``settings`` are those of governed runs."""

    when: Building
    isolation: str | None
    keep_targets: bool
    settings: dict[str, Any]


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
    "--no-build", is_flag=True, help="If no wheel fits, end with an error instead of a build."
)
@click.option("--only-build", is_flag=True, help="Build, also if there is a wheel that fits.")
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write what is installed to this pylock.toml, with everything that it requires.",
)
@click.option(
    "--locked",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Install exactly what this pylock.toml names.",
)
@click.option(
    "--lines", is_flag=True, help="Print lines for a pyproject.toml, and install nothing."
)
@click.option(
    "--slim",
    is_flag=True,
    help="Slim packages from the package index instead of using a catalogue.",
)
@click.option(
    "--prewarm",
    is_flag=True,
    help="Also compile the kernels that the packages would compile while they run.",
)
@click.option(
    "--kernels",
    multiple=True,
    metavar="PATTERN",
    help="With --prewarm: only the kernels with such a name. Default: all.",
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
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
@setting_options(SettingGroup.BUILD, only=["isolation"])
@setting_options(SettingGroup.PLAN, only=["keep_targets"])
def install(
    words: tuple[str, ...],
    files: tuple[Path, ...],
    catalogues: tuple[str, ...],
    no_build: bool,
    only_build: bool,
    lock: Path | None,
    locked: Path | None,
    lines: bool,
    slim: bool,
    prewarm: bool,
    kernels: tuple[str, ...],
    wished: str | None,
    python: str | None,
    installer: str | None,
    dry_run: bool,
    only_print: bool,
    as_json: bool,
    isolation: str | None,
    keep_targets: bool | None,
    **settings: Any,
) -> int:
    """Install the wheels that suit this machine and its PyTorch best.

    Without INDEX, the wheels of each project in catalogues, in the indexes of pip and in other
    places that stoker knows are judged by their names, metadata, symbols and device code, without
    downloading them whole, and each refusal is printed with its reason. If none fits, the project
    is built for exactly this machine, within its memory, and the wheel is kept: the next
    installation takes it. INDEX is a catalogue, or any package index with wheel variants (draft PEP
    825): then only that place counts. Each wheel is pinned by its address and hash. Other
    requirements come from the package index that pip or uv is configured for. With --slim there is
    no catalogue: the packages come from the package index, and torch and NVIDIA's libraries are
    slimmed before they are installed.

    \b
    stoker install flash-attn
    stoker install flash-attn --only-build --memory 16G
    stoker install -r requirements.txt --catalogue https://wheels.example.org
    stoker install flash-attn --lock pylock.toml
    stoker install --locked pylock.toml
    stoker install flashinfer-python --prewarm --kernels 'norm*' --for h100
    stoker install https://wheels.example.org torch flash-attn
    stoker install /srv/wheels torch==2.9.1 --print
    stoker install torch==2.9.1 --slim --for h100 --dry-run
    """
    from stoker.catalogue.finding import is_place
    from stoker.catalogue.installing import installer_for
    from stoker.machine.python import target_python

    def call() -> Call:
        target = target_python(python)
        chosen = installer_for(target, installer)
        return Call(chosen, target, wished, only_print, dry_run, as_json)

    if locked:
        if words or files or lock or prewarm:
            raise UsageError("--locked installs what the file names, and nothing else")
        _install_locked(locked, call())
        return 0
    if not words and not files:
        raise UsageError("name what to install", hints=["stoker install flash-attn"])
    for word in words:
        if word.endswith(".whl") or word.startswith("git+"):
            hints = ["a file or an address: pip install, or uv pip install"]
            hints.append("a source tree: `stoker build` makes a wheel of it")
            raise UsageError(f"'{word}' is not the name of a project", hints=hints)
    if no_build and only_build:
        raise UsageError("--no-build and --only-build exclude each other")
    if kernels and not prewarm:
        raise UsageError("--kernels chooses what --prewarm compiles, so it needs --prewarm")
    alone = slim or (words and is_place(words[0]))
    if alone and (files or catalogues or only_build or lock or lines or prewarm):
        what = "--slim" if slim else f"the catalogue {words[0]}"
        hints = ["name a catalogue with --catalogue, and requirements without INDEX"]
        raise UsageError(
            "-r, --catalogue, --only-build, --lock, --lines and --prewarm cannot be used with "
            f"{what}",
            hints=hints,
        )
    when = Building.NEVER if no_build else Building.ALWAYS if only_build else Building.IF_NONE
    if slim:
        _slim_install(words, call())
    elif alone:
        _install_from(words, call())
    else:
        return _find_and_install(
            words,
            files,
            catalogues,
            call(),
            BuildWish(when, isolation, bool(keep_targets), settings),
            lock=lock,
            lines=lines,
            kernels=kernels if prewarm else None,
        )
    return 0


def _install_from(words: tuple[str, ...], call: Call) -> None:
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, install, select, wheels_command
    from stoker.catalogue.shown import selection_page
    from stoker.outside.long_work import shown
    from stoker.outside.terminal import print_json, show

    if len(words) < 2:
        hints = ["stoker install INDEX torch", "stoker install torch==2.9.1 --slim"]
        raise UsageError("name what to install from the catalogue", hints=hints)
    settings = _install_settings()
    place = words[0]
    located, selection = select(
        place, words[1:], python=call.python, wished=call.wished, settings=settings
    )
    _note(located)
    if call.only_print:
        click.echo(command_line(wheels_command(located, selection, call.installer)))
        return
    if call.dry_run:
        print_json(selection) if call.as_json else show(selection_page(selection))
        return
    check_installable(selection.host, call.python)
    for wheel in selection.wheels:
        _say(f"{wheel.file} of {wheel.variant}")
    _say(selection.reason)
    with shown():
        install(located, selection, call.installer, say=_say)
    if call.as_json:
        print_json(selection.wheels, "wheels")


def _find_and_install(
    words: tuple[str, ...],
    files: tuple[Path, ...],
    catalogues: tuple[str, ...],
    call: Call,
    build: BuildWish,
    *,
    lock: Path | None,
    lines: bool,
    kernels: tuple[str, ...] | None,
) -> int:
    """Install, and with ``kernels`` compile kernels after that; return the exit status."""
    from stoker.catalogue.finding import read_place
    from stoker.catalogue.host import check_installable
    from stoker.catalogue.installing import command_line, read_supply, run_installer, wanted_by
    from stoker.catalogue.locking import pyproject_lines
    from stoker.catalogue.prewarming import prewarmings
    from stoker.outside.long_work import shown, stage
    from stoker.outside.terminal import print_json

    place = read_place(call.python, call.wished)
    supply = read_supply(catalogues, _install_settings())
    for located in supply.catalogues:
        _note(located)
    dry = call.dry_run or call.only_print or lines
    if not dry:
        check_installable(place.host, call.python)
    wanted = wanted_by(words, files, place.host)
    names = [one.name for one in wanted]
    warm = () if kernels is None else prewarmings(names, place.host.gpus, call.python, kernels)
    plans: list[ObtainedBuild] = []
    results = [
        _found_or_built(one, place, supply, call.python, build, plans, dry_run=dry)
        for one in wanted
    ]
    found = [one for one in results if one.best]
    command = call.installer.install([one.reference for one in found])
    if (call.only_print or lines or lock) and dry and len(found) < len(results):
        hints = ["install it once; the wheel is kept"]
        raise UsageError("what is not built yet has no address and no hash", hints=hints)
    if lines:
        click.echo("\n".join(pyproject_lines(found)))
        return 0
    if call.only_print:
        click.echo(command_line(command))
        for one in warm:
            click.echo(command_line(["stoker", "run", "--", *one.command]))
        return 0
    if lock:
        _write_lock(lock, found, place, call.installer)
    if not call.dry_run:
        with shown(), stage("installing"):
            run_installer(command, _say)
    if call.as_json:
        print_json({"found": results, "builds": plans, "prewarmed": warm})
    return _compile_kernels(warm, build.settings, dry_run=call.dry_run)


def _compile_kernels(
    warm: "Sequence[Prewarming]", settings: dict[str, Any], *, dry_run: bool
) -> int:
    """Compile kernels under the governor, project after project until one fails; return the exit
    status.
    """
    from stoker.cli.governed import run_governed

    for one in warm:
        _say(one.in_words)
        if dry_run:
            continue
        status = run_governed(
            one.command, respect_jobs=False, summary_file=None, explain=False, **settings
        )
        if status:
            return status
    return 0


def _write_lock(path: Path, found: "list[Found]", place: "Place", installer: "Installer") -> None:
    from stoker.catalogue.installing import ASIDE
    from stoker.catalogue.locking import resolved_lock, write_lock
    from stoker.outside import folders
    from stoker.outside.files import folder_of_process
    from stoker.outside.long_work import shown, stage

    with (
        shown(),
        stage("locking"),
        folder_of_process(folders.cache() / "install", ASIDE) as work,
    ):
        made = resolved_lock(found, place, installer, work)
    write_lock(made, path)
    _say(f"{path}: {len(made.packages)} packages")


def _install_locked(path: Path, call: Call) -> None:
    from stoker.catalogue.installing import command_line, run_installer
    from stoker.catalogue.locking import locked_install, read_lock
    from stoker.outside.long_work import shown, stage
    from stoker.outside.terminal import print_json

    read = read_lock(path)
    command = locked_install(read, call.installer)
    if call.only_print:
        click.echo(command_line(command))
        return
    if not call.dry_run:
        with shown(), stage("installing"):
            run_installer(command, _say)
    if call.as_json:
        print_json(read.packages, "packages")


def _found_or_built(
    wanted: "Requirement",
    place: "Place",
    supply: "Supply",
    python: str,
    build: BuildWish,
    plans: "list[ObtainedBuild]",
    *,
    dry_run: bool,
) -> "Found":
    """Return the wheel that fits, if need be one that is built; its plan is added
    to ``plans``. A dry run only says what a build would take.
    """
    from stoker.builds.obtaining import obtained, planned
    from stoker.catalogue.finding import find, find_source, nothing_fits
    from stoker.model.value import counted, size
    from stoker.outside.long_work import shown, stage

    with shown(), stage(f"looking for {wanted}"):
        if build.when is Building.ALWAYS:
            found = find_source(wanted, place, supply, say=_say)
        else:
            found = find(wanted, place, supply, say=_say)
    if found.best is not None:
        best, received = found.best.choice, size(found.downloaded_bytes)
        reason = "any machine can use it" if found.best.plain else best.reason
        _say(
            f"{best.wheel.file}: {reason}; {received} read of {counted(len(found.judged), 'wheel')}"
        )
        if found.source and found.source.is_newer_than(best.wheel.version):
            _say(f"{found.source.requirement} has no wheel that fits; name it to build it")
        return found
    if build.when is Building.NEVER or found.source is None:
        raise nothing_fits(found)
    if build.when is Building.IF_NONE:
        _say(nothing_fits(found).message)
    plan = planned(
        found, place, python, isolation=build.isolation, keep_targets=build.keep_targets, say=_say
    )
    plans.append(plan)
    _say(plan.in_words)
    if dry_run:
        return found
    return obtained(plan, found, place, partial(_built, settings=build.settings), say=_say)


def _built(plan: "ObtainedBuild", settings: dict[str, Any]) -> "Built":
    """Build as `stoker build` does, with the settings for governed runs of this command."""
    from stoker.cli.build import build
    from stoker.cli.build_options import Part, taken
    from stoker.cli.building import performed
    from stoker.outside import folders

    out = folders.cache() / "install" / "built"
    words = [plan.source.requirement, "--variant", plan.variant, "--python", plan.python]
    words += ["--out", str(out)]
    words += ["--isolation", plan.isolation.value] if plan.isolation else []
    words += ["--keep-targets"] if plan.keep_targets else []
    options = build.make_context("stoker build", words).params | settings
    taken(options, Part.CONTAINER)
    return performed(options)


def _install_settings() -> "InstallSettings":
    """Return the table of stoker.toml, and tell what of it is ignored."""
    from stoker.cli.chosen import told_options
    from stoker.settings.declared import CommandLine

    return told_options(CommandLine()).install


def _note(located: "LocatedCatalogue") -> None:
    """Tell that the signature of a catalogue was not checked."""
    if located.note:
        _say(f"note: {located.note}")


def _say(text: str) -> None:
    from stoker.outside import long_work

    long_work.say(text)


def _slim_install(words: tuple[str, ...], call: Call) -> None:
    from stoker.catalogue.shown import downloads_page
    from stoker.catalogue.slim_install import resolve, slim_install, slim_targets
    from stoker.model.value import size
    from stoker.outside.long_work import shown
    from stoker.outside.terminal import print_json, show

    if call.only_print:
        raise UsageError("--print cannot be used with --slim, which needs more than one command")
    targets = slim_targets(call.wished, call.python)
    if call.dry_run:
        downloads = resolve(words, call.installer)
        print_json(downloads, "downloads") if call.as_json else show(downloads_page(downloads))
        return
    with shown():
        done = slim_install(words, targets, call.installer, say=_say)
    if call.as_json:
        print_json(done, "wheels")
    before, after = sum(one.before_bytes for one in done), sum(one.after_bytes for one in done)
    _say(f"wheels with device code: {size(before)} -> {size(after)}")
