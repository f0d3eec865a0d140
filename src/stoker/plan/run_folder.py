"""The folder of one build: its record, the log of each stage, and the governor's events."""

import glob
import re
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import msgspec

from stoker.model.build import BuildRecord, BuildStage, MeasuredBuild
from stoker.model.events import AnyEvent, Overview
from stoker.outside import folders, locks
from stoker.outside.files import read_json, write_whole

RECORD = "record.json"
RUN_LOCK = "lock"  # held while the build runs


def runs_folder() -> Path:
    return folders.state() / "runs"


def run_name(project: str, variant: str) -> str:
    """Return the part of a run folder's name that builds of one project and variant share."""
    return folders.short_name(f"{project}-{variant}")


def fullest_build(name: str) -> MeasuredBuild | None:
    """Return the figures of the successful build that compiled most, or None without any.

    Later builds compile only what has changed, so the newest one tells little.
    """
    own = re.compile(rf"\d{{8}}-\d{{6}}-{re.escape(name)}(-\d+)?")
    found = [
        record
        for path in runs_folder().glob(f"*-{glob.escape(name)}*/{RECORD}")
        if own.fullmatch(path.parent.name)  # other variants may begin with the same words
        and (record := read_json(path, BuildRecord))
        and not record.error
        and record.summary
        and record.summary.steps
    ]
    record = max(found, key=_cpu_seconds, default=None)
    if record is None:
        return None
    return MeasuredBuild(
        date=time.strftime("%Y-%m-%d", time.gmtime(record.started)),
        cpu_seconds=_cpu_seconds(record),
        largest_step_bytes=record.largest_step_bytes,
        wheel_bytes=record.wheel_bytes,
    )


def _cpu_seconds(record: BuildRecord) -> float:
    return record.summary.cpu_s if record.summary else 0.0


class RunFolder:
    """Use it in a ``with`` block. Logs are numbered in the order in which the stages began."""

    def __init__(self, name: str):
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        self.path = runs_folder() / f"{moment}-{folders.short_name(name)}"
        self._begun: list[BuildStage] = []
        self._stack = ExitStack()

    def __enter__(self) -> "RunFolder":
        try:
            self._make()
            self._stack.enter_context(locks.held(self.path / RUN_LOCK))
            self._events = self._stack.enter_context((self.path / "events.jsonl").open("wb", 0))
        except OSError as error:
            raise folders.unwritable(self.path, error, doing="write in") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make(self) -> None:
        """Make the folder; a number tells apart builds that begin in the same second."""
        runs_folder().mkdir(parents=True, exist_ok=True)
        first = self.path
        for number in count(2):
            try:
                self.path.mkdir(mode=0o700)  # logs hold what commands print
                break
            except FileExistsError:
                self.path = first.with_name(f"{first.name}-{number}")

    def log(self, stage: BuildStage) -> Path:
        if stage not in self._begun:
            self._begun.append(stage)
        return self.path / f"{self._begun.index(stage) + 1}-{stage}.log"

    def keep(self, event: AnyEvent) -> None:
        """Keep an event, unless it is an overview. An event that cannot be written is dropped."""
        if not isinstance(event, Overview):
            with suppress(OSError):
                self._events.write(msgspec.json.encode(event) + b"\n")

    def write(self, record: BuildRecord) -> None:
        self.attach(RECORD, msgspec.json.format(msgspec.json.encode(record)))

    def attach(self, name: str, content: bytes) -> None:
        write_whole(self.path / name, content, private=True)
