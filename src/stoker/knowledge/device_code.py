"""What device code demands of the driver, beyond its architecture."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge.loader import Row, load
from stoker.model.artifact import Compression


class _Table(Row, frozen=True, kw_only=True):
    driver: dict[Compression, str]


@cache
def _table() -> _Table:
    return load("device_code", _Table)


def oldest_driver(compressions: Iterable[Compression]) -> str | None:
    """The oldest driver that unpacks all of them; None where any does."""
    drivers = [_table().driver[kind] for kind in compressions if kind in _table().driver]
    return max(
        drivers, key=lambda version: [int(part) for part in version.split(".")], default=None
    )
