"""The versions of tools and libraries that a log shows, and which are newer than the source.

Nothing that only a log names is started. The source of a run is dated by git, which is asked in the
folder of the run, or by the files that a release contains.
"""

import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from stoker.diagnose.lines import Texts
from stoker.diagnose.values import FailedRun, Suspect
from stoker.knowledge.changes import Product, as_numbers
from stoker.knowledge.failures import products
from stoker.model.errors import StokerError

_MOST = 4  # suspects that are named
_TIMEOUT_S = 5.0
# Files of a release that a build does not write, so that they are as old as it is.
_OF_RELEASE = (
    "PKG-INFO", "pyproject.toml", "setup.py", "setup.cfg", "CMakeLists.txt", "configure.ac",
    "configure.in", "meson.build", "Cargo.toml", "Makefile.am", "Makefile", "README.md", "README",
)  # fmt: skip
_LATELY_S = (
    86400.0  # files that were written within a day are as old as the checkout, not the source
)

Versions = Callable[[str], str | None]


def versions_of(texts: Texts) -> Versions:
    """Return a function from the name of a product to the version that a log shows of it."""
    table = {product.name: product for product in products()}

    @cache
    def version(name: str) -> str | None:
        return _version(table[name], texts) if name in table else None

    return version


def _version(product: Product, texts: Texts) -> str | None:
    """Return the newest version of a product that a log names."""
    found: list[str] = []
    for pattern in product.found:
        for match in texts.search(pattern, most=50).values():
            groups = match.groupdict()
            found.append(groups.get("version") or f"3.{groups['minor']}")
    found += [at_least for text, at_least in product.means.items() if texts.search(text, most=1)]
    return max(found, key=as_numbers, default=None)


def may_show(since: str, version: str | None) -> bool:
    """Return whether a change since one version can be in another; unknown versions can have it."""
    if version is None or not since:
        return True
    length = len(as_numbers(since))
    return as_numbers(version)[:length] >= as_numbers(since)


def suspects(texts: Texts, source: str | None) -> tuple[Suspect, ...]:
    """Return the tools and libraries that were released after the source, the newest first; without
    a date of the source, all that the log shows.
    """
    version = versions_of(texts)
    found = []
    for product in products():
        number = version(product.name)
        month = product.released(number) if number else None
        if number and month and (source is None or month > source):
            found.append(Suspect(product=product.name, version=number, released=month))
    found.sort(key=lambda suspect: suspect.released, reverse=True)
    return tuple(found[:_MOST])


def source_month(failed: FailedRun, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the year and month of the source of a run; ``None`` if they are not known."""
    folder = Path(failed.folder) if failed.folder else None
    if folder is None or not folder.is_dir():
        return None
    if (folder / ".git").exists() and (asked := _asked_git(folder, environment)):
        return asked
    written = [path.stat().st_mtime for name in _OF_RELEASE if (path := folder / name).is_file()]
    newest = max(written, default=None)
    if newest is None or newest > time.time() - _LATELY_S:
        return None
    return time.strftime("%Y-%m", time.gmtime(newest))


def _asked_git(folder: Path, environment: Mapping[str, str] | None) -> str | None:
    """Return when the last commit was made. Git runs no programs of the repository for this."""
    from stoker.outside.process import run  # most logs are of no run

    command = ["git", "-c", "core.fsmonitor=", "-C", str(folder), "log", "-1", "--format=%cs"]
    try:
        found = run(command, timeout=_TIMEOUT_S, env={**(environment or os.environ)})
    except StokerError:
        return None
    return found.stdout[:7] if found.ok and found.stdout[:4].isdecimal() else None
