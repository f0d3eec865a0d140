"""`stoker container`: list, enter and remove containers that builds have kept."""

import sys

import click

from stoker.builds.containers.engine import EngineKind

_ENGINE = click.option(
    "--engine",
    type=click.Choice([kind.value for kind in EngineKind]),
    callback=lambda _, __, value: EngineKind(value) if value else None,
    help="Program that runs containers. Default: podman, otherwise docker.",
)


@click.group()
def container() -> None:
    """List, enter and remove containers that `stoker build --container --keep` has kept.

    \b
    stoker container list
    stoker container shell stoker-pytorch-d1f1a6
    stoker container remove --all
    """


@container.command("list", short_help="List the containers.")
@_ENGINE
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_(engine: EngineKind | None, as_json: bool) -> None:
    """List the containers and whether they run."""
    from stoker.builds.containers.kept_containers import containers, containers_text
    from stoker.outside.terminal import print_json

    found = containers(engine)
    if as_json:
        print_json(found, "containers")
    else:
        click.echo(containers_text(found), nl=False)


@container.command(short_help="Open a shell in one.")
@click.argument("name")
@_ENGINE
def shell(name: str, engine: EngineKind | None) -> int:
    """Open a shell in a container that has the source and the build folder."""
    from stoker.builds.containers.kept_containers import enter_container

    return enter_container(name, engine, terminal=sys.stdin.isatty())


@container.command(short_help="Remove containers.")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Remove all containers of stoker.")
@_ENGINE
def remove(names: tuple[str, ...], everything: bool, engine: EngineKind | None) -> None:
    """Remove containers. The folders that were mounted into them are kept."""
    from stoker.builds.containers.kept_containers import containers, remove_containers
    from stoker.model.errors import UsageError

    if bool(names) is everything:
        raise UsageError(
            "no container is named", hints=["give a NAME of `stoker container list`, or --all"]
        )
    chosen = tuple(c.name for c in containers(engine)) if everything else names
    remove_containers(chosen, engine)
    for name in chosen:
        click.echo(f"stoker: removed {name}", err=True)
