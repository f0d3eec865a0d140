"""Kernels that packages compile while they run, and how their caches are filled before that."""

from functools import cache

from packaging.utils import canonicalize_name

from stoker.knowledge import Row, rows


class KernelCache(Row, frozen=True, kw_only=True):
    """The cache of one project. ``program`` fills it, or ``refusal`` says why none can."""

    project: str
    folder: str
    moved_by: str
    program: str = ""
    environment: dict[str, str] = {}
    refusal: str = ""
    instead: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.program) == bool(self.refusal):
            raise ValueError("give one of program and refusal")


@cache
def kernel_caches() -> dict[str, KernelCache]:
    """Return the known caches by the canonical name of the project."""
    return {canonicalize_name(one.project): one for one in rows("kernel_caches", KernelCache)()}
