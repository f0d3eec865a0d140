"""`stoker doctor`: what is missing, and the command that mends it."""

from typing import Any

import click

from stoker.cli.request import read_request, request_options
from stoker.model.errors import ExitStatus


@click.command()
@request_options(variant=True)
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON.")
def command(as_json: bool, **options: Any) -> int:
    """Say what this machine lacks for a build, and the command that mends it.

    Ends with status 0 only when the plan can run.
    """
    from stoker.flows.planning import doctor
    from stoker.plan.doctor import can_run
    from stoker.report.console import print_json, show
    from stoker.report.doctor import doctor_page

    planned, findings = doctor(read_request(options))
    runs = can_run(findings)
    if as_json:
        value = {"variant": planned.name, "can_run": runs, "findings": findings}
        print_json(value)
    else:
        show(doctor_page(planned, findings))
    return ExitStatus.OK if runs else ExitStatus.FAILED
