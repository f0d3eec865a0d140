"""`stoker package`: make a wheel portable."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("wheel", type=click.Path(path_type=Path), metavar="WHEEL")
@click.option(
    "--mode",
    type=click.Choice(["pypi", "bundle", "plain"]),
    required=True,
    help="Where NVIDIA's libraries come from: their own packages, the wheel itself, or as before.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("dist"),
    metavar="DIR",
    help="Where the packaged wheel goes. Default: dist.",
)
@click.option(
    "--library-folder",
    "libraries",
    multiple=True,
    metavar="PATH",
    help="Take libraries from this folder, CUDA toolkit, site-packages, wheel or folder of wheels.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="NAME",
    help="A library, or a pattern, that whoever installs the wheel provides.",
)
@click.option(
    "--requires",
    multiple=True,
    metavar="REQUIREMENT",
    help="Require this; it takes the place of what is known for the package.",
)
@click.option("--like", metavar="RELEASE", help="Require what this release of PyTorch requires.")
@click.option("--torch", metavar="VERSION", help="The PyTorch that an extension was built against.")
@click.option("--cuda", metavar="RELEASE", help="The CUDA it was built with, such as 12.8.")
@click.option("--label", metavar="LABEL", help="The local label of the version; '' removes it.")
@click.option("--strip", is_flag=True, help="Move debug information to files beside the wheel.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="The plan, and what was made, as JSON.")
@click.option("--force", is_flag=True, help="Replace a wheel of the same name.")
def command(
    wheel: Path, out: Path, dry_run: bool, as_json: bool, force: bool, **wishes: Any
) -> None:
    """Make a wheel portable: search paths, libraries, requirements and tags.

    \b
    pypi    NVIDIA's libraries come from their own packages, as with the official wheels
    bundle  all that it needs goes into the wheel
    plain   only the tags are made honest
    """
    from stoker.deliver.package.values import Mode, PackageRequest
    from stoker.flows.packaging import package, plan_package
    from stoker.report.console import print_json, show
    from stoker.report.packaging import package_page, packaged_lines

    request = PackageRequest(mode=Mode(wishes.pop("mode")), **wishes)
    if dry_run:
        plan = plan_package(wheel, request)
        print_json({"plan": plan}) if as_json else show(package_page(plan))
        return
    plan, packaged = package(wheel, request, out, force=force)
    for note in plan.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(packaged_lines(packaged), err=True)
    if as_json:
        print_json({"plan": plan, "packaged": packaged})
    else:
        click.echo(packaged.path)
