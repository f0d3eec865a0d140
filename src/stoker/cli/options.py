"""`stoker options`: the CMake options of a source tree, read from the tree itself."""

from pathlib import Path

import click
import msgspec


@click.command()
@click.argument("pattern", default="", metavar="[PATTERN]")
@click.option("--source", default=".", metavar="DIR", help="The source tree. Default: this folder.")
@click.option("--json", "as_json", is_flag=True, help="The options as JSON.")
def command(pattern: str, source: str, as_json: bool) -> None:
    """List the CMake options of a source tree whose name or help holds PATTERN."""
    from stoker.flows.catalogue import options
    from stoker.report.console import print_json, show
    from stoker.report.options import options_page

    tree, found = options(Path(source), pattern)
    if as_json:
        flat = [msgspec.to_builtins(item.option) | {"variable": item.variable} for item in found]
        print_json(flat)
    else:
        show(options_page(tree, found))
