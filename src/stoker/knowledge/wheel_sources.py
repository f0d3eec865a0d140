"""Where projects publish wheels beside the package indexes."""

from functools import cache

from stoker.knowledge import Row, load
from stoker.model.wheel_source import WheelSource


class _Table(Row, frozen=True, kw_only=True):
    source: tuple[WheelSource, ...]


@cache
def wheel_sources() -> tuple[WheelSource, ...]:
    return load("wheel_sources", _Table).source
