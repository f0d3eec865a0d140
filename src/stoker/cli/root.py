"""`stoker` itself: it finds the command that was called, and shows help."""

from collections.abc import Iterable
from importlib import import_module

import click

from stoker import __version__
from stoker.cli import COMMANDS, GROUPS, MODULES, MOVED
from stoker.outside.streams import told


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.option(
    "--completion",
    "shell",
    type=click.Choice(["bash", "zsh", "fish"]),
    help="Print the script that completes commands and options in a shell.",
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of what --json prints.")
@click.pass_context
def _help(context: click.Context, words: tuple[str, ...], shell: str | None, schema: bool) -> None:
    """Show the help of a command.

    \b
    stoker help build
    stoker help toolchain install
    stoker help --schema inspect
    stoker help --completion bash >> ~/.bashrc
    stoker help --completion fish > ~/.config/fish/completions/stoker.fish
    """
    shown = context.find_root()
    if shell:
        from click.shell_completion import get_completion_class

        completion = get_completion_class(shell)
        assert completion is not None  # click.Choice accepts no other name
        click.echo(completion(shown.command, {}, "stoker", "_STOKER_COMPLETE").source())
        return
    if schema:
        import msgspec

        from stoker.cli import schemas

        document = msgspec.json.encode(schemas.schema(" ".join(words)))
        click.echo(msgspec.json.format(document).decode())
        return
    for word in words:
        group = shown.command
        commands = group.list_commands(shown) if isinstance(group, click.Group) else []
        commands += ["help"] if group is command else []
        if not isinstance(group, click.Group) or word not in commands:
            from stoker.model.errors import unknown

            hint = f"`{shown.command_path} --help` lists the commands" if commands else None
            raise unknown("command", word, commands, hint=hint)
        found = group.get_command(shown, word)
        assert found is not None
        shown = click.Context(found, info_name=word, parent=shown)
    click.echo(shown.get_help())


_TWO_COLUMNS = 60  # characters; in a narrower terminal words would break


class _HelpFormatter(click.HelpFormatter):
    """Wraps help to the width of the terminal; click itself never goes below 50 columns."""

    def __init__(
        self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None
    ):
        import shutil  # only help needs it

        narrow = min(shutil.get_terminal_size().columns, max_width or 80) - 2
        super().__init__(indent_increment, width or max(narrow, 20), max_width)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Put the descriptions below the names if the terminal is too narrow for two columns."""
        super().write_dl(rows, col_max if self.width >= _TWO_COLUMNS else 6, col_spacing)


click.Context.formatter_class = _HelpFormatter  # every command creates a context of its own


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "help":
            return _help
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"stoker.cli.{MODULES.get(cmd_name, cmd_name)}")
        found: click.Command = getattr(module, cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args and (args[0] in COMMANDS or args[0] == "help" or args[0].startswith("-"))
        if args and not known:
            from stoker.model.errors import UsageError, unknown

            if args[0] in MOVED:
                hints = [f"use `{MOVED[args[0]]}`"]
                raise UsageError(f"`stoker {args[0]}` is now part of another command", hints=hints)
            raise unknown("command", args[0], COMMANDS, hint="`stoker --help` lists the commands")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`stoker help COMMAND` shows the options of a command.",
)
@click.version_option(__version__, message="stoker %(version)s")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Log each program that is started, and each decision of the governor.",
)
def command(verbose: bool) -> None:
    """Build PyTorch and other large C++/CUDA projects from source, as fast as the machine allows
    and without running out of memory, for exactly the hardware you have.
    """
    told.clear()
    if verbose:
        import logging

        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
