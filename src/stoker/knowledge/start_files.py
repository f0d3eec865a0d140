"""Files that run code whenever Python starts, and that some projects are known to ship."""

from fnmatch import fnmatchcase

from stoker.knowledge import Row, rows


class _StartFile(Row, frozen=True, kw_only=True):
    name: str
    project: str | None = None  # any, if it is not named


_known = rows("start_files", _StartFile)


def is_known_start_file(project: str, name: str) -> bool:
    return any(fnmatchcase(name, row.name) and row.project in (None, project) for row in _known())
