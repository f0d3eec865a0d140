"""The files that the compilers of a run read: the source of each step and its headers.

Compilers report them to the build tool: ninja keeps them in its log of dependencies, and make
reads the files that `-MD` writes beside the objects. They are read at the end of a run, because
ninja writes its log when a step ends. A step for which neither exists has no list.
"""

import hashlib
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from posixpath import join, normpath, splitext
from typing import NamedTuple

from stoker.model.govern import Role
from stoker.model.runs import Includes, short_path
from stoker.source.ninja import read_discovered

_DIGEST = 8  # bytes: enough to notice a change
_COMBINE = (Role.LINK, Role.ARCHIVE)  # they read objects, which say nothing that sources do not
_LARGEST = 64 << 20  # bytes of a file that is read
_TIMEOUT_S = 10.0  # seconds: the end of the run waits
_PATH = re.compile(r"(?:\\[ #]|[^\s\\]|\\(?=[^\s]))+")
_ESCAPED = re.compile(r"\\([ #])|\$(\$)")


class StepOutput(NamedTuple):
    """What says where the list of a step is: its role, its build folder and its output in there."""

    role: str
    directory: str
    output: str


def read_includes(directory: str, steps: Iterable[StepOutput], *, began: float) -> Includes:
    """Return what the steps of a run read, with a digest of each file as it is now.

    ``directory`` is that of the run, and ``began`` the time since the epoch when it began: older
    dependency files belong to another run.
    """
    lists = dict(_lists(directory, steps, began))
    files = dict.fromkeys(path for paths in lists.values() for path in paths)
    places = {path: place for place, path in enumerate(files)}
    deadline = time.monotonic() + _TIMEOUT_S
    return Includes(
        files=tuple(short_path(path, directory) for path in places),
        digests=tuple(_digest(path, deadline) for path in places),
        steps={
            short_path(output, directory): tuple(places[path] for path in paths)
            for output, paths in lists.items()
        },
    )


def _lists(
    directory: str, steps: Iterable[StepOutput], began: float
) -> Iterator[tuple[str, list[str]]]:
    """Yield the output of each step and the files that it read, as absolute paths."""
    by_folder: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        if step.output and step.role not in _COMBINE:
            by_folder[step.directory].add(step.output)
    for name, outputs in by_folder.items():
        folder = normpath(join(directory, name))
        known = read_discovered(Path(folder), outputs)
        for output in sorted(outputs):
            found = known.get(output) or _from_file(join(folder, output), began)
            if found:
                yield normpath(join(folder, output)), [normpath(join(folder, n)) for n in found]


def _from_file(output: str, began: float) -> list[str]:
    """Return the paths in the dependency file of an output; none if there is no fresh one."""
    for path in (f"{output}.d", f"{splitext(output)[0]}.d"):
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each output takes 80 ms of 6,000
            fresh = status.st_mtime >= began - 1  # of a coarse clock
            if fresh and _is_small_file(status):
                return parse_dependency_file(Path(path).read_text(errors="surrogateescape"))
        except OSError:
            continue
    return []


def parse_dependency_file(text: str) -> list[str]:
    """Return the paths of the first rule: `-MP` adds a rule without paths for each header."""
    rule, _, _ = text.replace("\\\n", " ").lstrip().partition("\n")
    paths = _PATH.findall(rule.partition(": ")[2])
    return [_ESCAPED.sub(lambda found: found[1] or found[2], path) for path in paths]


def _digest(path: str, deadline: float) -> bytes:
    """Return a digest of a file; empty if it cannot be read, or not in time."""
    try:
        if time.monotonic() > deadline or not _is_small_file(Path(path).stat()):
            return b""
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=_DIGEST).digest()
    except (OSError, ValueError):
        return b""


def _is_small_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST
