"""The folder that each build leaves: its record, the log of each stage, what the governor told."""

import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import TracebackType

import msgspec

from stoker.model.build import BuildRecord, Stage
from stoker.model.errors import StorageError
from stoker.model.events import AnyEvent, Overview
from stoker.outside import folders, locks
from stoker.outside.files import write_whole

RECORD = "record.json"
LOCK = "lock"  # held while the build runs


def root() -> Path:
    return folders.state() / "runs"


class RunFolder:
    """Use it in a ``with`` block. Logs are named in the order the stages began."""

    def __init__(self, name: str):
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.path = root() / f"{moment}-{folders.short_name(name)}"
        self._begun: list[Stage] = []
        self._stack = ExitStack()

    def __enter__(self) -> "RunFolder":
        try:
            self._make()
            self._stack.enter_context(locks.held(self.path / LOCK))
            self._events = self._stack.enter_context((self.path / "events.jsonl").open("wb", 0))
        except OSError as error:
            raise StorageError(f"cannot write in {self.path}: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _make(self) -> None:
        """Builds that begin in the same second have numbers."""
        root().mkdir(parents=True, exist_ok=True)
        first = self.path
        for number in count(2):
            try:
                self.path.mkdir(mode=0o700)  # logs hold what commands print
                break
            except FileExistsError:
                self.path = first.with_name(f"{first.name}-{number}")

    def log(self, stage: Stage) -> Path:
        if stage not in self._begun:
            self._begun.append(stage)
        return self.path / f"{self._begun.index(stage) + 1}-{stage}.log"

    def keep(self, event: AnyEvent) -> None:
        """How things stand in between is not worth keeping, nor is any of it worth failing for."""
        if not isinstance(event, Overview):
            with suppress(OSError):
                self._events.write(msgspec.json.encode(event) + b"\n")

    def write(self, record: BuildRecord) -> None:
        self.attach(RECORD, msgspec.json.format(msgspec.json.encode(record)))

    def attach(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content, private=True)
