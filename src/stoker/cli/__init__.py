"""The command line. Each command is a module of this package, imported only when it is called."""

from collections.abc import Iterable
from importlib import import_module

import click

from stoker import __version__

# In the order in which a new user needs them. `stoker --help` shows these lines without importing
# the commands.
COMMANDS = {
    "doctor": "List what this machine lacks for a build, and the commands that install it.",
    "plan": "Print the settings and commands of a build, and where each setting comes from.",
    "variants": "List the words that name variants, or explain a variant.",
    "options": "List the CMake options of a source tree.",
    "toolchain": "Install compilers and build tools from the package index, without root.",
    "build": "Build a source tree into a verified wheel; an interrupted build resumes.",
    "matrix": "Build every variant of stoker.toml, or slim a wheel for each of them.",
    "develop": "Build and install a source tree in editable mode.",
    "container": "List, enter and remove the containers that builds have kept.",
    "run": "Run a build command with as many jobs as fit in memory.",
    "watch": "Show a running build from another terminal.",
    "tune": "Measure on a project's own steps what makes its builds faster.",
    "cache": "Show, count, fill and clear the compiler cache.",
    "history": "List governed runs and what each of their steps needed.",
    "report": "Write a page about a run: timeline, memory, critical path, comparison.",
    "trace": "Write a run as a trace for Perfetto.",
    "graph": "Show the targets of a build, what blocks them, and what a change rebuilds.",
    "simulate": "Predict how long a measured build takes on another machine.",
    "inspect": "Show what a wheel or library holds: device code, dependencies, sizes.",
    "package": "Make a wheel portable: run paths, requirements, bundled libraries, tags.",
    "slim": "Remove device code for all but the chosen GPUs from a wheel or library.",
    "verify": "Check a wheel against its plan and its tags; try it in a clean environment.",
    "export": "Write a build as a Dockerfile, a CI workflow, a cluster job or a Nix file.",
    "publish": "Add wheels to a catalogue: an index for each variant and a page for people.",
    "unpublish": "Remove wheels from a catalogue.",
    "prune": "Delete the files that a catalogue no longer needs.",
    "select": "Rank the variants of a catalogue for a machine, each with the reason.",
    "install": "Install the variant that suits this machine, from a catalogue or slimmed here.",
    "serve": "Serve a catalogue over HTTP on this machine.",
    "clean": "Remove the build folders of a source tree.",
    "gc": "Remove builds, runs, sources, toolchains and history that were unused for some time.",
    "diagnose": "Name the cause of a failed build from its log, with evidence and the fix.",
    "explain": "Explain a cause of failed builds, or list all causes.",
    "completion": "Print the completion script for a shell.",
    "help": "Show the help of a command.",
}


@click.command()
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def _help(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    \b
    stoker help build
    stoker help toolchain install
    """
    shown = context.find_root()
    for word in words:
        group = shown.command
        commands = group.list_commands(shown) if isinstance(group, click.Group) else []
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
        module = import_module(f"stoker.cli.{cmd_name}")
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from stoker.model.errors import unknown

            raise unknown("command", args[0], COMMANDS, hint="`stoker --help` lists the commands")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Documentation: docs/ in the source tree. Exit statuses: docs/reference/exit-status.md.",
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
    if verbose:
        import logging

        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
