"""`stoker plan`: what a build will be told, and why."""

from typing import Any

import click

from stoker.cli.request import read_request, request_options


@click.command()
@click.argument("words", nargs=-1, metavar="[VARIANT]...")
@request_options(variant=False)
@click.option("--against", metavar="VARIANT", help="Show only what differs from another variant.")
@click.option("--json", "form", flag_value="json", help="The whole plan as JSON.")
@click.option("--shell", "form", flag_value="shell", help="Export lines that work without stoker.")
@click.option("--dotenv", "form", flag_value="dotenv", help="The environment as a .env file.")
def command(words: tuple[str, ...], against: str | None, form: str | None, **options: Any) -> None:
    """Print exactly what a build will be told, and why.

    VARIANT: what to build for, such as cu130-sm90-avx512, h100, "8.0;9.0+PTX", cpu, native, or a
    name from stoker.toml. Default: native, this machine.
    """
    from stoker.flows.planning import plan
    from stoker.plan.compare import compare
    from stoker.plan.record import plan_json
    from stoker.report import plan as report
    from stoker.report.console import print_json, show

    if words:
        options["variant"] = " ".join(words)
    planned = plan(read_request(options))
    if against is not None:
        other = plan(read_request(options | {"variant": against}))
        differences = compare(planned, other)
        if form == "json":
            print_json(differences)
        else:
            show(report.differences_page(differences, planned.name, other.name))
    elif form == "json":
        print_json(plan_json(planned))
    elif form == "shell":
        click.echo(report.shell_lines(planned), nl=False)
    elif form == "dotenv":
        click.echo(report.dotenv_lines(planned), nl=False)
    else:
        show(report.plan_page(planned))
