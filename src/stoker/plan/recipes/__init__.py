"""How each kind of project is configured and built."""

from collections.abc import Iterable
from typing import Protocol

from stoker.model.plan import Command, Setting
from stoker.model.source import ProjectKind
from stoker.plan.recipes import cmake, extension, pytorch
from stoker.plan.subject import Subject


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
        case ProjectKind.EXTENSION:
            return extension
        case ProjectKind.CMAKE:
            return cmake
