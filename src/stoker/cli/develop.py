"""`stoker develop`: an editable build, for those who change the source."""

from typing import Any

import click

from stoker.cli.request import request_options, setting_options
from stoker.settings.declared import Group


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(Group.BUILD, without=("out", "mode", "label"))
@click.option("--fresh", is_flag=True, help="Forget what earlier builds made.")
@click.option("--verbose", is_flag=True, help="Show all output, and have the tools say all.")
@click.option("--shell-on-failure", is_flag=True, help="A shell where a stage has failed.")
@click.option("--json", "as_json", is_flag=True, help="The record of the build as JSON.")
@setting_options(Group.GOVERN)
def command(**options: Any) -> None:
    """Build SOURCE, or the folder we are in, and install it so that changes to it count.

    Repeated after a change it compiles what has changed, and links. A CMake project without Python
    is built, and stays in its build folder.
    """
    from stoker.cli.building import perform

    perform(options, editable=True)
