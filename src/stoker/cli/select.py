"""`stoker select`: rank the wheels of a catalogue for a machine, with reasons."""

import click


@click.command()
@click.argument("index")
@click.argument("projects", nargs=-1, metavar="[PROJECTS]...")
@click.option(
    "--for",
    "wished",
    metavar="MACHINE",
    help="Another machine, such as h100, 'l40s avx2', cpu. Default: this one.",
)
@click.option(
    "--python", metavar="PATH", help="The interpreter. Default: the active environment's."
)
@click.option("--json", "as_json", is_flag=True, help="Print the choices as JSON.")
def command(
    index: str, projects: tuple[str, ...], wished: str | None, python: str | None, as_json: bool
) -> None:
    """Rank the variants of a project for a machine, each with the reason: native code, compatible
    code, through PTX, CPU only, or why it does not run.

    INDEX is a folder, the address of a catalogue, or s3://bucket/prefix. The default project is
    torch, or the only one there is; extensions named after it must match it.

    \b
    stoker select https://wheels.example.org
    stoker select /srv/wheels torch==2.9.1 flash-attn --for "l40s linux-x86_64"
    """
    from stoker.catalogue.installing import select, selection_page, target_python
    from stoker.outside.terminal import print_json, show

    _, selection = select(index, projects, python=target_python(python), wished=wished)
    if as_json:
        print_json(selection)
    else:
        show(selection_page(selection))
