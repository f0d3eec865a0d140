"""`stoker package`: make a wheel portable."""

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("wheel", type=click.Path(path_type=Path, readable=False), metavar="WHEEL")
@click.option(
    "--mode",
    type=click.Choice(["pypi", "bundle", "plain"]),
    required=True,
    help="Where NVIDIA's libraries come from: their PyPI packages, the wheel itself, or unchanged.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("dist"),
    metavar="DIR",
    help="Folder for the packaged wheel. Default: dist.",
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
    help="Do not bundle this library, or libraries that match this pattern.",
)
@click.option(
    "--requires",
    multiple=True,
    metavar="REQUIREMENT",
    help="Add this requirement; it replaces the known requirement for the same package.",
)
@click.option("--like", metavar="RELEASE", help="Require what this release of PyTorch requires.")
@click.option("--torch", metavar="VERSION", help="The PyTorch that an extension was built against.")
@click.option("--cuda", metavar="RELEASE", help="The CUDA version it was built with, such as 12.8.")
@click.option("--label", metavar="LABEL", help="The local label of the version; '' removes it.")
@click.option("--strip", is_flag=True, help="Move debug information to files beside the wheel.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan and the result as JSON.")
@click.option("--force", is_flag=True, help="Replace a wheel of the same name.")
def command(
    wheel: Path, out: Path, dry_run: bool, as_json: bool, force: bool, **wishes: Any
) -> None:
    """Make a wheel portable: search paths, libraries, requirements and tags.

    \b
    pypi    NVIDIA's libraries come from their PyPI packages, as with the official wheels
    bundle  the wheel contains all libraries that it needs
    plain   only the platform tag and search paths of the build machine are corrected

    \b
    stoker package torch-2.15.0-cp312-cp312-linux_x86_64.whl --mode pypi
    stoker package mill-1.2-cp312-cp312-linux_x86_64.whl --mode bundle --library-folder nvidia
    """
    from stoker.outside.progress import shown, stage
    from stoker.outside.terminal import print_json, show, tell
    from stoker.wheel.package.built_wheel import PackageMode, PackageRequest
    from stoker.wheel.package.packaging import package, package_page, packaged_lines, plan_package

    request = PackageRequest(mode=PackageMode(wishes.pop("mode")), **wishes)
    if dry_run:
        with shown():
            plan = plan_package(wheel, request)
        print_json({"plan": plan}) if as_json else show(package_page(plan))
        return
    with shown(), stage(f"packaging {wheel.name}"):
        plan, packaged = package(wheel, request, out, force=force)
    for note in plan.notes:
        tell(f"note: {note}")
    click.echo(packaged_lines(packaged), err=True)
    if as_json:
        print_json({"plan": plan, "packaged": packaged})
    else:
        click.echo(packaged.path)
