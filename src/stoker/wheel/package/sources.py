"""The files and members of wheels that go into a package: read whole, or edited."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock

from stoker.model.errors import StorageErrors
from stoker.model.value import Value
from stoker.wheel.elf.edit import ElfEdit
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.reader import open_file
from stoker.wheel.zip import Content, Wheel, open_wheel
from stoker.wheel.zip.revision import edited_library


class LibrarySource(Value, frozen=True, kw_only=True, order=True):
    """A file, or a member of a wheel."""

    file: str
    member: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.member}" if self.member else self.file


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
        if source.member is None:
            with open_file(Path(source.file)) as file:
                return edited_library(file, content, edit)
        wheel = self._wheel(source.file)
        member = open_member(wheel.archive.file, wheel.member(source.member))
        return edited_library(member, content, edit)

    def unpack(self, source: LibrarySource, path: Path) -> None:
        with StorageErrors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.writelines(self.content(source).chunks())

    def _wheel(self, file: str) -> Wheel:
        with self._lock:
            if file not in self._wheels:
                self._wheels[file] = self._stack.enter_context(open_wheel(Path(file)))
            return self._wheels[file]


@contextmanager
def open_sources() -> Iterator[OpenSources]:
    with ExitStack() as stack:
        yield OpenSources(stack)
