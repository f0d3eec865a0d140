"""`stoker cache`: the compiler cache that builds here use."""

import os
import sys
from typing import Any

import click

from stoker.cli.request import chain_options, request_options, setting_options, with_settings
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup

_UNCACHED = ("linker",)  # what is added to a command behind the cache


@click.group()
def command() -> None:
    """Show, count, fill and clear the compiler cache that builds here use.

    \b
    stoker cache status
    stoker cache stats --json
    stoker cache warm pytorch --variant h100
    stoker cache clear
    """


@command.command(short_help="Show the state.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(as_json: bool, **options: Any) -> None:
    """Show where the cache is, its size and age, and whether its remote answers."""
    from stoker.accelerate.cached import cache_status
    from stoker.accelerate.shown import status_page
    from stoker.outside.terminal import print_json, show

    found = cache_status(chain_options(with_settings(options)), os.environ)
    print_json(found) if as_json else show(status_page(found))


@command.command(short_help="Show the counts.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def stats(as_json: bool, **options: Any) -> None:
    """Show what the cache has counted since it was cleared.

    The summary of each run has the counts of that run, by language.
    """
    from stoker.accelerate.cached import cache_use
    from stoker.accelerate.shown import use_page
    from stoker.outside.terminal import print_json, show

    found = cache_use(chain_options(with_settings(options)), os.environ)
    print_json(found) if as_json else show(use_page(found))


@command.command(short_help="Remove everything.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool, **options: Any) -> None:
    """Remove everything in the local cache and set its counts to zero. The remote stays."""
    from stoker.accelerate.cached import cache_status, clear_cache

    wanted = chain_options(with_settings(options))
    found = cache_status(wanted, os.environ)
    if not yes:
        if not sys.stdin or not sys.stdin.isatty():
            raise UsageError(
                "nothing was removed: there is no terminal to ask on", hints=["add --yes"]
            )
        if not click.confirm(f"remove {found.folder}?", err=True):
            return
    clear_cache(found, os.environ)
    click.echo(f"cleared {found.folder}", err=True)


@command.command(short_help="Fill the cache.")
@click.argument("source", required=False, metavar="[SOURCE]")
@request_options(source=False)
@setting_options(SettingGroup.GOVERN)
@setting_options(SettingGroup.CHAIN)
@click.pass_context
def warm(context: click.Context, /, source: str | None, **options: Any) -> None:
    """Compile SOURCE, or the current folder, from the beginning, so that the cache has all of it.

    \b
    stoker cache warm pytorch --variant h100 --cache-remote redis://build-cache:6379

    It makes no wheel. With --cache-remote, other machines find the objects there.
    """
    from stoker.cli.build import command as build

    context.invoke(build, source=source, target="all", fresh=True, **options)
