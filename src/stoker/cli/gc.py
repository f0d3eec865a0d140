"""`stoker gc`: what stoker keeps and nobody used for long."""

from typing import Any

import click

from stoker.cli.cleaning import cleaning_options
from stoker.model.cleaning import Kind


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice([kind.value for kind in Kind]))
@cleaning_options(older_than="30d")
def command(kinds: tuple[str, ...], older_than: float, keep: int, **how: Any) -> None:
    """Remove what stoker keeps and nobody used for 30 days. What a build uses now stays.

    \b
    builds      folders that builds continue in
    runs        records and logs of builds
    sources     archives, git trees and packages that were unpacked
    toolchains  of `stoker toolchain install`
    history     what was measured: governed builds begin with a guess again

    Without a name, all of them.
    """
    from stoker.cli.cleaning import perform
    from stoker.flows.cleaning import survey

    chosen = [Kind(kind) for kind in kinds or Kind]
    perform(survey(chosen, older_than=older_than, keep=keep), **how)
