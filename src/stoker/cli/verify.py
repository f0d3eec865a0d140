"""`stoker verify`: is a wheel what it claims to be, and what was asked for?"""

from pathlib import Path

import click

from stoker.model.errors import ExitStatus


@click.command()
@click.argument("wheel", type=click.Path(path_type=Path))
@click.option(
    "--variant",
    metavar="VARIANT",
    help="What it must have been built for, such as cu130-sm90-avx2. Default: what it says itself.",
)
@click.option("--run", is_flag=True, help="Also install it in a fresh environment and use it.")
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write them as JUnit XML, too.",
)
def command(
    wheel: Path, variant: str | None, run: bool, as_json: bool, junit: Path | None
) -> ExitStatus:
    """Hold a wheel against what it says of itself and what was asked for: hashes, tags, needed
    libraries and where they are looked for, GPU architectures, CPU level.

    Ends with status 0 only when there is no error; warnings are shown.
    """
    from stoker.flows.verifying import verify
    from stoker.outside.files import write_named
    from stoker.report import verify as report
    from stoker.report.console import print_json, show

    verification = verify(wheel, variant=variant, run=run)
    if junit:
        write_named(junit, report.junit(verification))
    if as_json:
        built = report.as_json(verification)
        print_json(built)
    else:
        show(report.page(verification))
    return ExitStatus.OK if verification.ok else ExitStatus.FAILED
