"""`stoker plan` and `doctor`: what a build does, what can be chosen, and what it needs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.asking import AskingCommand, ask_options, asked_plan, write_recipe
from stoker.cli.chosen import chain_options, told_request, with_settings
from stoker.cli.request import request_options, setting_options
from stoker.cli.words import variant_words
from stoker.model.errors import ExitStatus, UsageError
from stoker.settings.declared import OPTIONS, SettingGroup

if TYPE_CHECKING:
    from stoker.ask.asking import AskedPlan
    from stoker.model.caching import Chain
    from stoker.model.plan import Plan


@click.command(cls=AskingCommand)
@variant_words
@request_options()
@setting_options(SettingGroup.GOVERN, only=("memory", "cpus"))
@setting_options(SettingGroup.CHAIN)
@ask_options
@click.option(
    "--write-recipe",
    "written",
    metavar="FILE",
    help="With --ask: write what was learned as a recipe.",
)
@click.option(
    "--list",
    "listed",
    is_flag=True,
    help="List the words of variants; with VARIANT, explain it and list the GPUs that run it.",
)
@click.option(
    "--options",
    "choices",
    is_flag=True,
    help="List the options of the tree, and the environment variables that its build reads; "
    "words select by name and help text.",
)
@click.option("--against", metavar="VARIANT", help="Show only what differs from another variant.")
@click.option("--json", "forms", flag_value="json", multiple=True, help="Print the plan as JSON.")
@click.option(
    "--shell",
    "forms",
    flag_value="shell",
    multiple=True,
    help="Print a script that does the build without stoker.",
)
@click.option(
    "--dotenv",
    "forms",
    flag_value="dotenv",
    multiple=True,
    help="Print the environment as a .env file.",
)
@click.option(
    "--check-recipe",
    "checked",
    metavar="FILE",
    help="Check the recipes of a file, with --source against a tree, and print no plan.",
)
@click.option(
    "--trust",
    metavar="FILE",
    help="Trust a stoker.toml as it is now: its settings may start programs and reach the network.",
)
def plan(
    trust: str | None,
    checked: str | None,
    written: str | None,
    listed: bool,
    choices: bool,
    against: str | None,
    forms: tuple[str, ...],
    **options: Any,
) -> None:
    """Print the settings and commands of a build, and where each setting comes from.

    \b
    stoker plan                       for this machine, the tree in this folder
    stoker plan h100 --source pytorch
    stoker plan ./pytorch --variant h100    the same
    stoker plan h5py==3.14.0          any source that stoker build takes
    stoker plan "NVIDIA A100-SXM4-80GB" --blas openblas
    stoker plan cu128-sm90 --against cu130-sm90
    stoker plan cpu --shell > build.sh
    stoker plan h100 --source mylib --ask   what its own build says
    stoker plan --check-recipe mylib.toml --source mylib
    stoker plan --list                the words that name variants, and GPUs
    stoker plan --list "NVIDIA GeForce RTX 3090"
    stoker plan --options cudnn --source pytorch
    stoker plan flash-attn==2.8.3 h100 --memory 32G --cpus 16   for another machine
    stoker plan --trust stoker.toml

    VARIANT: what to build for, such as cu130-sm90-avx512, h100, "8.0;9.0+PTX", cpu, native, or a
    name from stoker.toml. Default: native, this machine.
    """
    from stoker.outside.terminal import print_json, show
    from stoker.plan import shown as report
    from stoker.plan.records import compare
    from stoker.plan.survey import plan

    different = list(dict.fromkeys(forms))
    if len(different) > 1:
        raise UsageError(f"choose one of --{' and --'.join(different)}")
    form = different[0] if different else None
    if trust is not None:
        _trust(Path(trust), form)
        return
    if checked:
        _check(checked, options.get("source"), form)
        return
    if listed:
        _list(options["words"], as_json=form == "json")
        return
    if choices:
        _options(" ".join(options["words"]), options["source"] or ".", as_json=form == "json")
        return
    request = told_request(options)
    result = asked_plan(request, options)
    if written:
        write_recipe(written, result[1] if result else None)
    planned = result[0] if result else plan(request)
    if against is not None:
        other = plan(told_request(options | {"variant": against, "words": ()}))
        differences = compare(planned, other)
        if form == "json":
            print_json(differences, "differences")
        elif form:
            raise UsageError(f"--against cannot be printed as --{form}", hints=["use --json"])
        else:
            show(report.differences_page(differences, planned.name, other.name))
        return
    _print(planned, form, options, result[1] if result else None)
    if result and result[1].asked.refusal:
        raise SystemExit(ExitStatus.FAILED)


def _print(
    planned: "Plan", form: str | None, options: dict[str, Any], result: "AskedPlan | None"
) -> None:
    from stoker.outside.terminal import print_json, show
    from stoker.plan import shown as report
    from stoker.plan.records import plan_json

    if form == "json":
        said = {"chain": _chain(planned, options), "asked": result.asked if result else None}
        print_json(plan_json(planned) | said)
    elif form == "shell":
        click.echo(report.shell_lines(planned), nl=False)
    elif form == "dotenv":
        click.echo(report.dotenv_lines(planned), nl=False)
    else:
        show(report.plan_page(planned, _chain(planned, options)))
        if result:
            from stoker.ask.shown import asked_page

            show(asked_page(result.asked))


def _check(file: str, source: str | None, form: str | None) -> None:
    """Print what is wrong with recipes; exit with status 1 if one of them cannot work."""
    from stoker.model.errors import ExitStatus
    from stoker.model.finding import Severity
    from stoker.outside.terminal import print_json, show
    from stoker.plan.shown import findings_page
    from stoker.plan.survey import checked_recipes

    findings = checked_recipes(Path(file), Path(source).expanduser() if source else None)
    if form == "json":
        print_json(findings, "findings")
    else:
        show(findings_page(findings))
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise SystemExit(ExitStatus.FAILED)


def _chain(planned: "Plan", options: dict[str, Any]) -> "Chain":
    """Return what a build of this plan would add to its compilers."""
    from stoker.cache.chains import with_collector, with_threads_of_nvcc, without_secrets_in
    from stoker.cache.survey import survey_chain
    from stoker.model.terms import Gc, NvccThreads

    settings = with_settings(options | {"gc": None, "nvcc_threads": None})
    chain = with_collector(survey_chain(chain_options(settings), os.environ), Gc(settings["gc"]))
    chain = with_threads_of_nvcc(chain, planned.variant, NvccThreads(settings["nvcc_threads"]))
    return without_secrets_in(chain)


def _trust(path: Path, form: str | None) -> None:
    """Trust a file, after a check that it is valid."""
    if form:
        raise UsageError(f"--trust cannot be printed as --{form}")
    from stoker.settings import trust
    from stoker.settings.toml import read_file

    file = read_file(path)
    trust.trust(path)
    click.echo(f"{path.resolve()} is trusted until it changes")
    for table in (file.defaults, *file.variants.values()):
        for name, found in table.values.items():
            if OPTIONS[name].reaches_out:
                click.echo(f"  {found.where}: {name} = {found.value}")


def _list(words: tuple[str, ...], *, as_json: bool) -> None:
    from stoker.outside.terminal import print_json, show
    from stoker.plan.words import explain, known_words
    from stoker.plan.words_page import explained_page, known_words_page

    if words:
        explained = explain(" ".join(words))
        print_json(explained) if as_json else show(explained_page(explained))
    else:
        known = known_words()
        print_json(known) if as_json else show(known_words_page(known))


def _options(pattern: str, source: str, *, as_json: bool) -> None:
    import msgspec

    from stoker.outside.terminal import print_json, show
    from stoker.plan.words import options
    from stoker.plan.words_page import options_page

    if source == "." and pattern and Path(pattern).is_dir():
        source, pattern = pattern, ""
    tree, found = options(Path(source), pattern)
    if as_json:
        listed = [
            msgspec.to_builtins(one.option) | {"variable": one.variable, "turned_on": one.turned_on}
            for one in found
        ]
        print_json(listed, "options")
    else:
        show(options_page(tree, found))


@click.command(cls=AskingCommand)
@variant_words
@request_options()
@setting_options(SettingGroup.GOVERN, only=("memory", "cpus"))
@ask_options
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool, **options: Any) -> int:
    """List what this machine lacks for a build, and the commands that install it.

    \b
    stoker doctor                     the tree in this folder, for this machine
    stoker doctor h100 --source pytorch
    stoker doctor cpu --source pytorch --json
    stoker doctor h100 --source mylib --ask   also runs its configuration, in a closed room

    The exit status is 0 if the build can run, and 1 if it cannot.
    """
    from stoker.outside.terminal import print_json, show
    from stoker.plan.doctor import can_run, examine
    from stoker.plan.shown import doctor_page
    from stoker.plan.survey import doctor

    request = told_request(options)
    if result := asked_plan(request, options):
        planned = result[0]
        findings = examine(result[1].subject, planned)
    else:
        planned, findings = doctor(request)
    runs = can_run(findings)
    if as_json:
        value = {"variant": planned.name, "ok": runs, "findings": findings}
        print_json(value)
    else:
        show(doctor_page(planned, findings))
    return ExitStatus.OK if runs else ExitStatus.FAILED
