"""`stoker install --prewarm`: which kernel caches can be filled for a GPU, and with which commands.
Pure.
"""

from collections.abc import Sequence

from packaging.utils import canonicalize_name

from stoker.catalogue.values import HostGpu
from stoker.knowledge.projects import KernelCache, kernel_caches
from stoker.model.errors import UsageError
from stoker.model.value import Value


class Prewarming(Value, frozen=True, kw_only=True):
    """A command that compiles the kernels of a project."""

    project: str
    archs: str
    folder: str
    moved_by: str
    command: tuple[str, ...]

    @property
    def in_words(self) -> str:
        return (
            f"kernels of {self.project} are compiled for {self.archs} into {self.folder} "
            f"({self.moved_by} moves it)"
        )


def prewarmings(
    projects: Sequence[str], gpus: Sequence[HostGpu], python: str, kernels: Sequence[str]
) -> tuple[Prewarming, ...]:
    """Return a command for each project. ``kernels`` are patterns for names; empty: all."""
    archs = " ".join(dict.fromkeys(gpu.capability for gpu in gpus))
    if not archs:
        raise UsageError("there is no GPU to compile kernels for", hints=["name it: --for h100"])
    caches = [_cache(project) for project in projects]
    return tuple(
        Prewarming(
            project=one.project,
            archs=archs,
            folder=one.folder,
            moved_by=one.moved_by,
            command=(
                "env",
                *(f"{name}={text.format(archs=archs)}" for name, text in one.environment.items()),
                *(python, "-c", one.program, *kernels),
            ),
        )
        for one in caches
    )


def _cache(project: str) -> KernelCache:
    known = kernel_caches()
    found = known.get(canonicalize_name(project))
    if found is None:
        able = ", ".join(one.project for one in known.values() if one.program)
        raise UsageError(
            f"stoker knows no kernel cache of {project} that can be filled",
            hints=[f"it can fill those of {able}", "run it once: stoker run -- python PROGRAM"],
        )
    if found.refusal:
        raise UsageError(
            f"the kernel cache of {project} cannot be filled before: {found.refusal}",
            hints=[*found.instead, f"its cache is {found.folder}; {found.moved_by} moves it"],
        )
    return found
