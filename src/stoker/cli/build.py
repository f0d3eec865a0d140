"""`stoker build` and `stoker develop`: from a source tree to a checked wheel, or to work on it."""

from typing import Any

import click

from stoker.cli.build_options import Part, build_options, taken
from stoker.cli.request import request_options, setting_options
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.BUILD)
@build_options()
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
def build(**options: Any) -> None:
    """Build SOURCE, or the current folder, into a checked wheel.

    \b
    stoker build                          the tree in this folder, for this machine
    stoker build pytorch --variant h100   another tree, for an H100
    stoker build torch-scatter==2.1.2 --variant cpu
    stoker build --target torch_cpu       one target of ninja, no wheel
    stoker build --container --memory 8G  in a container with this memory limit
    stoker build --checkpoint /shared/x --shard 3/8   the third of eight jobs

    The same command resumes a build that was interrupted or failed. Stages whose inputs are
    unchanged are skipped.
    """
    from stoker.cli.building import build_and_print
    from stoker.cli.containing import perform_inside

    wanted = taken(options, Part.CONTAINER)
    if wanted["container"] is None:
        build_and_print(options)
        return
    if options["checkpoint"]:
        hints = ["run stoker itself in a container, as `stoker export` does"]
        raise UsageError("--checkpoint cannot be used with --container", hints=hints)
    perform_inside(options, wanted)


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.BUILD, without=("out", "mode", "label", "torch", "torch_index"))
@build_options(develop=True)
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
def develop(**options: Any) -> None:
    """Build SOURCE, or the current folder, and install it in editable mode.

    \b
    stoker develop pytorch --variant cpu
    stoker develop --linker mold

    After a change, the same command compiles what has changed and links. A CMake project without
    Python is compiled and stays in its build folder.
    """
    from stoker.cli.building import build_and_print

    build_and_print(options, editable=True)
