"""Interprets the user's word for a source: a folder, an archive, git, or the package index.

Looks only whether a path is there; opens nothing.
"""

import os
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from stoker.model.distribution import read_version
from stoker.model.errors import UsageError, nearest
from stoker.model.secrets import without_login
from stoker.model.source import SourceKind
from stoker.model.value import Value

ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst", ".tar", ".zip")
_SCHEMES = ("http", "https", "ssh", "git", "file")
_AT_HOST = re.compile(r"\w[\w.+-]*@[\w.-]+:(?!//)(?P<path>.+)")  # git@host:group/name.git
_PINNED = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*==\s*(\S+)", re.ASCII)
_LOOSE = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:[<>~!]=?|===).*", re.ASCII)
# The dash at the beginning of an option, and what no name in git may hold, are left out.
_REFERENCE = re.compile(r"(?!-)(?!.*\.\.)[\w./+#-]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_FORMS = "a source is a folder, an archive, a git URL or repository with @TAG, or NAME[==VERSION]"


class Named(Value, frozen=True, kw_only=True):
    """A named source. ``place`` is a path or a URL, or the name of a package in the index."""

    kind: SourceKind
    place: str
    # A tag, branch or commit of git; the version of a package, by default the newest.
    reference: str | None = None

    @property
    def shown(self) -> str:
        """The source as the user would write it, without credentials."""
        if self.kind is SourceKind.INDEX:
            return f"{self.place}=={self.reference}" if self.reference else self.place
        place = without_login(self.place)
        return f"{place}@{self.reference}" if self.reference else place


def parse_source(given: str, tag: str | None = None) -> Named:
    """Return the source that ``given`` names; if there is none, the error suggests the
    next step.
    """
    word = given.strip()
    if not word or "\0" in word:
        raise UsageError(f"'{word!r}' names no source" if word else "no source", hints=[_FORMS])
    if os.path.lexists(path := _path(word)):
        return _of_path(path, tag)
    if pinned := _PINNED.fullmatch(word):
        return _of_index(pinned[1], pinned[2], tag)
    place, reference = _split(word.removeprefix("git+"))
    if reference and tag and reference != tag:
        raise UsageError(f"two tags: {reference} in the source, {tag} with --tag")
    reference = _checked(tag or reference)
    scheme, colon, _ = place.partition("://")
    if (colon and scheme.lower() in _SCHEMES) or _AT_HOST.fullmatch(place):
        return _of_url(place, reference)
    if reference and os.path.isdir(_path(place)):  # noqa: PTH112 pathlib raises for a long name
        return _of_repository(_path(place), reference)
    near = _near(word)
    if _NAME.fullmatch(word) and not (near or tag or word.lower().endswith(ARCHIVES)):
        return Named(kind=SourceKind.INDEX, place=canonicalize_name(word))
    raise _nothing(word, near)


def _path(word: str) -> Path:
    # Unlike pathlib's, this function does not raise for an unknown user.
    return Path(os.path.expanduser(word))  # noqa: PTH111


def _of_path(path: Path, tag: str | None) -> Named:
    if path.is_dir():
        if tag or _is_bare(path):
            return _of_repository(path, _checked(tag))
        return Named(kind=SourceKind.FOLDER, place=str(path.resolve()))
    if tag:
        raise UsageError(f"{path} is a file: only git has tags")
    if path.suffix == ".whl":
        hint = "`stoker package` and `stoker verify` take wheels"
        raise UsageError(f"{path} is a wheel: it is built already", hints=[hint])
    return Named(kind=SourceKind.ARCHIVE, place=str(path.absolute()))


def _of_repository(path: Path, reference: str | None) -> Named:
    place = path.resolve()
    if not (os.path.lexists(place / ".git") or _is_bare(place)):
        hints = [f"the folder as it is: `stoker build {shlex.quote(str(path))}`"]
        raise UsageError(f"{place} is not a git repository, so it has no tags", hints=hints)
    return Named(kind=SourceKind.GIT, place=str(place), reference=reference)


def _is_bare(path: Path) -> bool:
    """Return whether the folder is a git repository without a work tree."""
    return all((path / name).exists() for name in ("HEAD", "objects", "refs"))


def _of_index(name: str, version: str, tag: str | None) -> Named:
    if tag:
        raise UsageError(f"{name} comes from the package index: only git has tags")
    try:
        exact = str(read_version(version))
    except InvalidVersion:
        raise UsageError(
            f"'{version[:80]}' is not a version", hints=[f"as in {name}==2.1.2"]
        ) from None
    return Named(kind=SourceKind.INDEX, place=canonicalize_name(name), reference=exact)


def _of_url(url: str, reference: str | None) -> Named:
    try:
        path = urlsplit(url).path
    except ValueError as error:  # the URL is not shown: it may hold credentials
        raise UsageError(f"the source is not a URL: {error}", hints=[_FORMS]) from None
    if path.lower().endswith(ARCHIVES):
        shown = without_login(url)
        raise UsageError(
            f"{shown} is an archive: only git is fetched from a URL",
            hints=[f"curl -LO {shown}", "then name the file"],
        )
    return Named(kind=SourceKind.GIT, place=url, reference=reference)


def _split(word: str) -> tuple[str, str | None]:
    """Split ``place@tag`` at the last @ that is not part of a host."""
    host = word.find("/", word.find("://") + 3) if "://" in word else 0
    if at_host := _AT_HOST.fullmatch(word):
        host = at_host.start("path")
    position = word.rfind("@", host) if host >= 0 else -1
    return (word[:position], word[position + 1 :]) if position > 0 else (word, None)


def _checked(reference: str | None) -> str | None:
    if reference is not None and not _REFERENCE.fullmatch(reference):
        raise UsageError(f"'{reference}' cannot be the name of a tag")
    return reference


def _near(word: str) -> tuple[str, ...]:
    """Return the files and folders whose names are like a word."""
    path = _path(word)
    try:
        names = nearest(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        return ()
    return tuple(str(path.with_name(name)) for name in names)


def _nothing(word: str, near: tuple[str, ...]) -> UsageError:
    if loose := _LOOSE.fullmatch(word):
        name = loose[1]
        return UsageError(f"'{word}' is not one version", hints=[f"as in {name}==2.1.2"])
    similar = [f"did you mean {' or '.join(near)}?"]
    return UsageError(f"there is no {word}", hints=[*(similar if near else ()), _FORMS])
