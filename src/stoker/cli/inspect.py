"""`stoker inspect`: show what a wheel or a library contains."""

from typing import Any

import click


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option("--against", metavar="OTHER", help="Show only the differences to OTHER.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(target: str, against: str | None, as_json: bool) -> None:
    """Show what a wheel, a library or a folder contains: device code by GPU architecture, the GPUs
    it runs on, the libraries it needs, the libraries it lacks.

    NAME is a distribution in the active environment, such as torch. Nothing is unpacked to disk,
    and neither a GPU nor the CUDA tools are needed.

    \b
    stoker inspect torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl
    stoker inspect torch
    stoker inspect mine.whl --against official.whl
    """
    from stoker.model.errors import StokerError
    from stoker.outside.progress import shown
    from stoker.wheel.inspecting import inspect

    with shown():
        facts = [inspect(word) for word in (target, against) if word is not None]
    if against is None:
        _print(facts[0], as_json)
    else:
        from stoker.wheel.facts import compare

        new, old = facts
        _print(compare(old, new), as_json)  # as with `stoker report --against`
    problems = [problem for each in facts for problem in each.problems]
    if problems:
        more = [f"{len(problems) - 1} more could not be read"] if problems[1:] else []
        raise StokerError(problems[0], hints=more)


def _print(value: Any, as_json: bool) -> None:
    from stoker.model.artifact import ArtifactFacts
    from stoker.outside.terminal import print_json, show
    from stoker.wheel import inspecting as report

    if as_json:
        print_json(value, "differences")
    elif isinstance(value, ArtifactFacts):
        show(report.inspection_page(value))
    else:
        show(report.differences_page(value))
