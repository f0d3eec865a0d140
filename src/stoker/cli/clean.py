"""`stoker clean`: remove the build folders of one source tree."""

from typing import Any

import click

from stoker.cli.gc import cleaning_options, perform


@click.command()
@click.argument("source", default=".", metavar="[SOURCE]")
@cleaning_options(older_than="0")
def command(source: str, older_than: float, keep: int, **how: Any) -> None:
    """Remove the build folders of a source tree, for all variants. Default: the current folder.

    Wheels, the tree itself and the records of its builds are kept.

    \b
    stoker clean --dry-run
    stoker clean pytorch --keep 1
    """
    from stoker.builds.cleaning import survey_tree

    perform(survey_tree(source, older_than=older_than, keep=keep), **how)
