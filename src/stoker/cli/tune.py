"""`stoker tune`: measure on this project's own steps what would make its builds faster."""

from pathlib import Path
from typing import Any

import click

from stoker.cli.request import run_options, setting_options, with_settings
from stoker.settings.declared import OPTIONS, SettingGroup

_SETTINGS = ("memory", "keep_free", "cpus")
_OTHERS = tuple(name for name in OPTIONS if name not in _SETTINGS)


@click.command()
@click.argument(
    "place", type=click.Path(path_type=Path, readable=False), default=Path(), metavar="[BUILD]"
)
@click.option(
    "--steps", type=click.IntRange(1, 100), default=6, help="Compiles to measure. Default: 6."
)
@click.option(
    "--rounds", type=click.IntRange(1, 20), default=3, help="Times each is measured. Default: 3."
)
@click.option(
    "--budget",
    type=click.FloatRange(1),
    default=300.0,
    metavar="SECONDS",
    help="Time after which no further measurement starts. Default: 300.",
)
@click.option("--seed", type=int, default=0, help="Chooses the steps at random. Default: 0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every measurement.")
@setting_options(SettingGroup.GOVERN, without=_OTHERS)
def command(place: Path, as_json: bool, **options: Any) -> None:
    """Measure what would make the builds of a project faster, on a sample of its own steps.

    \b
    stoker tune build                        a build folder of ninja
    stoker tune pytorch                      a source tree that stoker has built
    stoker tune build --steps 20 --budget 1800

    BUILD must have been built once. Half of the compiles are the heaviest ones and half of them are
    chosen at random; the two heaviest links are measured, too. Everything is written to a temporary
    folder. For each difference that is larger than the noise, the setting for stoker.toml is shown.
    Linkers that are faster and make equivalent files are kept for `--linker auto`.
    """
    from stoker.accelerate.shown import page
    from stoker.accelerate.tuning import TuneOptions, tune
    from stoker.outside.terminal import print_json, show

    wanted = {name: options.pop(name) for name in ("steps", "rounds", "budget", "seed")}
    others = {name: OPTIONS[name].default for name in _OTHERS}
    found = tune(
        place,
        TuneOptions(**wanted),
        run_options(others | with_settings(options)),
        say=lambda text: click.echo(f"stoker: {text}", err=True),
    )
    print_json(found) if as_json else show(page(found))
