"""`stoker gc`, and what it shares with `stoker clean`: options, and asking before removing."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stoker.builds.cleaning import Kind
from stoker.model.errors import UsageError
from stoker.model.value import second_count, size

if TYPE_CHECKING:
    from stoker.builds.cleaning import Cleaning

F = TypeVar("F", bound=Callable[..., Any])


def _seconds(_: click.Context, parameter: click.Parameter, value: str) -> float:
    if (seconds := second_count(value)) is None:
        raise UsageError(f"{parameter.opts[0]} {value}: not a length of time", hints=["try 30d"])
    return seconds


def cleaning_options(*, older_than: str) -> Callable[[F], F]:
    """Return a decorator that adds --older-than, --keep, --dry-run, --yes and --json."""
    options = [
        click.option(
            "--older-than",
            callback=_seconds,
            default=older_than,
            metavar="TIME",
            help=f"Remove only what was unused for this time: 12h or 30d. Default: {older_than}.",
        ),
        click.option(
            "--keep",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Keep the N newest items of each kind.",
        ),
        click.option("--dry-run", is_flag=True, help="Only list what would be removed."),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print what is removed and kept as JSON.",
        ),
    ]

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def perform(cleaning: "Cleaning", *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """List what would be removed, ask, and remove it."""
    from stoker.builds.cleaning import cleaning_page, nothing_text, remove_chosen
    from stoker.outside.terminal import print_json, show

    if not as_json:
        show(cleaning_page(cleaning))
    if not cleaning.chosen and not as_json:
        click.echo(nothing_text(cleaning), err=True)
    if cleaning.chosen and not dry_run and (yes or _agreed(cleaning)):
        cleaning = remove_chosen(cleaning)
        click.echo(f"removed {size(cleaning.bytes)}", err=True)
    if as_json:
        print_json(cleaning)


def _agreed(cleaning: "Cleaning") -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError("nothing was removed: there is no terminal to ask on", hints=["add --yes"])
    count = len(cleaning.chosen)
    items = f"{count} item" if count == 1 else f"{count} items"
    question = f"remove {items}, {size(cleaning.bytes)}?"
    return click.confirm(question, err=True)


@click.command()
@click.argument(
    "kinds", nargs=-1, type=click.Choice([kind.value for kind in Kind]), metavar="[KIND]..."
)
@cleaning_options(older_than="30d")
def command(kinds: tuple[str, ...], older_than: float, keep: int, **how: Any) -> None:
    """Remove files of stoker that were unused for 30 days. Files of a running build are kept.

    \b
    builds      build folders, in which interrupted builds resume
    runs        records and logs of builds
    sources     unpacked archives, git trees and packages
    toolchains  what `stoker toolchain install` installed
    containers  containers that builds have kept
    history     measured steps; without them, builds start with estimates

    Without a KIND, all kinds are cleaned.

    \b
    stoker gc --dry-run
    stoker gc builds --older-than 7d
    """
    from stoker.builds.cleaning import survey

    chosen = [Kind(kind) for kind in kinds or Kind]
    perform(survey(chosen, older_than=older_than, keep=keep), **how)
