"""How each kind of project is configured and built."""

import shlex
from collections.abc import Iterable
from typing import Protocol

from stoker.model.plan import Command
from stoker.model.setting import Setting
from stoker.model.source import ProjectKind
from stoker.plan.recipes import cmake, extension, pytorch
from stoker.plan.subject import Subject


def prepare_commands(subject: Subject) -> tuple[Command, ...]:
    """Return the commands that a project wants to be run in its tree before it is built."""
    known = subject.backend_recipe
    lines = known.commands if known else ()
    return tuple(
        Command(
            stage="prepare",
            # After the line is split: a path may contain blanks and quotes.
            words=tuple(word.replace("{python}", subject.python) for word in shlex.split(line)),
        )
        for line in lines
    )


class Recipe(Protocol):
    """A module of this folder."""

    jobs_variable: str

    def settings(self, subject: Subject) -> Iterable[Setting]:
        """Yield the settings of the build, without the user's own -D options."""

    def variable(self, name: str) -> str | None:
        """Return the environment variable by which the front end sets a CMake option, if any."""

    def commands(self, subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:
        """Return the stages in order, given the CMake options."""


def recipe(kind: ProjectKind) -> Recipe:
    match kind:
        case ProjectKind.PYTORCH:
            return pytorch
        case ProjectKind.EXTENSION | ProjectKind.PACKAGE:
            return extension
        case ProjectKind.CMAKE:
            return cmake
