"""The options by which commands ask a build what it compiles, and what they do with the answer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.cli.request import F
from stoker.model.errors import UsageError

if TYPE_CHECKING:
    from stoker.ask.asking import AskedPlan
    from stoker.model.plan import Plan
    from stoker.settings.declared import CommandLine

_WAYS = {"--ask=open": "--ask-open", "--ask=closed": "--ask"}


class AskingCommand(click.Command):
    """A command with ``--ask`` and ``--ask=open``: a word behind ``--ask`` names the variant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word in args:
            if word.startswith("--ask=") and word not in _WAYS:
                raise UsageError(f"{word}: not a way to ask", hints=["--ask, or --ask=open"])
        return super().parse_args(ctx, [_WAYS.get(word, word) for word in args])


def ask_options(function: F) -> F:
    """Add ``--ask`` and its form ``--ask=open``."""
    hidden = click.option("--ask-open", "ask_open", is_flag=True, hidden=True)
    shown = click.option(
        "--ask",
        is_flag=True,
        help="Run the project's own configuration in a closed room, and plan what it would "
        "compile. --ask=open: without a room, where the kernel allows none.",
    )
    return shown(hidden(function))


def asked_plan(request: "CommandLine", options: dict[str, Any]) -> "tuple[Plan, AskedPlan] | None":
    """Ask the build if the options say so; return the plan and the answer."""
    if not (options["ask"] or options["ask_open"]):
        return None
    from msgspec.structs import replace

    from stoker.ask.asking import ask, asked_remarks, planned
    from stoker.ask.values import Walls
    from stoker.outside.terminal import tell
    from stoker.plan.survey import survey

    walls = Walls.OPEN if options["ask_open"] else Walls.CLOSED
    result = ask(survey(request), walls=walls, say=lambda text: tell(f"stoker: {text}"))
    plan = planned(result.subject)
    return replace(plan, findings=(*plan.findings, *asked_remarks(plan, result.asked))), result


def write_recipe(file: str, result: "AskedPlan | None") -> None:
    """Write what was learned, and say so on stderr."""
    from stoker.ask.asking import lasting_recipe
    from stoker.ask.recipe_text import recipe_text
    from stoker.outside.files import write_named
    from stoker.outside.terminal import tell

    if result is None:
        raise UsageError("--write-recipe needs --ask", hints=["stoker plan --ask --write-recipe F"])
    recipe = lasting_recipe(result)
    write_named(Path(file), recipe_text(recipe))
    tell(f"stoker: wrote {file}; use it with --recipe {file}")
