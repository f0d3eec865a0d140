"""`stoker clean`: what builds of one tree left."""

from typing import Any

import click

from stoker.cli.gc import cleaning_options, perform


@click.command()
@click.argument("source", default=".", metavar="[SOURCE]")
@cleaning_options(older_than="0")
def command(source: str, older_than: float, keep: int, **how: Any) -> None:
    """Remove the build folders of a source tree, of all variants: by default the tree we are in.

    Wheels, the tree itself and the records of its builds stay.
    """
    from stoker.flows.cleaning import survey_tree

    perform(survey_tree(source, older_than=older_than, keep=keep), **how)
