"""`stoker inspect`: what a wheel or a library holds."""

from typing import Any

import click


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option("--against", metavar="OTHER", help="Show only what differs from another one.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
def command(target: str, against: str | None, as_json: bool) -> None:
    """Say what a wheel, a library or a folder holds: device code by GPU architecture, what it
    runs on, what it needs, what is missing.

    NAME is a distribution installed in the active environment, such as torch. Nothing is unpacked
    to disk, and neither a GPU nor the CUDA tools are needed.
    """
    from stoker.flows.inspecting import inspect
    from stoker.model.errors import StokerError

    facts = [inspect(word) for word in (target, against) if word is not None]
    if against is None:
        _print(facts[0], as_json)
    else:
        from stoker.artifact.comparison import compare

        _print(compare(*facts), as_json)
    problems = [problem for each in facts for problem in each.problems]
    if problems:
        more = [f"{len(problems) - 1} more could not be read"] if problems[1:] else []
        raise StokerError(problems[0], hints=more)


def _print(value: Any, as_json: bool) -> None:
    from stoker.model.artifact import ArtifactFacts
    from stoker.report import inspect as report
    from stoker.report.console import print_json, show

    if as_json:
        print_json(value)
    elif isinstance(value, ArtifactFacts):
        show(report.page(value))
    else:
        show(report.differences_page(value))
