"""`stoker verify`: check a wheel against its metadata and the variant it was built for."""

from pathlib import Path

import click

from stoker.model.errors import ExitStatus


@click.command()
@click.argument("wheel", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--variant",
    metavar="VARIANT",
    help="The expected variant, such as cu130-sm90-avx2. Default: the plan inside the wheel.",
)
@click.option("--run", is_flag=True, help="Also install it in a new environment and use it.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the findings to this file as JUnit XML.",
)
def command(
    wheel: Path, variant: str | None, run: bool, as_json: bool, junit: Path | None
) -> ExitStatus:
    """Check a wheel against its metadata and the variant it was built for: hashes, tags, required
    libraries and their search paths, GPU architectures, CPU level.

    The exit status is 0 if no error is found; warnings do not change it.

    \b
    stoker verify dist/torch-2.13.0+cu130.sm90-cp312-cp312-manylinux_2_28_x86_64.whl
    stoker verify mill-1.2-py3-none-any.whl --variant cu130-sm90+ptx --run
    """
    from stoker.outside.files import write_named
    from stoker.outside.progress import shown, stage
    from stoker.outside.terminal import print_json, show
    from stoker.wheel.verify import verifying as report
    from stoker.wheel.verify.verifying import verify

    with shown(), stage(f"verifying {wheel.name}"):
        verification = verify(wheel, variant=variant, run=run)
    if junit:
        write_named(junit, report.verification_junit(verification))
    if as_json:
        built = report.verification_json(verification)
        print_json(built)
    else:
        show(report.verification_page(verification))
    return ExitStatus.OK if verification.ok else ExitStatus.FAILED
