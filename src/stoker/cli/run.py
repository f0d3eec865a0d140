"""`stoker run`: run any build command under the governor."""

from typing import Any

import click

from stoker.cli.governed import FLAGS, GROUPS, run_governed
from stoker.cli.request import F, setting_options


def _options(function: F) -> F:
    """Add the options that ``governed`` declares."""
    for each in reversed(FLAGS):
        how = {"metavar": each.metavar} if each.metavar else {"is_flag": True}
        function = click.option(each.flag, each.name, help=each.help, **how)(function)
    for group in reversed(GROUPS):
        function = setting_options(group)(function)
    return function


@click.command(context_settings={"allow_interspersed_args": False})
@_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(**arguments: Any) -> int:
    """Run a build command under the governor, which runs as many compilers as fit in memory.

    \b
    stoker run -- ninja -C build
    stoker run -- pip install flash-attn --no-build-isolation
    stoker run --memory 8G -- make -j64
    stoker run --explain -- ninja -C build

    The exit status is that of the command, and its output is not changed. With --stop-after it is
    75 if steps were not started, or were stopped, because the time was over.
    """
    return run_governed(**arguments)
