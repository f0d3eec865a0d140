"""`stoker attach`: the launcher into a configured build folder."""

from pathlib import Path

import click


@click.command()
@click.argument("build", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do it without asking.")
def command(build: Path, yes: bool) -> None:
    """Put the launcher into a build folder that CMake configured without it.

    Says first how many objects will be compiled again: ninja does that when a command changes.
    """
    from stoker.flows.attaching import attach, examine

    attachment = examine(build)
    for language, name in attachment.taken:
        behind = name == "ccache"
        then = "`stoker run` puts the launcher behind it" if behind else "it stays, ungoverned"
        click.echo(f"{language}: {name} is in place; {then}")
    if not attachment.languages:
        click.echo("nothing to do: a launcher stands before every compiler")
        return
    click.echo(
        f"{', '.join(attachment.languages)}: {attachment.recompiles} objects will be "
        "compiled again, once"
    )
    if yes or click.confirm("attach?"):
        attach(attachment)
        click.echo(f"attached. Now: stoker run -- ninja -C {build}")
