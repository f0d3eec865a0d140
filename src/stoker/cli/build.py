"""`stoker build`: from a source tree to a checked wheel."""

from typing import Any

import click

from stoker.cli.containing import container_options
from stoker.cli.request import request_options, setting_options
from stoker.settings.declared import Group


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(Group.BUILD)
@click.option("--target", metavar="T", help="Only this target of the build tool; no wheel.")
@click.option("--install-tree", is_flag=True, help="An installed tree instead of a wheel.")
@click.option("--tag", metavar="NAME", help="The tag, branch or commit, if SOURCE is git.")
@click.option("--fresh", is_flag=True, help="Forget what earlier builds made.")
@click.option("--build-in-ram", "in_ram", is_flag=True, help="Keep the build folder in memory.")
@click.option("--from-record", metavar="FILE", help="Repeat a build: its record, or its wheel.")
@click.option("--verbose", is_flag=True, help="Show all output, and have the tools say all.")
@click.option("--shell-on-failure", is_flag=True, help="A shell where a stage has failed.")
@click.option("--json", "as_json", is_flag=True, help="The record of the build as JSON.")
@container_options
@setting_options(Group.GOVERN)
def command(**options: Any) -> None:
    """Build SOURCE, or the folder we are in, into a checked wheel.

    \b
    stoker build                          the tree in this folder, for this machine
    stoker build pytorch --variant h100   another tree, for an H100
    stoker build torch-scatter==2.1.2 --variant cpu
    stoker build --target torch_cpu       one target of ninja, no wheel
    stoker build --container --memory 8G  in a container with so much memory

    A build that was stopped, in whatever way, goes on where it was. What nothing has changed for is
    not done again.
    """
    from stoker.cli.building import perform
    from stoker.cli.containing import NAMES, perform_inside

    if options["container"] is not None:
        perform_inside(options)
    else:
        perform({name: value for name, value in options.items() if name not in NAMES})
