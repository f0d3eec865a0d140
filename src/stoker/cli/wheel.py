"""`stoker inspect`, `slim`, `package` and `verify`: what a wheel holds, and what becomes of it."""

from pathlib import Path
from typing import Any

import click

from stoker.model.errors import ExitStatus


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option(
    "--for",
    "gpus",
    metavar="GPUS",
    help="The GPUs to keep code for: sm90,sm86+ptx or h100,rtx4090 or native.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Output folder for a wheel (default: dist), or output file for a library.",
)
@click.option("--strip", is_flag=True, help="Also remove symbol tables and unused space.")
@click.option(
    "--recompress",
    type=click.Choice(["zstd"]),
    help="Compress kept LZ4 code with zstd: smaller, needs driver 550.54.14 or later.",
)
@click.option(
    "--nvidia", is_flag=True, help="Also slim NVIDIA's own libraries, for private use only."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be kept and removed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@click.option("--undo", "undoing", is_flag=True, help="Restore what was slimmed in place.")
@click.option(
    "--discard", is_flag=True, help="Keep no originals for --undo. Without --for: delete them."
)
def slim(
    target: str, gpus: str | None, undoing: bool, discard: bool, as_json: bool, **output: Any
) -> None:
    """Keep the device code that the chosen GPUs run, and remove the rest from the libraries.

    A wheel gives a new wheel. A folder, a library without --out, or a distribution of the active
    environment, given by its NAME such as torch, is slimmed in place.

    \b
    stoker slim torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl --for h100
    stoker slim torch --for native
    stoker slim torch --undo
    """
    if undoing or (discard and gpus is None):
        _go_back(target, gpus, undoing)
    else:
        _slim(target, gpus, as_json, discard=discard, **output)


def _go_back(word: str, gpus: str | None, undoing: bool) -> None:
    from stoker.model.errors import UsageError
    from stoker.model.value import size
    from stoker.wheel.inspect.target import find_target
    from stoker.wheel.slim.slimming import discard, undo

    if gpus is not None:
        raise UsageError("--undo restores everything: leave out --for")
    target = find_target(word)
    if undoing:
        names = undo(target)
        for name in names:
            click.echo(f"restored {name}", err=True)
        if not names:
            click.echo("no file had been replaced, so nothing was restored", err=True)
    else:
        click.echo(f"deleted the originals ({size(discard(target))})", err=True)


def _slim(
    word: str,
    gpus: str | None,
    as_json: bool,
    *,
    strip: bool,
    recompress: str | None,
    nvidia: bool,
    dry_run: bool,
    **output: Any,
) -> None:
    from stoker.model.errors import UsageError
    from stoker.outside.long_work import shown, stage
    from stoker.outside.terminal import print_json, show, tell
    from stoker.wheel.inspect.target import find_target
    from stoker.wheel.slim.library import SlimOptions
    from stoker.wheel.slim.report_page import slim_lines, slim_page
    from stoker.wheel.slim.selection import SlimRequest, gpu_targets
    from stoker.wheel.slim.slimming import OutputOptions, slim

    if gpus is None:
        raise UsageError(
            "no GPUs are given", hints=["name them with --for h100 or --for sm90,sm86+ptx"]
        )
    options = SlimOptions(strip=strip, recompress=recompress is not None)
    request = SlimRequest(gpus=gpu_targets(gpus), options=options, nvidia=nvidia)
    with shown(), stage(f"slimming {Path(word).name}"):
        report = slim(find_target(word), request, OutputOptions(dry_run=dry_run, **output))
    if as_json:
        print_json(report)
    elif dry_run:
        show(slim_page(report))
    else:
        tell(slim_lines(report))
        if report.output:
            click.echo(report.output)


@click.command()
@click.argument("target", metavar="WHEEL|LIBRARY|FOLDER|NAME")
@click.option("--against", metavar="OTHER", help="Show only the differences to OTHER.")
@click.option(
    "--with",
    "torch",
    multiple=True,
    metavar="TORCH",
    help="Also look symbols up in this wheel or folder of PyTorch. Default: the installed one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def inspect(target: str, against: str | None, torch: tuple[str, ...], as_json: bool) -> None:
    """Show what a wheel, a library or a folder contains: device code by GPU architecture, the GPUs
    it runs on, the libraries it needs, the libraries it lacks, the releases of PyTorch it loads
    with.

    NAME is a distribution in the active environment, such as torch. Nothing is unpacked to disk,
    and neither a GPU nor the CUDA tools are needed.

    \b
    stoker inspect torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl
    stoker inspect torch
    stoker inspect mine.whl --against official.whl
    """
    from stoker.model.errors import StokerError
    from stoker.outside.long_work import shown
    from stoker.wheel.inspect.inspecting import inspect

    with shown():
        facts = [inspect(word, torch=torch) for word in (target, against) if word is not None]
    if against is None:
        _print(facts[0], as_json)
    else:
        from stoker.wheel.inspect.differences import compare_facts

        new, old = facts
        _print(compare_facts(old, new), as_json)  # as with `stoker report --against`
    problems = [problem for each in facts for problem in each.problems]
    if problems:
        more = [f"{len(problems) - 1} more could not be read"] if problems[1:] else []
        raise StokerError(problems[0], hints=more)


def _print(value: Any, as_json: bool) -> None:
    from stoker.model.artifact import ArtifactFacts
    from stoker.outside.terminal import print_json, show
    from stoker.wheel.inspect.differences import fact_differences_page
    from stoker.wheel.inspect.facts_page import inspection_page

    if as_json:
        print_json(value, "differences")
    elif isinstance(value, ArtifactFacts):
        show(inspection_page(value))
    else:
        show(fact_differences_page(value))


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
def package(
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
    from stoker.outside.long_work import shown, stage
    from stoker.outside.terminal import print_json, show, tell
    from stoker.wheel.package.packaging import package, plan_package
    from stoker.wheel.package.plan_page import package_page, packaged_lines
    from stoker.wheel.package.request import PackageMode, PackageRequest

    request = PackageRequest(mode=PackageMode(wishes.pop("mode")), **wishes)
    if dry_run:
        with shown():
            plan = plan_package(wheel, request)
        print_json({"plan": plan, "packaged": None}) if as_json else show(package_page(plan))
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


@click.command()
@click.argument("wheel", type=click.Path(path_type=Path, readable=False))
@click.option(
    "--variant",
    metavar="VARIANT",
    help="The expected variant, such as cu130-sm90-avx2. Default: the plan inside the wheel.",
)
@click.option("--run", is_flag=True, help="Also install it in a new environment and use it.")
@click.option(
    "--against",
    metavar="TORCH",
    help="Fail unless it loads with these official releases, such as torch==2.11.",
)
@click.option(
    "--with",
    "torch",
    multiple=True,
    metavar="TORCH",
    help="Fail unless it loads with this wheel or folder of PyTorch, or torch if installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the findings to this file as JUnit XML.",
)
def verify(wheel: Path, as_json: bool, junit: Path | None, **wishes: Any) -> ExitStatus:
    """Check a wheel against its metadata and the variant it was built for: hashes, tags, required
    libraries and their search paths, the releases of PyTorch it loads with, GPU architectures, CPU
    level.

    The exit status is 0 if no error is found; warnings do not change it.

    \b
    stoker verify dist/torch-2.13.0+cu130.sm90-cp312-cp312-manylinux_2_28_x86_64.whl
    stoker verify mill-1.2-py3-none-any.whl --variant cu130-sm90+ptx --run
    stoker verify mill-1.2-cp312-cp312-manylinux_2_28_x86_64.whl --against "torch>=2.10,<2.13"
    """
    from stoker.outside.files import write_named
    from stoker.outside.long_work import shown, stage
    from stoker.outside.terminal import print_json, show
    from stoker.wheel.verify import findings_page
    from stoker.wheel.verify.verifying import VerifyWishes, verify

    with shown(), stage(f"verifying {wheel.name}"):
        verification = verify(wheel, VerifyWishes(**wishes))
    if junit:
        write_named(junit, findings_page.verification_junit(verification))
    if as_json:
        built = findings_page.verification_json(verification)
        print_json(built)
    else:
        show(findings_page.verification_page(verification))
    return ExitStatus.OK if verification.ok else ExitStatus.FAILED
