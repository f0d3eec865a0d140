"""`stoker container`: those that builds have left."""

import sys

import click

_ENGINE = click.option(
    "--engine", type=click.Choice(["podman", "docker"]), help="Default: podman, else docker."
)


@click.group()
def command() -> None:
    """List, enter and remove containers that `stoker build --container --keep` has left."""


@command.command("list")
@_ENGINE
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_(engine: str | None, as_json: bool) -> None:
    """What is kept, and whether it runs."""
    from stoker.flows.containers import containers
    from stoker.report.building import containers_text
    from stoker.report.console import print_json

    found = containers(engine)
    if as_json:
        print_json(found)
    else:
        click.echo(containers_text(found), nl=False)


@command.command()
@click.argument("name")
@_ENGINE
def shell(name: str, engine: str | None) -> int:
    """A shell in a container as the build left it; the source and what was built are there."""
    from stoker.flows.containers import enter

    return enter(name, engine, terminal=sys.stdin.isatty())


@command.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="All that are kept.")
@_ENGINE
def rm(names: tuple[str, ...], everything: bool, engine: str | None) -> None:
    """Remove containers; the folders that they were given stay."""
    from stoker.flows.containers import containers, remove_containers
    from stoker.model.errors import UsageError

    if bool(names) is everything:
        raise UsageError("which container?", hints=["a NAME of `stoker container list`, or --all"])
    chosen = tuple(c.name for c in containers(engine)) if everything else names
    remove_containers(chosen, engine)
    for name in chosen:
        click.echo(f"stoker: removed {name}", err=True)
