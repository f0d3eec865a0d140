"""What jobs have noted of one build in a checkpoint.

    identity.json  what its objects were compiled with; the name of the folder is its digest
    split-*.json   which shard compiles what, as the first job has decided
    done-*.json    shards that have ended
    steps-*.json   times and peaks of the steps of each job

All files are written whole; one that cannot be read is ignored. At an address of a server nothing
is noted.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.builds.digests import digest
from stoker.builds.jobs.shards import Piece, Shard, split_pieces
from stoker.govern.command_line import build_folder
from stoker.govern.history.store import History
from stoker.govern.history.trace import read_trace, write_trace
from stoker.model.errors import StokerError, StorageError
from stoker.model.govern import StepRecord, Timing, Trace
from stoker.model.runs import Attempt
from stoker.model.value import Value, json_bytes
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole
from stoker.outside.folders import unwritable

_MOST_TRACES = 64  # jobs whose times are kept
_BUILD = "@build"  # stands for the build folder, which has another path on each machine


class BuildIdentity(Value, frozen=True, kw_only=True):
    """What objects depend on besides the sources, by names that users know."""

    parts: dict[str, str]

    @property
    def name(self) -> str:
        return digest(self.parts)[:16]

    def differences(self, other: "BuildIdentity") -> str:
        names = sorted(self.parts.keys() | other.parts.keys())
        return ", ".join(
            f"{name} (there {_shown(other.parts.get(name))}, here {_shown(self.parts.get(name))})"
            for name in names
            if self.parts.get(name) != other.parts.get(name)
        )


def _shown(value: str | None) -> str:
    return "none" if value is None else value[:40]


class Split(Value, frozen=True, kw_only=True):
    """The outputs that each shard compiles. ``graph`` is the digest of all of them."""

    graph: str
    shares: tuple[tuple[str, ...], ...]


class Ended(Value, frozen=True, kw_only=True):
    """A shard that has ended: the number of its compile steps."""

    steps: int


class BuildNotes:
    """The notes of one build; ``folder`` is None at an address."""

    def __init__(self, folder: Path | None):
        self._folder = folder

    def enter(self, identity: BuildIdentity) -> None:
        """Note that a build of this identity uses the checkpoint."""
        self._write("identity.json", identity)

    def shares(self, pieces: Sequence[Piece], shards: int) -> tuple[tuple[str, ...], ...]:
        """Return the outputs of each shard, as the first job of this build has split them."""
        outputs = sorted(piece.output for piece in pieces)
        graph = digest(outputs)
        name = f"split-{shards}-{graph[:12]}.json"
        found = read_json(self._folder / name, Split) if self._folder else None
        if found and found.graph == graph and len(found.shares) == shards:
            noted = sorted(output for share in found.shares for output in share)
            if noted == outputs:  # every step exactly once
                return found.shares
        shares = split_pieces(pieces, shards)
        self._write(name, Split(graph=graph, shares=shares))
        return shares

    def ended(self, shard: Shard, steps: int) -> None:
        self._write(f"done-{shard.number}-of-{shard.of}.json", Ended(steps=steps))

    def missing(self) -> tuple[int, tuple[int, ...]]:
        """Return the largest number of shards that is known, and those that have not ended."""
        names = [path.stem.split("-") for path in self._files("done-*-of-*.json")]
        of = max((int(name[3]) for name in names if name[3].isdigit()), default=0)
        ended = {name[1] for name in names if name[3] == str(of)}
        return of, tuple(n for n in range(1, of + 1) if str(n) not in ended)

    def timings(self) -> dict[str, Timing]:
        """Return what steps of this build took, by output. What a step took until a job ended it
        counts only if none has finished it.
        """
        records = [record for trace in self._traces().values() for record in trace.steps]
        return {
            record.step.output: Timing(seconds=record.wall_s, peak=record.peak_bytes)
            for record in sorted(records, key=lambda record: not record.killed)
        }

    def learn(self, build: Path) -> None:
        """Add to the history of this machine what other jobs have measured."""
        with History() as history:
            have = {run.command for run in history.runs()}
            for name, trace in self._traces().items():
                if (command := f"checkpoint {name}") not in have:
                    run = history.start_run(command, str(build))
                    for record in _at(trace.steps, _BUILD, str(build)):
                        history.add(run, Attempt.elsewhere(record))

    def keep(self, trace: Trace, build: Path) -> None:
        """Add the times of a job, and drop those of the oldest ones."""
        if not self._folder:
            return
        steps = tuple(_at(trace.steps, str(build), _BUILD))
        path = self._folder / f"steps-{uuid.uuid4().hex[:16]}.json"
        write_whole(path, write_trace(replace(trace, steps=steps)))
        for old in self._files("steps-*.json")[:-_MOST_TRACES]:
            with suppress(StorageError):  # the folder is not ours alone: it may hold links
                remove_file(old, below=self._folder.parent.parent)

    def _traces(self) -> dict[str, Trace]:
        found = {}
        for path in self._files("steps-*.json"):
            with suppress(StokerError, OSError):
                found[path.stem] = read_trace(path.read_bytes(), path.name)
        return found

    def _files(self, pattern: str) -> list[Path]:
        """Return the files of a pattern, the oldest first."""
        return sorted(self._folder.glob(pattern), key=_time) if self._folder else []

    def _write(self, name: str, value: Value) -> None:
        if not self._folder:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self._folder, error) from error
        write_whole(self._folder / name, json_bytes(value))


def _at(steps: Iterable[StepRecord], here: str, there: str) -> Iterator[StepRecord]:
    """Yield steps with the name of their build folder replaced."""
    here = here if here == _BUILD else build_folder(here)
    there = there if there == _BUILD else build_folder(there)
    for record in steps:
        moved = record.step.directory == here
        yield replace(record, step=replace(record.step, directory=there)) if moved else record


def _time(path: Path) -> tuple[float, str]:
    with suppress(OSError):
        return path.stat().st_mtime, path.name
    return 0.0, path.name
