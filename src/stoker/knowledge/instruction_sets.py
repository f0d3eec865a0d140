"""Instruction sets beyond the lowest CPU of a family: how they are recognised, and which code may
use them.
"""

import re
from functools import cache

from stoker.knowledge import Row, load
from stoker.knowledge.cpus import cpu_family, cpu_needs


class InstructionSet(Row, frozen=True, kw_only=True):
    name: str
    family: str
    features: tuple[str, ...]
    operands: str | None = None
    note: str | None = None


class _Dispatched(Row, frozen=True, kw_only=True):
    any_case: tuple[str, ...]
    words: tuple[str, ...]
    starts: tuple[str, ...]


class _Table(Row, frozen=True, kw_only=True):
    set: tuple[InstructionSet, ...]
    dispatched: _Dispatched


@cache
def _table() -> _Table:
    return load("instruction_sets", _Table)


def beyond(cpu: str) -> tuple[InstructionSet, ...]:
    """Return the features of a CPU's family that a level or microarchitecture lacks."""
    family, has = cpu_family(cpu), cpu_needs(cpu)
    return tuple(
        row for row in _table().set if row.family == family and not has & set(row.features)
    )


@cache
def operand_pattern(row: InstructionSet) -> re.Pattern[str] | None:
    return re.compile(row.operands) if row.operands else None


@cache
def _dispatched() -> re.Pattern[str]:
    row = _table().dispatched
    anywhere, words, starts = map("|".join, (row.any_case, row.words, row.starts))
    alone = rf"(?<![A-Za-z])(?i:{words})(?![a-z])"
    return re.compile(rf"(?i:{anywhere})|{alone}|(?<![a-z])(?:{starts})")


def names_a_cpu(name: str) -> bool:
    """Return whether the name of a function or source file says that it is for certain CPUs."""
    return _dispatched().search(name) is not None
