"""Stores that fail where a test wants it, and what must hold of a catalogue at every moment."""

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from stoker.catalogue.index import Upload, read_catalogue
from stoker.catalogue.pages import groups_of, index_pages
from stoker.catalogue.people_page import people_page
from stoker.catalogue.store import FolderStore
from stoker.catalogue.values import PublishedCatalogue, PublishedWheel


class KilledError(BaseException):
    """The publisher is gone: nothing that it would do afterwards happens."""


class FailingStore(FolderStore):
    """A folder whose publisher dies at a chosen change: before it, or just after it."""

    def __init__(self, root: Path, dies_at: int):
        super().__init__(root)
        self.changes = 0
        self._dies_at = dies_at

    def _count(self) -> None:
        self.changes += 1
        if self.changes == self._dies_at:
            raise KilledError

    def write(self, path: str, content: bytes) -> None:
        self._count()
        super().write(path, content)

    def upload(self, path: str, source: Path) -> None:
        self._count()
        super().upload(path, source)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)


def upload(folder: Path, wheel: PublishedWheel, content: bytes = b"") -> Upload:
    """A file for an entry; the content need not be a wheel, since nothing here looks inside."""
    folder.mkdir(parents=True, exist_ok=True)
    content = content or f"{wheel.variant} {wheel.file}".encode()
    source = folder / f"{wheel.variant}-{wheel.file}"
    source.write_bytes(content)
    metadata = f"Name: {wheel.project}\n".encode()
    entry = msgspec.structs.replace(
        wheel,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
    )
    return Upload(wheel=entry, source=source, metadata=metadata)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def links(page: str) -> list[dict[str, str | None]]:
    parser = _Links()
    parser.feed(page)
    return parser.found


def check_whole(root: Path) -> PublishedCatalogue:
    """What an installer relies on: every listed wheel can be installed, every link leads somewhere.

    Returns the catalogue, of which all this was true.
    """
    catalogue, version = read_catalogue(FolderStore(root))
    assert version is not None
    listed = {
        (page.parent.parent.name, unquote(re.sub(r"#.*", "", str(link["href"])).rpartition("/")[2]))
        for page in root.glob("*/*/index.html")
        for link in _checked_links(page)
    }
    assert {wheel.key for wheel in catalogue.wheels} <= listed
    return catalogue


def _checked_links(page: Path) -> list[dict[str, str | None]]:
    found = links(page.read_text())
    assert found
    for link in found:
        address, _, digest = str(link["href"]).partition("#sha256=")
        file = (page.parent / unquote(address)).resolve()
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
        metadata = file.with_name(f"{file.name}.metadata").read_bytes()
        assert link["data-core-metadata"] == f"sha256={hashlib.sha256(metadata).hexdigest()}"
    return found


def check_settled(root: Path) -> PublishedCatalogue:
    """Check that every page is what the catalogue says, as it is after a complete change."""
    catalogue = check_whole(root)
    expected = index_pages(catalogue, groups_of(catalogue.wheels))
    there: dict[str, Any] = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("index.*")
        if path.parent != root
    }
    assert there == expected
    assert (root / "index.html").read_bytes() == people_page(catalogue)
    assert not list((root / ".stoker").glob("pending/*"))
    assert not list((root / ".stoker").glob("incoming/*"))
    return catalogue
