"""Reads files and members of wheels by their ``LibrarySource``: whole, at any offset, or edited."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock

from stoker.model.errors import StorageErrors
from stoker.wheel.elf.edit import ElfEdit
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.package.values import LibrarySource
from stoker.wheel.reader import Reader, open_file
from stoker.wheel.zip import Content, Wheel, open_wheel
from stoker.wheel.zip.revision import edited_library


class OpenSources:
    """Keeps wheels open while their contents are needed. Safe to use from several threads."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._lock = Lock()
        self._wheels: dict[str, Wheel] = {}

    def content(self, source: LibrarySource) -> Content:
        if source.member is None:
            return Content.of_file(Path(source.file))
        return self._wheel(source.file).content(source.member)

    def digest(self, source: LibrarySource) -> str:
        digest = hashlib.sha256()
        for chunk in self.content(source).chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def edited(self, source: LibrarySource, edit: ElfEdit) -> Content:
        content = self.content(source)
        if edit == ElfEdit():
            return content
        with self._reader(source) as reader:
            return edited_library(reader, content, edit)

    def unpack(self, source: LibrarySource, path: Path) -> None:
        with StorageErrors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.writelines(self.content(source).chunks())

    @contextmanager
    def _reader(self, source: LibrarySource) -> Iterator[Reader]:
        if source.member is None:
            with open_file(Path(source.file)) as file:
                yield file
            return
        wheel = self._wheel(source.file)
        yield open_member(wheel.archive.file, wheel.member(source.member))

    def _wheel(self, file: str) -> Wheel:
        with self._lock:
            if file not in self._wheels:
                self._wheels[file] = self._stack.enter_context(open_wheel(Path(file)))
            return self._wheels[file]


@contextmanager
def open_sources() -> Iterator[OpenSources]:
    with ExitStack() as stack:
        yield OpenSources(stack)
