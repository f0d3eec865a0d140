"""`stoker clean`: remove build folders and other files that stoker keeps."""

from typing import TYPE_CHECKING, Any

import click

from stoker.builds.cleaning import CleanupKind
from stoker.cli.request import may_remove
from stoker.model.errors import UsageError
from stoker.model.value import counted, second_count, size

if TYPE_CHECKING:
    from stoker.builds.cleaning import Cleaning

_LONG_UNUSED = "30d"


def _seconds(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    if (seconds := second_count(value)) is None:
        raise UsageError(f"{parameter.opts[0]} {value}: not a length of time", hints=["try 30d"])
    return seconds


@click.command()
@click.argument("words", nargs=-1, metavar="[SOURCE|KIND]...")
@click.option("--all", "everything", is_flag=True, help="Clean all kinds.")
@click.option(
    "--older-than",
    callback=_seconds,
    metavar="TIME",
    help="Remove only what was unused for this time: 12h or 30d. Default: 30d for kinds, 0 for a "
    "source tree.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Keep the N newest items of each kind.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print what is removed and kept as JSON.")
def clean(
    words: tuple[str, ...], everything: bool, older_than: float | None, keep: int, **how: Any
) -> None:
    """Remove the build folders of a source tree, by default the current folder, for all variants.
    Wheels, the tree itself and the records of its builds are kept.

    With KINDs or --all, remove files of stoker that were unused for 30 days:

    \b
    builds      build folders, in which interrupted builds resume
    runs        records and logs of builds
    sources     unpacked archives, git trees and packages
    toolchains  what `stoker toolchain install` installed
    containers  packages for builds in containers
    history     measured steps; without them, builds start with estimates

    \b
    stoker clean --dry-run
    stoker clean pytorch --keep 1
    stoker clean builds sources --older-than 7d
    stoker clean --all

    Files of a running build are kept.
    """
    from stoker.builds.cleaning import survey_all, survey_tree

    kinds = [CleanupKind(word) for word in words if word in list(CleanupKind)]
    if everything and words:
        raise UsageError("--all cleans all kinds", hints=["leave out --all, or the names"])
    if everything or kinds:
        if len(kinds) < len(words):
            hints = [f"a folder of that name: ./{kinds[0]}"]
            raise UsageError("name either kinds or one source tree", hints=hints)
        unused = second_count(_LONG_UNUSED) if older_than is None else older_than
        assert unused is not None
        _perform(survey_all(kinds or list(CleanupKind), older_than=unused, keep=keep), **how)
        return
    if len(words) > 1:
        raise UsageError("name one source tree", hints=["`stoker clean --help` lists the kinds"])
    tree = words[0] if words else "."
    _perform(survey_tree(tree, older_than=older_than or 0.0, keep=keep), **how)


def _perform(cleaning: "Cleaning", *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """List what would be removed, ask, and remove it."""
    from stoker.builds.cleaning import cleaning_page, nothing_text, remove_chosen
    from stoker.outside.terminal import print_json, show

    if not as_json:
        show(cleaning_page(cleaning))
    if not cleaning.chosen and not as_json:
        click.echo(nothing_text(cleaning), err=True)
    what = f"{counted(len(cleaning.chosen), 'item')}, {size(cleaning.bytes)}"
    if cleaning.chosen and not dry_run and (yes or may_remove(what)):
        cleaning = remove_chosen(cleaning)
        click.echo(f"removed {size(cleaning.bytes)}", err=True)
    if as_json:
        print_json(cleaning)
