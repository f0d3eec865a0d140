"""`stoker prune`: delete what a catalogue no longer needs."""

import click


@click.command()
@click.argument("index")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the N newest versions of each project in each variant. Default: all.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
def command(index: str, keep: int | None, dry_run: bool, as_json: bool) -> None:
    """Delete the files of a catalogue that no page refers to, and old versions if asked for.

    \b
    stoker prune /srv/wheels --dry-run
    stoker prune /srv/wheels --keep 3
    """
    from stoker.catalogue.installing import pruned_text
    from stoker.catalogue.publishing import people_page, prune
    from stoker.outside.terminal import print_json

    def say(text: str) -> None:
        click.echo(text, err=True)

    pruned = prune(index, keep=keep, dry_run=dry_run, people=people_page, say=say)
    if as_json:
        print_json(pruned)
        return
    for wheel in pruned.wheels:
        click.echo(f"{wheel.variant}/{wheel.file}")
    say(pruned_text(pruned, dry_run=dry_run))
