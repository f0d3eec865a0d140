"""Writes the manual pages, the shell completions and the JSON Schemas that ship in the wheel.

    python release/share.py FOLDER

Each command of stoker becomes FOLDER/man/man1/stoker-COMMAND.1, generated from its click
declaration, so that the pages always agree with `--help`. Only FOLDER is written; it is emptied
first.
"""

import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import get_completion_class

from stoker import __version__
from stoker.cli.request import show_all_options
from stoker.cli.root import command as stoker
from stoker.cli.schemas import OUTPUTS, schema

# Where each shell looks for the completions of a command.
COMPLETIONS = {
    "bash": "bash-completion/completions/stoker",
    "zsh": "zsh/site-functions/_stoker",
    "fish": "fish/vendor_completions.d/stoker.fish",
}


class Page(NamedTuple):
    """A command with its full name, such as ("stoker", "toolchain", "install")."""

    names: tuple[str, ...]
    context: click.Context

    @property
    def file_name(self) -> str:
        return "-".join(self.names)


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    manual = folder / "man/man1"
    manual.mkdir(parents=True)
    for page in pages(("stoker",), stoker.make_context("stoker", [], resilient_parsing=True)):
        (manual / f"{page.file_name}.1").write_text("\n".join(roff(page)) + "\n")
    schemas = folder / "stoker/schemas"
    schemas.mkdir(parents=True)
    for name in OUTPUTS:
        document = json.dumps(schema(name), indent=2)
        (schemas / f"{name.lower().replace(' ', '-')}.json").write_text(document + "\n")
    for shell, name in COMPLETIONS.items():
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(completion(shell))


def pages(names: tuple[str, ...], context: click.Context) -> Iterator[Page]:
    """Yield the page of a command, then those of its subcommands."""
    show_all_options(context)
    yield Page(names, context)
    for name, command in subcommands(context):
        child = command.make_context(name, [], parent=context, resilient_parsing=True)
        yield from pages((*names, name), child)


def subcommands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the visible subcommands with their names."""
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command and not command.hidden:
                yield name, command


def roff(page: Page) -> Iterator[str]:
    """Yield the lines of a manual page in the man(7) macros."""
    command = page.context.command
    usage = [escaped(word) for word in command.collect_usage_pieces(page.context)]
    yield f'.TH "{page.file_name.upper()}" 1 "" "stoker {__version__}" "stoker manual"'
    yield from (".SH NAME", f"{escaped(page.file_name)} \\- {escaped(summary(command))}")
    yield from (".SH SYNOPSIS", f".B {' '.join(page.names)}", " ".join(usage))
    yield from (".SH DESCRIPTION", *description(help_text(command)))
    yield ".SH OPTIONS"
    for parameter in command.get_params(page.context):
        record = parameter.get_help_record(page.context)
        if record and record[1]:  # an argument has none: the description explains it
            yield from (".TP", f".B {escaped(record[0])}", escaped(record[1]))
    if children := list(subcommands(page.context)):
        yield ".SH COMMANDS"
        for name, child in children:
            yield from (".TP", f".BR {page.file_name}\\-{name} (1)", escaped(summary(child)))
    if len(page.names) > 1:
        yield from (".SH SEE ALSO", f".BR {'-'.join(page.names[:-1])} (1)")


def help_text(command: click.Command) -> str:
    """Return the help of a command without the indentation of its docstring."""
    return inspect.cleandoc(command.help or "")


def summary(command: click.Command) -> str:
    """Return the first sentence of a command's help, on one line."""
    first = help_text(command).split("\n\n")[0]
    return " ".join(first.split()).split(". ")[0].rstrip(".")


def description(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; click marks those with fixed lines by a \\b."""
    for paragraph in text.split("\n\n"):
        fixed = paragraph.startswith("\b")
        lines = [escaped(line) for line in paragraph.strip("\b\n").splitlines()]
        yield ".PP"
        yield from (".nf", *lines, ".fi") if fixed else (line.strip() for line in lines)


def escaped(text: str) -> str:
    """Return the text so that roff prints it as it is, with ASCII hyphens for options."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def completion(shell: str) -> str:
    """Return the completion script that `stoker help --completion SHELL` prints."""
    found = get_completion_class(shell)
    assert found is not None  # click knows all shells of COMPLETIONS
    return found(stoker, {}, "stoker", "_STOKER_COMPLETE").source()


if __name__ == "__main__":
    main()
