"""Reads package indexes: the user's for source distributions, others for their wheels.

Pip cannot fetch one without beginning its build, which may need what is to be built. So pip is only
asked for its settings, and the index is spoken to in the standard way (PEP 503 and PEP 691).
"""

import hashlib
import re
import sys
from ast import literal_eval
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from stoker.model.distribution import read_version
from stoker.model.errors import (
    ArtifactError,
    CommandError,
    MissingError,
    StorageErrors,
    UsageError,
    nearest,
)
from stoker.model.file_name import FileName, named_by
from stoker.model.value import UNDECODABLE, Bytes, Value, prepared, size
from stoker.outside import process
from stoker.outside.address import without_credentials
from stoker.outside.files import file_made_whole
from stoker.outside.long_work import Say
from stoker.outside.web import AbsentError, UnreachableError, Web, opened

_TIMEOUT_S = 60  # seconds for pip to say its settings
_SECTIONS = (":env:", "download", "global")  # of pip's settings, the strongest first
_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_Link = tuple[str, dict[str, Any]]  # an address, and what a page says of its file
_JSON = "application/vnd.pypi.simple.v1+json"
_MOST_PAGE = 256 << 20  # bytes; the longest pages have a hundredth
_MOST_SOURCE = 8 << 30  # bytes; that of PyTorch with all submodules has a twentieth
_MOST_FILES = 100_000  # of a page; the longest have a tenth
_SERVED = ("http", "https")
_SECONDS = re.compile(r"[1-9][0-9]{0,5}")


class File(Value, frozen=True, kw_only=True):
    """A file in the index. ``sha256`` and ``size`` are None if the index does not list them, and
    ``uploaded`` is empty. ValueError if the address does not name a file.
    """

    url: str
    sha256: str | None = None
    size: int | None = None
    uploaded: str = ""  # an ISO date with its time
    yanked: bool = False  # by its publisher: taken only if this version is named
    metadata_sha256: str | None = None  # of the metadata beside a wheel (PEP 658); empty: unknown

    def __post_init__(self) -> None:
        named_by(self.url)

    @property
    def name(self) -> FileName:
        return named_by(self.url)

    def version_of(self, package: str) -> Version | None:
        """Return the version if the file is a source distribution of the package, else ``None``."""
        try:
            name, version = parse_sdist_filename(self.name)
        except ValueError:  # no such name, no version, or numbers of thousands of digits
            return None
        return version if name == package else None


class PackageIndex(Value, frozen=True, kw_only=True):
    """The places where pip would search, and its connection settings."""

    roots: tuple[str, ...]  # with a page for each package
    links: tuple[str, ...]  # pages and folders that name files themselves
    web: Web


def read_index() -> PackageIndex:
    """Return the user's index settings, as pip reads them."""
    python = [sys.executable, "-P"]  # a folder called pip in the current folder is not pip
    try:
        listed = process.check([*python, "-m", "pip", "config", "list"], timeout=_TIMEOUT_S)
        settings: dict[str, str] = {}
        for section in reversed(_SECTIONS):
            for line in listed.splitlines():  # such as global.index-url='https://...'
                key, equals, value = line.partition("=")
                if equals and key.startswith(f"{section}."):
                    settings[key.removeprefix(f"{section}.")] = str(literal_eval(value))
        main = settings.get("index-url") or process.check(
            [*python, "-c", _DEFAULT], timeout=_TIMEOUT_S
        )
    except CommandError as error:
        raise MissingError(
            f"pip is missing, so the package index is unknown ({sys.executable})",
            hints=[f"{sys.executable} -m ensurepip"],
        ) from error
    closed = settings.get("no-index", "").lower() in ("1", "true", "yes", "on")
    roots = (main.strip(), *settings.get("extra-index-url", "").split())
    timeout = settings.get("timeout") or settings.get("default-timeout") or ""
    links = tuple(settings.get("find-links", "").split())
    web = Web(
        certificates=settings.get("cert"),
        proxy=settings.get("proxy"),
        timeout_s=float(timeout) if _SECONDS.fullmatch(timeout) else Web().timeout_s,
    )
    return PackageIndex(
        roots=() if closed else tuple(map(without_credentials, roots)),
        links=tuple(map(without_credentials, links)),
        web=web.with_logins((*roots, *links)),
    )


def find_sdist(package: str, version: str, index: PackageIndex) -> File:
    """Return the source distribution of one version; the error lists the available versions. A
    place that did not answer may have it, so that comes before any other error.
    """
    listings = list(listings_of(package, index))
    files = [file for listing in listings for file in listing.files]
    versions = {file: file.version_of(package) for file in files}
    for file, found in versions.items():
        if found == read_version(version):
            return file
    raise next(
        (listing.problem for listing in listings if listing.problem),
        _absent(package, version, sorted(filter(None, versions.values())), files),
    )


def newest_sdist(package: str, index: PackageIndex) -> Version:
    """Return the newest version whose source the first index has that has one at all: anyone may
    offer a newer one of the same name at another index.
    """
    problem: MissingError | None = None
    for listing in listings_of(package, index):
        found = [file.version_of(package) for file in listing.files if not file.yanked]
        versions = [version for version in found if version]
        if released := [one for one in versions if not one.is_prerelease] or versions:
            return max(released)
        problem = problem or listing.problem
    raise problem or UsageError(
        f"there is no {package} here, and the package index has no source of it",
        hints=["`stoker build URL@TAG` builds from git", "pip and uv install wheels"],
    )


def download(file: File, folder: Path, index: PackageIndex, *, say: Say) -> Path:
    """Return the file below ``folder``, in a folder that is named by the digest of its address;
    raise an error if it differs from what the index lists.
    """
    target = folder / hashlib.sha256(file.url.encode()).hexdigest()[:16] / file.name
    with StorageErrors("write", target):
        target.parent.mkdir(exist_ok=True)
    digest = hashlib.sha256()
    with opened(file.url, index.web) as answer:
        say(f"downloading {file.name}{f' ({size(answer.size)})' if answer.size else ''}")
        with file_made_whole(target) as stream:
            for part in answer.parts(_MOST_SOURCE):
                digest.update(part)
                stream.write(part)
    if file.sha256 not in (None, digest.hexdigest()):
        raise ArtifactError(
            f"its SHA-256 is {digest.hexdigest()}, the index says {file.sha256}",
            file=file.name,
            hints=["it was changed on its way, or the index is wrong: do not use it"],
        )
    return target


class Listing(NamedTuple):
    """What one place has. ``is_index``: it lists a project, and not files that the user chose."""

    place: str
    files: list[File] = []
    is_index: bool = False
    problem: MissingError | None = None


def listings_of(package: str, index: PackageIndex) -> Iterator[Listing]:
    """Yield what each place has of a package, and which places did not answer."""
    for place in (*index.links, *(page_of(package, root) for root in index.roots)):
        is_index = place not in index.links
        try:
            yield Listing(place, files_at(place, index.web), is_index)
        except AbsentError:
            continue
        except UnreachableError as error:
            problem = UnreachableError(
                f"the package index cannot be reached: {error.message}",
                hints=["`pip config list` shows which one pip asks, and PIP_INDEX_URL changes it"],
            )
            yield Listing(place, [], is_index, problem)


def files_of(package: str, index: PackageIndex) -> list[File]:
    """Return the files of all places together; if there are none, a place that did not answer is an
    error.
    """
    listings = list(listings_of(package, index))
    files = [file for listing in listings for file in listing.files]
    problem = next((listing.problem for listing in listings if listing.problem), None)
    if problem and not files:
        raise problem
    return files


def page_of(package: str, root: str) -> str:
    """Return the page of a package in an index."""
    return f"{root.rstrip('/')}/{package}/"


def files_at(place: str, web: Web) -> list[File]:
    """Return the files that a page or a folder names."""
    path = Path(unquote(urlsplit(place).path) if place.startswith("file:") else place).expanduser()
    if path.is_dir():
        page = path / "index.html"
        if not page.is_file():
            return _files_in(path)
        path = page
    url = path.absolute().as_uri() if path.is_file() else place
    with opened(url, web, accept=f"{_JSON}, text/html;q=0.1") as answer:
        return parse_page(answer.whole(_MOST_PAGE), answer.type, answer.url)


def _files_in(folder: Path) -> list[File]:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise UnreachableError(f"cannot read {folder}: {error.strerror}") from error
    files = []
    for child in children:
        with suppress(ValueError):  # a name that no index would have
            files.append(File(url=child.absolute().as_uri(), size=child.lstat().st_size))
    return files


class _PageFile(msgspec.Struct, rename={"uploaded": "upload-time", "metadata": "core-metadata"}):
    url: str
    hashes: dict[str, str] = {}
    size: Bytes | None = None
    uploaded: str = ""
    yanked: bool | str = False
    metadata: bool | dict[str, str] = False

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "sha256": self.hashes.get("sha256"),
            "size": self.size,
            "uploaded": self.uploaded,
            "yanked": self.yanked is not False,
            "metadata_sha256": _digest_of(self.metadata),
        }


def _digest_of(metadata: bool | dict[str, str]) -> str | None:
    """Return the digest of the metadata beside a wheel: empty if the page does not tell it, `None`
    if there are no metadata.
    """
    if isinstance(metadata, dict):
        return metadata.get("sha256", "")
    return "" if metadata else None


class _Page(msgspec.Struct):
    files: list[_PageFile]


def parse_page(content: bytes, kind: str, url: str) -> list[File]:
    """Return the files that a page lists; empty if it is not a page of an index."""
    if kind == _JSON:
        try:
            page = msgspec.json.decode(content, type=prepared(_Page))
        except UNDECODABLE as error:
            raise UnreachableError(f"{url} is not a page of a package index: {error}") from error
        links: list[_Link] = [(file.url, file.facts) for file in page.files]
    else:
        anchors = _Anchors()
        try:
            anchors.feed(content.decode("utf-8", "replace"))
        except (AssertionError, ValueError) as error:  # of Python's own parser
            raise UnreachableError(f"{url} is not a page of a package index: {error}") from error
        links = anchors.links
        url = _joined(url, anchors.base) or url
    if len(links) > _MOST_FILES:
        raise UnreachableError(f"{url} lists more than {_MOST_FILES:,} files, and is not read")
    files = []
    for link, facts in links:
        whole = _joined(url, link)
        with suppress(ValueError):  # it leads to a folder, or out of one
            files += [File(url=whole, **facts)] if whole else []
    return files


def _joined(url: str, link: str) -> str | None:
    """Return the absolute URL of a link, without credentials; ``None`` if it is not a URL, such as
    `http://[x`, or if a page of a server names a file of this machine.
    """
    with suppress(ValueError):
        whole = without_credentials(urljoin(url, link))
        allowed = ("file", *_SERVED) if urlsplit(url).scheme == "file" else _SERVED
        return whole if urlsplit(whole).scheme in allowed else None
    return None


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.links: list[_Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        link = found.get("href")
        if link and tag == "a":
            bare, _, fragment = link.partition("#")
            name, _, digest = fragment.partition("=")
            told = found.get("data-core-metadata", found.get("data-dist-info-metadata", "none"))
            kind, _, metadata = (told or "").partition("=")
            facts = {
                "sha256": digest if name == "sha256" else None,
                "uploaded": found.get("data-upload-time") or "",
                "yanked": "data-yanked" in found,
                "metadata_sha256": None if kind in ("none", "false") else metadata,
            }
            self.links.append((bare, facts))
        elif link and tag == "base":
            self.base = link


def _absent(package: str, version: str, versions: list[Version], files: list[File]) -> UsageError:
    prefix = f"{package.replace('-', '_')}-{version}-"
    if any(file.name.lower().startswith(prefix) for file in files):
        return UsageError(
            f"the package index has {package} {version} only as wheels, which are built already",
            hints=["its source may be in git: stoker build URL@TAG"],
        )
    if not versions:
        return UsageError(f"the package index has no source of a package '{package}'")
    known = list(dict.fromkeys(map(str, versions)))
    near = nearest(version, known) or known[-3:]
    return UsageError(
        f"the package index has no source of {package} {version}",
        hints=[f"the nearest: {', '.join(near)}; the newest: {known[-1]}"],
    )
