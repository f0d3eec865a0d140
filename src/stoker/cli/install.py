"""`stoker install`: its options, and which of four ways to install they choose."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from stoker.cli.request import setting_options
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup


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

    if locked and (words or files or lock or prewarm):
        raise UsageError("--locked installs what the file names, and nothing else")
    if not (locked or words or files):
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
    from stoker.catalogue.installing import installer_for
    from stoker.cli import installing
    from stoker.machine.python import target_python

    target = target_python(python)
    call = installing.Call(
        installer_for(target, installer), target, wished, only_print, dry_run, as_json
    )
    if locked:
        installing.from_lock(locked, call)
    elif slim:
        installing.slimmed(words, call)
    elif alone:
        installing.from_catalogue(words, call)
    else:
        from stoker.builds.obtaining import Building, BuildWish

        when = Building.NEVER if no_build else Building.ALWAYS if only_build else Building.IF_NONE
        return installing.found_or_built(
            words,
            files,
            catalogues,
            call,
            BuildWish(when, isolation, bool(keep_targets), partial(installing.built, settings)),
            lock=lock,
            lines=lines,
            kernels=kernels if prewarm else None,
            settings=settings,
        )
    return 0
