"""`stoker unpublish`: remove wheels from the pages of a catalogue."""

import click


@click.command()
@click.argument("index")
@click.argument("names", nargs=-1, required=True, metavar="NAMES...")
@click.option("--variant", metavar="NAME", help="Only in this variant.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def command(index: str, names: tuple[str, ...], variant: str | None, as_json: bool) -> None:
    """Remove wheels from a catalogue, by file name, project, or project and version.

    The files stay until `stoker prune`, so that downloads in progress do not fail.

    \b
    stoker unpublish /srv/wheels torch==2.8.0
    stoker unpublish /srv/wheels torch --variant cu126-sm75
    """
    from stoker.catalogue.installing import wheels_page
    from stoker.catalogue.publishing import people_page, unpublish
    from stoker.outside.terminal import print_json, show

    def say(text: str) -> None:
        click.echo(text, err=True)

    gone = unpublish(index, names, variant, people=people_page, say=say)
    if as_json:
        print_json(gone)
        return
    show(wheels_page(gone))
    say(f"{len(gone)} removed; `stoker prune {index}` deletes their files")
