"""Reads catalogues over the network, and serves one."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stoker.catalogue import pages
from stoker.catalogue.entry import Properties, foreign_entry, read_variants, without_label
from stoker.catalogue.index import read_catalogue
from stoker.catalogue.pages import CATALOGUE, HTML_TYPE, JSON_TYPE
from stoker.catalogue.store import FolderStore, open_store
from stoker.catalogue.values import PublishedCatalogue, PublishedWheel
from stoker.model.distribution import read_version
from stoker.model.errors import StorageError, UsageError
from stoker.model.value import Value
from stoker.outside.package_index import File, PackageIndex, files_of
from stoker.outside.web import AbsentError, Web, opened

# -- reading ---------------------------------------------------------------------------------------
# Reads a catalogue: in a folder, at a URL, or in a bucket. A package index of others is read as one
# too: what its wheels are for is told by their labels.


_LARGEST = 256 << 20  # bytes of catalogue.json
_MOST_VARIANTS = 64 << 20  # bytes of NAME-VERSION-variants.json
_VARIANTS_SUFFIX = "-variants.json"


class LocatedCatalogue(Value, frozen=True, kw_only=True):
    """A catalogue, and the URL with a final slash under which installers read it, if they can.

    ``files`` are the wheels of a package index, by name, if the place is no catalogue of stoker.
    """

    catalogue: PublishedCatalogue
    place: str
    url: str | None
    files: Mapping[str, File] = {}

    def reference(self, wheel: PublishedWheel) -> str:
        """Return a requirement that names only this wheel, by its address and hash."""
        digest = f"#sha256={wheel.sha256}" if wheel.sha256 else ""
        return f"{wheel.project} @ {self.wheel_url(wheel)}{digest}"

    def wheel_url(self, wheel: PublishedWheel) -> str:
        if wheel.file in self.files:
            return self.files[wheel.file].url
        if self.url is None:
            raise UsageError(
                f"pip and uv cannot read {self.place}",
                hints=["name the http or https address under which the bucket is served"],
            )
        return self.url + quote(wheel.path)


def locate(
    place: str, web: Web | None = None, *, wanted: Sequence[Requirement] = ()
) -> LocatedCatalogue:
    """Read a catalogue, or the wheels of ``wanted`` in a package index that is none."""
    web = web or Web()
    served = place.startswith(("http://", "https://"))
    found = _served(place, web) if served else _stored(place)
    if found is None and (served or Path(place).is_dir()):
        found = _foreign(place, wanted, web)
    if found is None:
        named = " and ".join(canonicalize_name(one.name) for one in wanted)
        index = f", nor a package index with wheels of {named}" if wanted else ""
        raise UsageError(
            f"{place} is not a catalogue: it has no {CATALOGUE}{index}",
            hints=[
                "`stoker catalogue publish WHEELS --to INDEX` makes one",
                "name the root of an index, not the page of a project",
            ],
        )
    return found


def _served(place: str, web: Web) -> LocatedCatalogue | None:
    base = place.removesuffix("index.html").rstrip("/") + "/"
    try:
        with opened(base + CATALOGUE, web) as answer:
            content = answer.whole(_LARGEST)
    except AbsentError:
        return None
    catalogue = pages.decoded(content, base + CATALOGUE)
    return LocatedCatalogue(catalogue=catalogue.own, place=place, url=base)


def _stored(place: str) -> LocatedCatalogue | None:
    store = open_store(place)
    if store.read(CATALOGUE) is None:
        return None
    found, _ = read_catalogue(store)
    url = _folder_url(store.root) if isinstance(store, FolderStore) else None
    return LocatedCatalogue(catalogue=found.own, place=place, url=url)


def _folder_url(folder: Path) -> str:
    return folder.absolute().as_uri().rstrip("/") + "/"


def _foreign(place: str, wanted: Sequence[Requirement], web: Web) -> LocatedCatalogue | None:
    """Read the pages of the wanted projects, and what describes the labels of their wheels."""
    index = PackageIndex(roots=(place,), links=(), web=web)
    wheels: list[PublishedWheel] = []
    files: dict[str, File] = {}
    for requirement in wanted:
        listed = {file.name: file for file in files_of(canonicalize_name(requirement.name), index)}
        found = [file for file in listed.values() if _suits(file, requirement)]
        described = {name: _described(listed[name], web) for name in _descriptions(found, listed)}
        for file in found:
            labels = described.get(_description(file.name), {})
            entry = foreign_entry(file.name, _digest(file), file.size or 0, labels)
            if entry is not None:
                wheels.append(entry)
                files[file.name] = file
    if not wheels:
        return None
    catalogue = pages.with_wheels(PublishedCatalogue(), wheels)
    return LocatedCatalogue(catalogue=catalogue, place=place, url=None, files=files)


def _suits(file: File, wanted: Requirement) -> bool:
    """Return whether a file is a wheel of the wanted project and version."""
    bare = without_label(file.name)[0]
    name, _, rest = bare.partition("-")
    if not bare.endswith(".whl") or canonicalize_name(name) != canonicalize_name(wanted.name):
        return False
    try:
        version = read_version(rest.partition("-")[0])
    except ValueError:
        return False
    return wanted.specifier.contains(version, prereleases=True)


def _description(wheel: str) -> str:
    """Return the name of the file that describes the labels of a version's wheels."""
    name, version = wheel.split("-")[:2]
    return f"{name}-{version}{_VARIANTS_SUFFIX}"


def _descriptions(wheels: Iterable[File], listed: Mapping[str, File]) -> Iterator[str]:
    needed = {_description(file.name) for file in wheels if without_label(file.name)[1]}
    return (name for name in sorted(needed) if name in listed)


def _described(file: File, web: Web) -> dict[str, Properties]:
    with opened(file.url, web) as answer:
        return read_variants(answer.whole(_MOST_VARIANTS), file.url)


def _digest(file: File) -> str:
    """Return the hash that the index tells; a file of this machine is hashed when it is used."""
    return file.sha256 if file.sha256 and _SHA256.fullmatch(file.sha256) else ""


_SHA256 = re.compile(r"[0-9a-f]{64}")


# -- serving ---------------------------------------------------------------------------------------
# A catalogue served over HTTP from a folder: read-only, for trying it out.
#
# A server of its own would only add one thing to a plain web server: JSON pages for installers
# that ask for them. Both serve the same files.


_NOWHERE = "/nonexistent"
_QUALITY = re.compile(r";\s*q=([01](?:\.\d{1,3})?)")


def make_server(
    root: Path, *, host: str, port: int, log: Callable[[str], None]
) -> ThreadingHTTPServer:
    """Listen, but answer only once `serve_forever` is called; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer((host, port), partial(_Handler, root.resolve(), log))
    except OSError as error:
        hints = ["--port 0 takes a free port"]
        raise StorageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hints=hints
        ) from error


class _Handler(SimpleHTTPRequestHandler):
    """GET and HEAD only; every other method is answered with 501."""

    server_version = "stoker"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def __init__(self, root: Path, log: Callable[[str], None], *arguments: Any):
        self._root = root
        self._log = log
        super().__init__(*arguments, directory=str(root))

    def translate_path(self, path: str) -> str:
        """Return a file of the catalogue. Hidden names and links that lead outside count as
        missing.
        """
        words = [word for word in unquote(urlsplit(path).path).split("/") if word]
        if any(word.startswith(".") or "\0" in word or "\\" in word for word in words):
            return _NOWHERE
        target = self._root.joinpath(*words).resolve()
        if not target.is_relative_to(self._root):
            return _NOWHERE
        if not target.is_dir():
            return str(target)
        page = target / "index.json"
        wants_json = words and page.is_file() and prefers_json(self.headers.get("Accept", ""))
        # A path that ends with a slash is a folder to the base class, which adds index.html.
        return str(page) if wants_json and path.endswith("/") else f"{target}/"

    def list_directory(self, path: Any) -> None:
        """Refuse to list folders: only the pages of the catalogue list files."""
        del path
        self.send_error(HTTPStatus.NOT_FOUND)

    def guess_type(self, path: Any) -> str:
        name = str(path)
        if name.endswith("/index.json"):
            return JSON_TYPE
        if name.endswith(".json"):
            return "application/json"
        return "text/html; charset=utf-8" if name.endswith(".html") else "application/octet-stream"

    def end_headers(self) -> None:
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Vary", "Accept")
        super().end_headers()

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        self._log(format % values)


def prefers_json(accept: str) -> bool:
    """Return whether an installer ranks the JSON form of PEP 691 above HTML."""
    qualities = {}
    for part in accept.split(",")[:50]:
        kind = part.partition(";")[0].strip().lower()
        found = _QUALITY.search(part)
        qualities[kind] = float(found[1]) if found else 1.0
    html = max(qualities.get(kind, 0.0) for kind in ("text/html", HTML_TYPE))
    return qualities.get(JSON_TYPE, 0.0) > 0 and qualities[JSON_TYPE] >= html
