"""The versions of tools and libraries that a log shows, and which are newer than the source.

Nothing that only a log names is started. After a run of stoker, tools that its log does not show
are asked for their version: those of a table, as the PATH finds them. The source of a run is dated
by git, which is asked in the folder of the run, or by the files that a release contains; for
`--try` also by when a package was uploaded to the index.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from stoker.diagnose.lines import Texts
from stoker.diagnose.values import FailedRun, Suspect
from stoker.knowledge.failures import Product, products
from stoker.model.errors import StokerError
from stoker.model.value import version_numbers

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
_NUMBER = re.compile(r"\d+\.\d+(?:\.\d+)*|^\d+$", re.MULTILINE)
_FROM_INDEX = (
    r"(?:Downloading|Using cached) (?:\S{1,300}/)?"
    r"(?P<name>[A-Za-z0-9][\w.-]{0,80}?)-(?P<version>\d[\w.]{0,30}?)\.(?:tar\.gz|zip)\b"
)

Versions = Callable[[str], str | None]


def versions_of(texts: Texts, failed: FailedRun | None = None) -> Versions:
    """Return a function from the name of a product to the version that a log shows of it, or that
    the installed one tells if the log is of a run here.
    """
    table = {product.name: product for product in products()}

    @cache
    def version(name: str) -> str | None:
        product = table.get(name)
        if product is None:
            return None
        shown = _version(product, texts)
        return shown or (_asked_tool(product) if failed and failed.command else None)

    return version


def _asked_tool(product: Product) -> str | None:
    if not product.ask or not shutil.which(product.ask[0]):
        return None
    from stoker.outside.process import run  # most logs are of no run

    try:
        told = run(product.ask, timeout=_TIMEOUT_S)
    except StokerError:
        return None
    found = _NUMBER.search(told.stdout) if told.ok else None
    return found[0] if found else None


def _version(product: Product, texts: Texts) -> str | None:
    """Return the newest version of a product that a log names."""
    found: list[str] = []
    for pattern in product.found:
        for match in texts.search(pattern, most=50).values():
            groups = match.groupdict()
            found.append(groups.get("version") or f"3.{groups['minor']}")
    found += [at_least for text, at_least in product.means.items() if texts.search(text, most=1)]
    return max(found, key=version_numbers, default=None)


def may_show(since: str, version: str | None) -> bool:
    """Return whether a change since one version can be in another; unknown versions can have it."""
    if version is None or not since:
        return True
    return version_numbers(version) >= version_numbers(since)


def suspects(
    texts: Texts, source: str | None, failed: FailedRun | None = None
) -> tuple[Suspect, ...]:
    """Return the tools and libraries that were released after the source, the newest first; without
    a date of the source, all that the log shows.
    """
    shown, known = versions_of(texts), versions_of(texts, failed)
    found = []
    for product in products():
        number = known(product.name) if source else shown(product.name)
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


def uploaded_month(texts: Texts) -> str | None:
    """Return when the package that failed was uploaded to the package index, which is asked; the
    last one that the log names is that one.
    """
    from stoker.outside.package_index import find_sdist, read_index  # only for --try

    named = texts.search(_FROM_INDEX)
    if not named:
        return None
    package = named[max(named)]
    try:
        return (
            find_sdist(package["name"].lower(), package["version"], read_index()).uploaded[:7]
            or None
        )
    except StokerError:
        return None


def _asked_git(folder: Path, environment: Mapping[str, str] | None) -> str | None:
    """Return when the last commit was made. Git runs no programs of the repository for this."""
    from stoker.outside.process import run  # most logs are of no run

    command = ["git", "-c", "core.fsmonitor=", "-C", str(folder), "log", "-1", "--format=%cs"]
    try:
        found = run(command, timeout=_TIMEOUT_S, env={**(environment or os.environ)})
    except StokerError:
        return None
    return found.stdout[:7] if found.ok and found.stdout[:4].isdecimal() else None
