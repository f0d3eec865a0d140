"""The options of `stoker build` and `stoker develop` that are no settings, each declared once.

A row says what its value belongs to. The commands take the options of a part by that, and by no
other list: an option that is added here reaches the part, and a request has a field for each of its
options (a test checks that).
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

import click

from stoker.cli.request import F, Option


class Part(Enum):
    """What the value of an option belongs to."""

    REQUEST = auto()  # a field of BuildRequest
    RECORD = auto()  # the build that is repeated
    JOB = auto()  # the part of a job in a build of several
    SHOWN = auto()  # what is printed and written about the build
    CONTAINER = auto()  # the container in which it runs


class _Row(NamedTuple):
    """An option. ``common`` ones are in the short help; ``develop`` has it, too. One that is
    ``local``, as all of a job and of a container are, is not repeated in a container.
    """

    part: Part
    words: str  # the option, and its name where that differs
    help: str
    how: Mapping[str, Any]
    common: bool = False
    local: bool = False
    develop: bool = False

    @property
    def name(self) -> str:
        return self.words.split()[-1].removeprefix("--").replace("-", "_")

    def option(self) -> Callable[[F], F]:
        local = self.local or self.part in (Part.JOB, Part.CONTAINER)
        how = {"help": self.help, "rare": not self.common, "local": local, **self.how}
        return click.option(*self.words.split(), cls=Option, **how)


_FLAG: Mapping[str, Any] = {"is_flag": True}
_FLAG_OF_RECORD: Mapping[str, Any] = {"is_flag": True, "default": None}  # a record may have it


def _value(metavar: str, **how: Any) -> Mapping[str, Any]:
    return {"metavar": metavar, **how}


def _choice(*words: str, **how: Any) -> Mapping[str, Any]:
    return {"type": click.Choice(words), **how}


_ROWS = (
    _Row(
        Part.REQUEST,
        "--target",
        "Build only this target of ninja, and no wheel.",
        _value("T"),
        common=True,
    ),
    _Row(
        Part.REQUEST,
        "--install-tree",
        "Make an installed tree instead of a wheel.",
        _FLAG_OF_RECORD,
    ),
    _Row(
        Part.REQUEST,
        "--tag",
        "Tag, branch or commit of a git SOURCE.",
        _value("NAME"),
        common=True,
        local=True,
    ),
    _Row(
        Part.JOB,
        "--checkpoint",
        "Keep objects and times there, so that a job on another machine continues the build.",
        _value("FOLDER|URL"),
    ),
    _Row(
        Part.JOB,
        "--checkpoint-size",
        "Objects that a checkpoint in a folder may hold; the oldest are deleted. Default: 20G.",
        _value("SIZE", default="20G"),
    ),
    _Row(
        Part.JOB,
        "--shard",
        "With --checkpoint: compile the K-th of N parts, and do not link.",
        _value("K/N"),
    ),
    _Row(
        Part.JOB,
        "--finish",
        "With --checkpoint: link and pack what the shards have compiled.",
        _FLAG,
    ),
    _Row(Part.REQUEST, "--fresh", "Start from the beginning.", _FLAG, common=True, develop=True),
    _Row(
        Part.REQUEST, "--build-in-ram in_ram", "Keep the build folder in memory.", _FLAG_OF_RECORD
    ),
    _Row(Part.RECORD, "--from-record", "Repeat the build of this record or wheel.", _value("FILE")),
    _Row(
        Part.REQUEST,
        "--verbose",
        "Show the full output of all tools.",
        _FLAG,
        common=True,
        develop=True,
    ),
    _Row(Part.SHOWN, "--shell-on-failure", "Open a shell when a stage fails.", _FLAG, develop=True),
    _Row(Part.SHOWN, "--report", "Write report.html into the run folder.", _FLAG, common=True),
    _Row(
        Part.SHOWN,
        "--junit",
        "Also write the stages to this file as JUnit XML.",
        _value("FILE", type=click.Path(path_type=Path)),
        local=True,
    ),
    _Row(
        Part.SHOWN,
        "--json as_json",
        "Print the record as JSON, also on failure.",
        _FLAG,
        common=True,
        local=True,
        develop=True,
    ),
    _Row(
        Part.CONTAINER,
        "--container",
        "Build in a container: of this image, of a folder that holds a root, or of the usual image "
        "for such a wheel. --memory is then its limit.",
        _value("[IMAGE|FOLDER]", is_flag=False, flag_value=""),
        common=True,
    ),
    _Row(
        Part.CONTAINER,
        "--engine",
        "What runs the container. Default: podman, else docker.",
        _choice("podman", "docker"),
    ),
    _Row(
        Part.CONTAINER,
        "--env",
        "A variable for the build inside; without a value, the one it has here.",
        _value("NAME[=VALUE]", multiple=True),
    ),
    _Row(
        Part.CONTAINER,
        "--ipc",
        "Whose shared memory the container sees. Default: private.",
        _choice("private", "host", default="private"),
    ),
    _Row(Part.CONTAINER, "--keep", "Keep the container for `stoker container shell`.", _FLAG),
)


def build_options(*, develop: bool = False) -> Callable[[F], F]:
    """Add the options of `stoker build`, or those of them that `stoker develop` has."""

    def decorate(function: F) -> F:
        for row in reversed(_ROWS):
            if row.develop or not develop:
                function = row.option()(function)
        return function

    return decorate


def names_of(part: Part) -> tuple[str, ...]:
    """Return the names of the options of a part, in the order of their declaration."""
    return tuple(row.name for row in _ROWS if row.part is part)


def taken(options: dict[str, Any], part: Part) -> dict[str, Any]:
    """Take the options of a part out of all options, and return them; ``None`` for those that the
    command does not have.
    """
    return {name: options.pop(name, None) for name in names_of(part)}
