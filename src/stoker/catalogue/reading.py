"""Reads a catalogue: in a folder, at a URL, or in a bucket."""

from pathlib import Path
from urllib.parse import quote

from stoker.catalogue import pages
from stoker.catalogue.pages import CATALOGUE
from stoker.catalogue.publishing import check_is_catalogue, read_catalogue
from stoker.catalogue.store import FolderStore, open_store
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.published import PublishedCatalogue, PublishedWheel
from stoker.model.value import Value
from stoker.outside.web import AbsentError, Web, opened

_LARGEST = 256 << 20  # bytes of catalogue.json


class Located(Value, frozen=True, kw_only=True):
    """A catalogue, and the URL with a final slash under which installers read it, if they can."""

    catalogue: PublishedCatalogue
    place: str
    url: str | None

    def reference(self, wheel: PublishedWheel) -> str:
        """Return a requirement that names only this wheel, by its address and hash."""
        return f"{wheel.project} @ {self.wheel_url(wheel)}#sha256={wheel.sha256}"

    def wheel_url(self, wheel: PublishedWheel) -> str:
        if self.url is None:
            raise UsageError(
                f"pip and uv cannot read {self.place}",
                hints=["name the http or https address under which the bucket is served"],
            )
        return self.url + quote(wheel.path)


def locate(place: str, web: Web | None = None) -> Located:
    if place.startswith(("http://", "https://")):
        base = place.removesuffix("index.html").rstrip("/") + "/"
        catalogue = pages.decoded(_download(base, web or Web()), base + CATALOGUE)
        return Located(catalogue=catalogue.own, place=place, url=base)
    store = open_store(place)
    check_is_catalogue(store)
    found, _ = read_catalogue(store)
    url = _folder_url(store.root) if isinstance(store, FolderStore) else None
    return Located(catalogue=found.own, place=place, url=url)


def _folder_url(folder: Path) -> str:
    return folder.absolute().as_uri().rstrip("/") + "/"


def _download(url: str, web: Web) -> bytes:
    try:
        with opened(url + CATALOGUE, web) as answer:
            parts = []
            left = _LARGEST
            while left > 0 and (part := answer.read(min(left, 1 << 20))):
                parts.append(part)
                left -= len(part)
    except AbsentError:
        raise UsageError(
            f"{url} is not a catalogue: it has no {CATALOGUE}",
            hints=["name the address of the page, not of one variant's index"],
        ) from None
    if left <= 0:
        raise ArtifactError("the catalogue is too large", file=url)
    return b"".join(parts)
