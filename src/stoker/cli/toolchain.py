"""`stoker toolchain`: install, list and remove toolchains from the package index."""

from pathlib import Path
from shlex import quote

import click

from stoker.model.value import size
from stoker.outside.long_work import say


class _Group(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        from stoker.knowledge.toolchains import kinds

        with formatter.section("Toolchains"):
            formatter.write_dl([(name, kind.summary) for name, kind in kinds().items()])
        for name, kind in kinds().items():
            if kind.names:
                with formatter.section(f"Components of {name}"):
                    formatter.write_text(" ".join(kind.names))


@click.group(cls=_Group)
def toolchain() -> None:
    """Install compilers and build tools from the package index, without root.

    \b
    stoker toolchain install cuda==13.0
    stoker toolchain list
    stoker toolchain remove cuda-13.0
    """


@toolchain.command(short_help="Install a toolchain.")
@click.argument("toolchain", metavar="NAME[==VERSION]")
@click.option(
    "--with",
    "wanted",
    metavar="NAMES",
    multiple=True,
    help="Components to add, separated by commas: cublas,cudnn==9.13; `torch` adds all"
    " that a PyTorch build needs.",
)
@click.option(
    "-o",
    "--out",
    "into",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Install into this folder, which must be empty or new, instead of stoker's own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the installed toolchain as JSON.")
def install(toolchain: str, wanted: tuple[str, ...], into: Path | None, as_json: bool) -> None:
    """Install a toolchain, test it, and print its folder.

    \b
    stoker toolchain install cuda==13.0 --with cudnn,nccl
    stoker toolchain install ninja
    """
    from stoker.builds.toolchains.making import install_toolchain
    from stoker.builds.toolchains.request import parse_request
    from stoker.outside.terminal import print_json

    names = [name for words in wanted for name in words.split(",") if name.strip()]
    made = install_toolchain(parse_request(toolchain, names), into=into, say=say)
    for warning in made.manifest.warnings:
        say(f"warning: {warning}")
    say(f"{made.name} {made.manifest.version}, {size(made.manifest.size_bytes)}. To use it:")
    lines = [f"export {name}={quote(value)}" for name, value in made.environment.items()]
    for line in [*lines, f"export PATH={quote(f'{made.path}/bin')}:$PATH"]:
        say(f"  {line}")
    print_json(made) if as_json else click.echo(made.path)


@toolchain.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_(as_json: bool) -> None:
    """List the toolchains."""
    from stoker.builds.toolchains.kept_toolchains import installed_toolchains
    from stoker.outside.locks import toolchains_folder
    from stoker.outside.terminal import print_json

    found = installed_toolchains()
    if as_json:
        print_json(found, "toolchains")
    elif not found:
        say(f"no toolchain in {toolchains_folder()}")
        say("  install one: stoker toolchain install cuda==13.0")
    rows = [(t.name, t.manifest.version, size(t.manifest.size_bytes), t.path) for t in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if not as_json else ():
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


@toolchain.command(short_help="Remove a toolchain.")
@click.argument("toolchain", metavar="NAME|DIR")
def remove(toolchain: str) -> None:
    """Remove a toolchain, given by its name or its folder.

    \b
    stoker toolchain remove cuda-13.0
    """
    from stoker.builds.toolchains.kept_toolchains import remove_toolchain

    gone = remove_toolchain(toolchain)
    say(f"removed {gone.path}, {size(gone.manifest.size_bytes)}")
