"""`stoker variants`: what can be built for."""

import click


@click.command()
@click.argument("words", nargs=-1, metavar="[VARIANT]...")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List what can be built for; with VARIANT, say what it means and what it runs on."""
    from stoker.flows.catalogue import catalogue, explain
    from stoker.report.console import print_json, show
    from stoker.report.variants import catalogue_page, explained_page

    value = explain(" ".join(words)) if words else catalogue()
    if as_json:
        print_json(value)
    elif words:
        show(explained_page(explain(" ".join(words))))
    else:
        show(catalogue_page(catalogue()))
