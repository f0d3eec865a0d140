"""What single extensions want in their environment."""

from functools import cache

from stoker.knowledge.loader import Row, load


class ProjectRow(Row, frozen=True, kw_only=True):
    name: str
    environment: dict[str, str]


class _Table(Row, frozen=True, kw_only=True):
    project: tuple[ProjectRow, ...]


@cache
def projects() -> dict[str, ProjectRow]:
    """By distribution name with underscores."""
    return {row.name: row for row in load("projects", _Table).project}
