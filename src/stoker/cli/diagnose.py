"""`stoker diagnose`: find the cause of a failed build in its log."""

import os
import sys
from typing import TYPE_CHECKING

import click

from stoker.cli.ci import CiReport
from stoker.model.errors import ExitStatus, UsageError, unknown
from stoker.outside.streams import ci_system, write_own

if TYPE_CHECKING:
    from stoker.diagnose.values import Diagnosis


@click.command()
@click.argument("what", metavar="[LOG|-|RUN]", required=False)
@click.option("--run", metavar="N", help="The run of `stoker history` that wrote the log.")
@click.option(
    "--try",
    "tries",
    is_flag=True,
    help="Run the command of a failed run again, on copies, with one suspect changed at a time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print causes, evidence and fixes as JSON.")
@click.option(
    "--fix-script", is_flag=True, help="Print the fixes as a shell script, and run nothing."
)
@click.option(
    "--evidence",
    is_flag=True,
    help="Print what was measured of a failed run, its tools and its first error, for an issue.",
)
@click.option(
    "--explain",
    is_flag=False,
    flag_value="",
    metavar="[CAUSE]",
    help="Explain a cause; without CAUSE, list all causes.",
)
@click.option("--stage", metavar="STAGE", help="With --explain: only causes of this stage.")
@click.option("--markdown", is_flag=True, help="With --explain: as Markdown.")
def diagnose(
    what: str | None,
    run: str | None,
    tries: bool,
    as_json: bool,
    fix_script: bool,
    evidence: bool,
    explain: str | None,
    stage: str | None,
    markdown: bool,
) -> ExitStatus:
    """Name the cause of a failed build, show the evidence and give the fix.

    \b
    stoker diagnose                  the last run of `stoker run` or `build` that failed
    stoker diagnose RUN              any: its number in `stoker history`, or its run folder
    stoker diagnose build.log        any log: pip, cmake, ninja, make, docker, CI
    pip install . 2>&1 | stoker diagnose -
    stoker diagnose --try            prove the cause of the last run: what lets it pass?
    stoker diagnose --evidence       what a run left that no log has, for an issue
    stoker diagnose --explain oom-nvcc

    The exit status is 0 if a cause was found, 1 if the build failed and the cause is unknown, and 3
    if nothing failed or the log is empty. With --try it is 0 if a cause was proven, 1 if none was,
    and 3 if the command passes as it is.
    """
    from stoker.diagnose.diagnosing import diagnose_what
    from stoker.diagnose.values import Status

    if explain is not None:
        _explain(explain, stage, as_json=as_json, markdown=markdown)
        return ExitStatus.OK
    if as_json and fix_script:
        raise UsageError(
            "choose one of --json and --fix-script", hints=["the JSON contains the fixes"]
        )
    if evidence:
        _show_evidence(what or run, as_json=as_json)
        return ExitStatus.OK
    if tries and run:
        raise UsageError("choose one of --try and --run", hints=["stoker diagnose --try RUN"])
    if tries:
        from stoker.diagnose.trying import try_suspects

        diagnosis = try_suspects(what, lambda text: write_own(sys.stderr, f"stoker: {text}\n"))
    else:
        if what is None and run is None:
            _say_which()
        diagnosis = diagnose_what(what, run)
    if ci_system(os.environ):
        CiReport(lambda text: write_own(sys.stderr, text)).diagnosed(diagnosis)
    _show(diagnosis, as_json=as_json, as_script=fix_script)
    if tries and diagnosis.status is not Status.NOTHING_FAILED and not diagnosis.is_proven:
        return ExitStatus.FAILED
    return {
        Status.FAILED: ExitStatus.OK,
        Status.UNKNOWN: ExitStatus.FAILED,
        Status.NOTHING_FAILED: ExitStatus.NOTHING_FAILED,
        Status.EMPTY: ExitStatus.NOTHING_FAILED,
    }[diagnosis.status]


def _show(diagnosis: "Diagnosis", *, as_json: bool, as_script: bool) -> None:
    if as_script:
        from stoker.diagnose.texts import fix_script

        click.echo(fix_script(diagnosis), nl=False)
        return
    from stoker.outside.terminal import print_json, show

    if as_json:
        print_json(diagnosis)
    else:
        from stoker.diagnose.pages import diagnosis_page

        show(diagnosis_page(diagnosis))


def _say_which() -> None:
    """Say which run an answer is about that was not asked for by its number."""
    from stoker.diagnose.kept import last_failed

    if kept := last_failed():
        first, _, rest = kept.failed.command.partition("\n")
        about = f"run {kept.run}, `{first}{'...' if rest else ''}` in {kept.failed.folder}"
        write_own(sys.stderr, f"stoker: the last run that failed: {about}\n")


def _show_evidence(what: str | None, *, as_json: bool) -> None:
    from stoker.diagnose.evidence import evidence, evidence_text
    from stoker.outside.terminal import print_json

    found = evidence(what)
    if as_json:
        print_json(found)
    else:
        click.echo(evidence_text(found), nl=False)


def _explain(cause: str, stage: str | None, *, as_json: bool, markdown: bool) -> None:
    """Print a cause, or all of them."""
    from stoker.diagnose.cause_pages import cause_list, cause_page, reference
    from stoker.knowledge.failures import FailureStage, failures
    from stoker.outside.terminal import print_json, show

    known = failures()
    if cause and cause not in known:
        raise unknown("cause", cause, known, hint="`stoker diagnose --explain` lists them")
    if stage and stage not in list(FailureStage):
        raise unknown("stage", stage, list(FailureStage), hint=f"one of {', '.join(FailureStage)}")
    listed = [one for one in known.values() if stage in (None, one.stage)]
    chosen = [known[cause]] if cause else listed
    if as_json:
        import msgspec

        built = msgspec.to_builtins(chosen[0] if cause else chosen)
        print_json(built, "causes")
    elif markdown:
        click.echo(reference(chosen), nl=False)
    else:
        show(cause_page(chosen[0]) if cause else cause_list(chosen))
