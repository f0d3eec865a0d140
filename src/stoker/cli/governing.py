"""The options of everything that runs under the governor."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from stoker.model.errors import UsageError
from stoker.model.units import byte_count

F = TypeVar("F", bound=Callable[..., Any])


def _bytes(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``8G``, ``512M``, ``1.5GiB``."""
    if value is None:
        return None
    if not (amount := byte_count(value)):
        raise UsageError(f"{parameter.opts[0]} {value}: not an amount of memory", hints=["try 8G"])
    return amount


def governing_options(function: F) -> F:
    """--memory, --keep-free, --cpus, --nice, --policy, --tmp, --via, --progress."""
    for option in reversed(
        [
            click.option(
                "--memory", callback=_bytes, metavar="SIZE", help="Use no more than this, e.g. 8G."
            ),
            click.option(
                "--keep-free",
                "keep_free",
                callback=_bytes,
                metavar="SIZE",
                help="Leave this much to others.",
            ),
            click.option(
                "--cpus",
                type=click.IntRange(1, 1_000_000),
                metavar="N",
                help="Use no more CPUs than N.",
            ),
            click.option(
                "--nice", is_flag=True, help="Give way to everything else on the machine."
            ),
            click.option(
                "--policy",
                default="adaptive",
                metavar="NAME",
                help="adaptive, fixed, levels, two-phase.",
            ),
            click.option(
                "--tmp",
                type=click.Choice(["auto", "ram", "disk"]),
                default="auto",
                help="Where temporary files of compilers go. auto: memory, if there is plenty.",
            ),
            click.option(
                "--via",
                type=click.Choice(["preload", "launcher"]),
                default="preload",
                help="How compiles are reached. launcher: also through CMake's launcher variables, "
                "for build tools that are linked statically.",
            ),
            click.option(
                "--progress",
                type=click.Choice(["auto", "live", "log", "json", "quiet"]),
                default="auto",
                help="How to show what happens, on stderr.",
            ),
        ]
    ):
        function = option(function)
    return function
