"""Which headers the sources of a tree include, themselves or by other headers of the tree.

Conditions of the preprocessor are not evaluated: a header that any branch includes counts.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from posixpath import dirname, isabs, join, normpath

from stoker.source.files import TreeFiles

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_FOLDER = re.compile(r"(-I|-isystem|-iquote)=?(.*)")


class IncludeSearch:
    """Reads the files of one tree, each at most once."""

    def __init__(self, root: Path) -> None:
        self._files = TreeFiles(root)
        self._named: dict[str, tuple[str, ...]] = {}
        self._present: dict[str, bool] = {}

    def reach(self, source: str, flags: Iterable[str], headers: Collection[str]) -> bool:
        """Tell whether a source includes one of ``headers``. Paths are relative to the tree."""
        folders = tuple(_folders(flags))
        found = {source}
        unread = [source]
        while unread:
            path = unread.pop()
            for name in self._included(path):
                if name in headers:
                    return True
                header = self._found(name, (dirname(path), *folders))
                if header and header not in found:
                    found.add(header)
                    unread.append(header)
        return False

    def _included(self, path: str) -> tuple[str, ...]:
        if path not in self._named:
            text = self._files.text(path) if _is_inside(path) else None
            self._named[path] = tuple(_INCLUDE.findall(text or ""))
        return self._named[path]

    def _found(self, name: str, folders: Iterable[str]) -> str | None:
        places = (normpath(join(folder, name)) for folder in folders)
        return next((path for path in places if self._is_present(path)), None)

    def _is_present(self, path: str) -> bool:
        if path not in self._present:
            self._present[path] = _is_inside(path) and self._files.is_file(path)
        return self._present[path]


def _folders(flags: Iterable[str]) -> Iterator[str]:
    """Yield the folders of a command's headers."""
    named = False
    for flag in flags:
        if named:
            yield flag
        found = None if named else _FOLDER.fullmatch(flag)
        named = found is not None and not found[2]
        if found and found[2]:
            yield found[2]


def _is_inside(path: str) -> bool:
    return bool(path) and not isabs(path) and path.partition("/")[0] != ".."
