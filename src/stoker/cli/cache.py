"""`stoker cache`: the objects and wheels that earlier builds left."""

import os
from typing import Any

import click

from stoker.cli.chosen import chain_options, with_settings
from stoker.cli.request import may_remove, request_options, setting_options
from stoker.model.errors import UsageError
from stoker.settings.declared import SettingGroup

_UNCACHED = ("linker",)  # what is added to a command behind the cache


@click.group()
def cache() -> None:
    """Show, count, fill and clear the compiler cache that builds here use, and the wheels that
    `stoker install` has built.

    \b
    stoker cache status
    stoker cache stats --json
    stoker cache warm pytorch --variant h100
    stoker cache clear
    stoker cache wheels
    """


@cache.command(short_help="Show the state.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(as_json: bool, **options: Any) -> None:
    """Show where the cache is, its size and age, and whether its remote answers."""
    from stoker.cache.pages import status_page
    from stoker.cache.survey import cache_status
    from stoker.outside.terminal import print_json, show

    found = cache_status(chain_options(with_settings(options)), os.environ)
    print_json(found) if as_json else show(status_page(found))


@cache.command(short_help="Show the counts.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def stats(as_json: bool, **options: Any) -> None:
    """Show what the cache has counted since it was cleared.

    The summary of each run has the counts of that run, by language.
    """
    from stoker.cache.pages import use_page
    from stoker.cache.survey import cache_use
    from stoker.outside.terminal import print_json, show

    found = cache_use(chain_options(with_settings(options)), os.environ)
    print_json(found) if as_json else show(use_page(found))


@cache.command(short_help="Remove everything.")
@setting_options(SettingGroup.CHAIN, without=_UNCACHED)
@click.option("--yes", is_flag=True, help="Do not ask.")
def clear(yes: bool, **options: Any) -> None:
    """Remove everything in the local cache and set its counts to zero. The remote stays."""
    from stoker.cache.survey import cache_status, clear_cache

    wanted = chain_options(with_settings(options))
    found = cache_status(wanted, os.environ)
    if yes or may_remove(str(found.folder)):
        clear_cache(found, os.environ)
        click.echo(f"cleared {found.folder}", err=True)


@cache.command(short_help="Fill the cache.")
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
    from stoker.cli.build import build

    context.invoke(build, source=source, target="all", fresh=True, **options)


@cache.command(short_help="Show and remove wheels that were built here.")
@click.option("--folder", is_flag=True, help="Only print the folder, which is a catalogue.")
@click.option(
    "--remove", "names", multiple=True, metavar="NAME", help="Remove these: mill, or mill==1.0."
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep only the N newest versions of each project and variant.",
)
@click.option("--dry-run", is_flag=True, help="Print what --keep would remove.")
@click.option("--json", "as_json", is_flag=True, help="Print the wheels that are kept as JSON.")
def wheels(
    folder: bool, names: tuple[str, ...], keep: int | None, dry_run: bool, as_json: bool
) -> None:
    """List the wheels that `stoker install` has built because none fitted.

    \b
    stoker cache wheels
    stoker cache wheels --remove flash-attn==2.8.2
    stoker cache wheels --keep 2
    stoker catalogue serve "$(stoker cache wheels --folder)"

    The folder is a catalogue: other machines install from it with `stoker install --catalogue`.
    """
    from stoker.catalogue import kept
    from stoker.catalogue.shown import pruned_text, wheels_page
    from stoker.outside.terminal import print_json, show, tell

    if folder:
        click.echo(kept.folder())
        return
    if names and dry_run:
        raise UsageError("--dry-run is for --keep")
    if kept.kept_wheels() is None:
        if names:
            raise UsageError(f"no wheel is kept in {kept.folder()}")
        print_json((), "wheels") if as_json else tell(f"no wheel is kept in {kept.folder()}")
        return
    if names:
        kept.remove(names, say=tell)
    if names or keep:
        tell(pruned_text(kept.prune(keep, dry_run=dry_run, say=tell), dry_run=dry_run))
    located = kept.kept_wheels()
    there = located.catalogue.wheels if located else ()
    print_json(there, "wheels") if as_json else show(wheels_page(there))
