"""`stoker doctor`: list what this machine lacks for a build, and the commands that install it."""

from typing import Any

import click

from stoker.cli.request import request_options, told_request, variant_words
from stoker.model.errors import ExitStatus


@click.command()
@variant_words
@request_options()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool, **options: Any) -> int:
    """List what this machine lacks for a build, and the commands that install it.

    \b
    stoker doctor                     the tree in this folder, for this machine
    stoker doctor h100 --source pytorch
    stoker doctor cpu --source pytorch --json

    The exit status is 0 if the build can run, and 1 if it cannot.
    """
    from stoker.outside.terminal import print_json, show
    from stoker.plan.doctor import can_run
    from stoker.plan.shown import doctor_page
    from stoker.plan.survey import doctor

    planned, findings = doctor(told_request(options))
    runs = can_run(findings)
    if as_json:
        value = {"variant": planned.name, "ok": runs, "findings": findings}
        print_json(value)
    else:
        show(doctor_page(planned, findings))
    return ExitStatus.OK if runs else ExitStatus.FAILED
