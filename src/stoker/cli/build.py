"""`stoker build` and `stoker develop`: from a source tree to a checked wheel, or to work on it."""

from pathlib import Path
from typing import Any

import click

from stoker.cli.containing import container_options
from stoker.cli.request import Option, request_options, setting_options
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.BUILD)
@click.option("--target", metavar="T", help="Build only this target of ninja, and no wheel.")
@click.option(
    "--install-tree",
    is_flag=True,
    default=None,  # a record may have it
    help="Make an installed tree instead of a wheel.",
    cls=Option,
    rare=True,
)
@click.option(
    "--tag",
    metavar="NAME",
    help="Tag, branch or commit of a git SOURCE.",
    cls=Option,
    local=True,
)
@click.option(
    "--checkpoint",
    metavar="FOLDER|URL",
    help="Keep objects and times there, so that a job on another machine continues the build.",
    cls=Option,
    rare=True,
    local=True,
)
@click.option(
    "--checkpoint-size",
    metavar="SIZE",
    default="20G",
    help="Objects that a checkpoint in a folder may hold; the oldest are deleted. Default: 20G.",
    cls=Option,
    rare=True,
    local=True,
)
@click.option(
    "--shard",
    metavar="K/N",
    help="With --checkpoint: compile the K-th of N parts, and do not link.",
    cls=Option,
    rare=True,
    local=True,
)
@click.option(
    "--finish",
    is_flag=True,
    help="With --checkpoint: link and pack what the shards have compiled.",
    cls=Option,
    rare=True,
    local=True,
)
@click.option("--fresh", is_flag=True, help="Start from the beginning.")
@click.option(
    "--build-in-ram",
    "in_ram",
    is_flag=True,
    default=None,
    help="Keep the build folder in memory.",
    cls=Option,
    rare=True,
)
@click.option(
    "--from-record",
    metavar="FILE",
    help="Repeat the build of this record or wheel.",
    cls=Option,
    rare=True,
)
@click.option("--verbose", is_flag=True, help="Show the full output of all tools.")
@click.option(
    "--shell-on-failure",
    is_flag=True,
    help="Open a shell when a stage fails.",
    cls=Option,
    rare=True,
)
@click.option("--report", is_flag=True, help="Write report.html into the run folder.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the stages to this file as JUnit XML.",
    cls=Option,
    rare=True,
    local=True,
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the record as JSON, also on failure.",
    cls=Option,
    local=True,
)
@container_options
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
    from stoker.cli.building import perform
    from stoker.cli.containing import NAMES, perform_inside

    if options["container"] is not None:
        if options["checkpoint"]:
            hints = ["run stoker itself in a container, as `stoker export` does"]
            raise UsageError("--checkpoint cannot be used with --container", hints=hints)
        perform_inside(options)
    else:
        perform({name: value for name, value in options.items() if name not in NAMES})


@click.command()
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.BUILD, without=("out", "mode", "label", "torch"))
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
def develop(**options: Any) -> None:
    """Build SOURCE, or the current folder, and install it in editable mode.

    \b
    stoker develop pytorch --variant cpu
    stoker develop --linker auto

    After a change, the same command compiles what has changed and links. A CMake project without
    Python is compiled and stays in its build folder.
    """
    from stoker.cli.building import perform

    perform(options, editable=True)
