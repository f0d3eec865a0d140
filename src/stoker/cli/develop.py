"""`stoker develop`: an editable build, for work on the source."""

from typing import Any

import click

from stoker.cli.request import request_options, setting_options
from stoker.settings.declared import SettingGroup


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.BUILD, without=("out", "mode", "label"))
@click.option("--fresh", is_flag=True, help="Start from the beginning.")
@click.option("--verbose", is_flag=True, help="Show the full output of all tools.")
@click.option("--shell-on-failure", is_flag=True, help="Open a shell when a stage fails.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the record as JSON, also on failure.",
)
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
def command(**options: Any) -> None:
    """Build SOURCE, or the current folder, and install it in editable mode.

    \b
    stoker develop pytorch --variant cpu
    stoker develop --linker auto

    After a change, the same command compiles what has changed and links. A CMake project without
    Python is compiled and stays in its build folder.
    """
    from stoker.cli.building import perform

    perform(options, editable=True)
