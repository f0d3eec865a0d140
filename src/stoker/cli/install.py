"""`stoker install`: its options. `installing.py` does what they say."""

from pathlib import Path
from typing import Any, NamedTuple

import click

from stoker.cli.request import setting_options
from stoker.settings.declared import SettingGroup


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
def install(**options: Any) -> int:
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
    from stoker.cli.installing import install_with

    own = {name: options.pop(name) for name in InstallOptions._fields}
    return install_with(InstallOptions(**own), options)
