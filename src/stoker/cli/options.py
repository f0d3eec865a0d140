"""`stoker options`: list the CMake options of a source tree, read from the tree itself."""

from pathlib import Path

import click

from stoker.cli.request import check_no_folder
from stoker.model.errors import UsageError


@click.command()
@click.argument("pattern", default="", metavar="[PATTERN]")
@click.option("--source", default=".", metavar="DIR", help="The source tree. Default: this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the options as JSON.")
def command(pattern: str, source: str, as_json: bool) -> None:
    """List the options of a source tree, and the environment variables that its build reads.

    PATTERN selects by name and help text.

    \b
    stoker options
    stoker options cudnn --source pytorch
    """
    import msgspec

    from stoker.outside.terminal import print_json, show
    from stoker.plan.shown import options_page
    from stoker.plan.survey import options

    try:
        tree, found = options(Path(source), pattern)
    except UsageError:
        if pattern and source == ".":
            check_no_folder([pattern], "a pattern")
        raise
    if as_json:
        listed = [msgspec.to_builtins(one.option) | {"variable": one.variable} for one in found]
        print_json(listed, "options")
    else:
        show(options_page(tree, found))
