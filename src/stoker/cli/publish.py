"""`stoker publish`: add wheels to a catalogue that any web server can serve."""

from typing import Any

import click


@click.command()
@click.argument("wheels", nargs=-1, required=True, metavar="WHEELS...")
@click.option(
    "--to",
    "place",
    required=True,
    metavar="INDEX",
    help="The catalogue: a folder, or s3://bucket/prefix. A new one is made.",
)
@click.option("--variant", metavar="NAME", help="The variant's name. Default: from the wheel.")
@click.option("--force", is_flag=True, help="Also publish wheels that `stoker verify` rejects.")
@click.option("--replace", is_flag=True, help="Replace a wheel of the same name and variant.")
@click.option(
    "--wheel-variants",
    is_flag=True,
    help="Also as wheel variants (draft PEP 825), for uv with --preview-features wheel-variants.",
)
@click.option("--dry-run", is_flag=True, help="Check the wheels, and publish nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was published as JSON.")
def command(wheels: tuple[str, ...], place: str, as_json: bool, **options: Any) -> None:
    """Add wheels, or all wheels of a folder, to a catalogue.

    Each variant gets a package index of its own, and the catalogue a page for people. Publishing
    the same wheel again changes nothing. Several publishers may work at the same time.

    \b
    stoker publish dist --to /srv/wheels
    stoker publish torch-2.9.1+cu128.sm90-cp312-cp312-manylinux_2_28_x86_64.whl --to s3://wheels
    stoker publish dist/mill-1.0-py3-none-any.whl --to wheels --variant cpu-avx2
    """
    from stoker.catalogue.installing import wheels_page
    from stoker.catalogue.publishing import PublishOptions, people_page, publish
    from stoker.outside.terminal import print_json, show

    def say(text: str) -> None:
        click.echo(text, err=True)

    report = publish(wheels, place, PublishOptions(**options), people=people_page, say=say)
    for note in report.notes:
        say(f"note: {note}")
    if as_json:
        print_json(report)
        return
    show(wheels_page(report.wheels))
    count = len(report.added)
    there = len(report.wheels) - count
    done = "would be published" if options["dry_run"] else "published"
    say(f"{count} {done} to {place}" + (f"; {there} were there already" if there else ""))
