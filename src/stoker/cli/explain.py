"""`stoker explain`: describe a cause of failed builds."""

import click

from stoker.model.errors import unknown


@click.command()
@click.argument("cause", required=False)
@click.option("--stage", metavar="STAGE", help="List only causes of this stage, such as compile.")
@click.option("--json", "as_json", is_flag=True, help="Print the cause, or all causes, as JSON.")
@click.option("--markdown", is_flag=True, help="Print all causes as Markdown.")
def command(cause: str | None, stage: str | None, as_json: bool, markdown: bool) -> None:
    """Explain a cause that `stoker diagnose` named. Without CAUSE, list all causes.

    \b
    stoker explain
    stoker explain oom-nvcc
    """
    from stoker.diagnose.diagnosing import cause_list, cause_page, reference
    from stoker.knowledge.failures import Stage, failures
    from stoker.outside.terminal import print_json, show

    known = failures()
    if cause and cause not in known:
        raise unknown("cause", cause, known, hint="`stoker explain` lists them")
    if stage and stage not in list(Stage):
        raise unknown("stage", stage, list(Stage), hint=f"one of {', '.join(Stage)}")
    listed = [one for one in known.values() if stage in (None, one.stage)]
    chosen = [known[cause]] if cause else listed
    if as_json:
        import msgspec

        built = msgspec.to_builtins(chosen[0] if cause else chosen)
        print_json(built)
    elif markdown:
        click.echo(reference(chosen), nl=False)
    else:
        show(cause_page(chosen[0]) if cause else cause_list(chosen))
