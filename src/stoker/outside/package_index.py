"""Reads package indexes: the user's for source distributions, others for their wheels.

Pip cannot fetch one without beginning its build, which may need what is to be built. So pip is only
asked for its settings, and the index is spoken to in the standard way (PEP 503 and PEP 691).
"""

import hashlib
import re
import sys
from ast import literal_eval
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from packaging.utils import parse_sdist_filename
from packaging.version import Version

from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, CommandError, MissingError, UsageError, nearest
from stoker.model.value import UNDECODABLE, Bytes, Value, prepared, size
from stoker.outside import process
from stoker.outside.files import file_made_whole
from stoker.outside.long_work import Say
from stoker.outside.web import AbsentError, UnreachableError, Web, opened

_TIMEOUT_S = 60  # seconds for pip to say its settings
_SECTIONS = (":env:", "download", "global")  # of pip's settings, the strongest first
_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_JSON = "application/vnd.pypi.simple.v1+json"
_MOST_PAGE = 256 << 20  # bytes; the longest pages have a hundredth
_MOST_SOURCE = 8 << 30  # bytes; that of PyTorch with all submodules has a twentieth
_SERVED = ("http", "https")
_SECONDS = re.compile(r"[1-9][0-9]{0,5}")


class File(Value, frozen=True, kw_only=True):
    """A file in the index. ``sha256`` and ``size`` are None if the index does not list them, and
    ``uploaded`` is empty.
    """

    url: str
    sha256: str | None = None
    size: int | None = None
    uploaded: str = ""  # an ISO date with its time

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])

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
    return PackageIndex(
        roots=() if closed else roots,
        links=tuple(settings.get("find-links", "").split()),
        web=Web(
            certificates=settings.get("cert"),
            proxy=settings.get("proxy"),
            timeout_s=float(timeout) if _SECONDS.fullmatch(timeout) else Web().timeout_s,
        ),
    )


def find_sdist(package: str, version: str, index: PackageIndex) -> File:
    """Return the source distribution of one version; the error lists the available versions."""
    files = files_of(package, index)
    versions = {file: file.version_of(package) for file in files}
    for file, found in versions.items():
        if found == read_version(version):
            return file
    raise _absent(package, version, sorted(filter(None, versions.values())), files)


def download(file: File, folder: Path, index: PackageIndex, *, say: Say) -> Path:
    """Return the file in ``folder``; raise an error if it differs from what the index lists."""
    target = folder / file.name
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


def files_of(package: str, index: PackageIndex) -> list[File]:
    """Return the files of all places together; if there are none, a place that did not answer is an
    error.
    """
    files: list[File] = []
    problems: list[UnreachableError] = []
    places = [*index.links, *(page_of(package, root) for root in index.roots)]
    for place in places:
        try:
            files += files_at(place, index.web)
        except AbsentError:
            continue
        except UnreachableError as error:
            problems.append(error)
    if problems and not files:
        raise UnreachableError(
            f"the package index cannot be reached: {problems[0].message}",
            hints=["`pip config list` shows which one pip asks, and PIP_INDEX_URL changes it"],
        )
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
    return [File(url=child.absolute().as_uri(), size=child.lstat().st_size) for child in children]


class _PageFile(msgspec.Struct, rename={"uploaded": "upload-time"}):
    url: str
    hashes: dict[str, str] = {}
    size: Bytes | None = None
    uploaded: str = ""


class _Page(msgspec.Struct):
    files: list[_PageFile]


def parse_page(content: bytes, kind: str, url: str) -> list[File]:
    """Return the files that a page lists; empty if it is not a page of an index."""
    if kind == _JSON:
        try:
            page = msgspec.json.decode(content, type=prepared(_Page))
        except UNDECODABLE as error:
            raise UnreachableError(f"{url} is not a page of a package index: {error}") from error
        named = [
            (file.url, file.hashes.get("sha256"), file.size, file.uploaded) for file in page.files
        ]
    else:
        anchors = _Anchors()
        try:
            anchors.feed(content.decode("utf-8", "replace"))
        except (AssertionError, ValueError) as error:  # of Python's own parser
            raise UnreachableError(f"{url} is not a page of a package index: {error}") from error
        named = [(*_with_hash(link), None, uploaded) for link, uploaded in anchors.links]
        url = _joined(url, anchors.base) or url
    return [
        File(url=whole, sha256=sha256, size=size, uploaded=uploaded)
        for link, sha256, size, uploaded in named
        if (whole := _joined(url, link))
    ]


def _with_hash(link: str) -> tuple[str, str | None]:
    bare, _, fragment = link.partition("#")
    name, _, value = fragment.partition("=")
    return bare, value if name == "sha256" else None


def _joined(url: str, link: str) -> str | None:
    """Return the absolute URL of a link; ``None`` if it is not a URL, such as `http://[x`, or if a
    page of a server names a file of this machine.
    """
    with suppress(ValueError):
        whole = urljoin(url, link)
        allowed = ("file", *_SERVED) if urlsplit(url).scheme == "file" else _SERVED
        return whole if urlsplit(whole).scheme in allowed else None
    return None


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.links: list[tuple[str, str]] = []  # with when the file was uploaded

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        link = found.get("href")
        if link and tag == "a":
            self.links.append((link, found.get("data-upload-time") or ""))
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
