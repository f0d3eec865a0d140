"""Shipped memory figures for steps that were never measured, each with its source."""

from fnmatch import fnmatchcase
from functools import cache, lru_cache

from msgspec.structs import replace

from stoker.knowledge import Row, load
from stoker.model.govern import Role, Step


class Prior(Row, frozen=True, kw_only=True):
    role: Role
    peak: float
    high: float
    basis: str
    sources: tuple[str, ...] = ("*",)
    per_input_byte: float = 0.0


class _Table(Row, frozen=True, kw_only=True):
    step: tuple[Prior, ...]


@cache
def priors() -> tuple[Prior, ...]:
    return load("memory_priors", _Table).step


@lru_cache(maxsize=4096)  # asked when a step asks and again when it has ended
def prior_of(step: Step) -> Prior:
    """Return the first row for the step's role and source, scaled by its inputs and targets."""
    row = next(
        row
        for row in priors()
        if row.role is step.role and any(fnmatchcase(step.source, p) for p in row.sources)
    )
    inputs, times = row.per_input_byte * step.input_bytes, step.targets_at_once
    return replace(row, peak=row.peak * times + inputs, high=row.high * times + inputs)
