"""Which image wheels are built in unless one is named."""

from functools import cache

from stoker.knowledge.loader import Row, load


class ImageRow(Row, frozen=True, kw_only=True):
    """``{version}`` in a name is that of CUDA or ROCm; without a project it serves any."""

    machine: str
    backend: str
    name: str
    project: str | None = None


class _Table(Row, frozen=True, kw_only=True):
    image: tuple[ImageRow, ...]


@cache
def _table() -> _Table:
    return load("builder_images", _Table)


def builder_image(project: str, machine: str, backend: str, version: str | None) -> str | None:
    """Nothing where none is known, or where it takes a version and there is none."""
    for row in _table().image:
        if row.project in (project, None) and (row.machine, row.backend) == (machine, backend):
            if "{version}" in row.name and not version:
                return None
            return row.name.replace("{version}", version or "")
    return None
