"""A checkpoint: what another machine needs to continue a build.

    FOLDER/objects/                 compiled objects, in the storage format of ccache
    FOLDER/builds/ID/identity.json  what they were compiled with; ID is its digest
    FOLDER/builds/ID/split-*.json   which shard compiles what, as the first job has decided
    FOLDER/builds/ID/done-*.json    shards that have ended
    FOLDER/builds/ID/steps-*.json   times and peaks of the steps of each job

Objects are found as in the compiler cache, by the content of what the compiler has read, and ccache
checks them when it reads them: one that is damaged or does not fit is compiled again. All other
files are written whole; one that cannot be read is ignored. A checkpoint at an address of a server
holds objects only.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.builds.digests import digest
from stoker.builds.jobs.shards import Piece, Shard, split_pieces
from stoker.govern.command_line import build_folder
from stoker.govern.history import History
from stoker.govern.trace import read_trace, write_trace
from stoker.model.caching import CacheEngine, Chain, ChainOptions
from stoker.model.errors import MissingError, StokerError, StorageError, UsageError
from stoker.model.govern import Role, StepRecord, Timing, Trace
from stoker.model.runs import Attempt
from stoker.model.value import Value, json_bytes
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_problem, read_json, write_whole
from stoker.outside.folders import unwritable

_MOST_TRACES = 64  # jobs whose times are kept
_PRUNED_TO = 0.9  # of the most bytes, so that not every job has to delete
CACHED = (Role.C, Role.CXX, Role.CUDA)  # steps whose objects a checkpoint keeps
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


class Checkpoint:
    """The checkpoint that the user named: a folder, or an address that the cache engine knows."""

    def __init__(self, where: str, *, most_bytes: int):
        self.where = where
        self._most_bytes = most_bytes
        self.folder = None if "://" in where else Path(where).expanduser().absolute()
        if self.folder and (problem := folder_problem(self.folder)):
            raise StorageError(f"the checkpoint cannot be used: {problem}")

    def wanted(self, chain: ChainOptions) -> ChainOptions:
        """Return the chain with which every object comes from the checkpoint and reaches it."""
        if chain.remote:
            raise UsageError("a checkpoint is a remote of the cache: leave out --cache-remote")
        if chain.cache is CacheEngine.NONE:
            raise UsageError("a checkpoint keeps objects by a cache: leave out --cache none")
        if self.folder and chain.cache is CacheEngine.SCCACHE:
            hints = ["--cache ccache, or an address such as s3://BUCKET/PATH"]
            raise UsageError("a checkpoint in a folder needs ccache", hints=hints)
        remote = self._objects.as_uri() if self.folder else self.where
        return replace(chain, remote=remote, reshare=True)

    def check(self, chain: Chain) -> None:
        """Raise an error if the chain cannot use the checkpoint: the work would be lost."""
        for part in chain.parts:
            if part.unusable and part.role in ("cache", "remote"):
                raise StorageError(f"the checkpoint cannot be used: {part.why}")
        if not any(part.role == "remote" and part.what != "none" for part in chain.parts):
            hints = ["install ccache", "or leave out a cache or launcher of your own"]
            raise MissingError(
                "a checkpoint needs a compiler cache that stoker starts", hints=hints
            )

    @property
    def _objects(self) -> Path:
        assert self.folder is not None
        return self.folder / "objects"

    def enter(self, identity: BuildIdentity) -> None:
        """Note that a build of this identity uses the checkpoint."""
        if self.folder:
            self._write(identity, "identity.json", identity)

    def known(self) -> Iterator[BuildIdentity]:
        """Yield the builds that have used the checkpoint; a damaged entry is left out."""
        for path in sorted(self.folder.glob("builds/*/identity.json")) if self.folder else ():
            found = read_json(path, BuildIdentity)
            if found and found.name == path.parent.name:
                yield found

    def refuse_unknown(self, identity: BuildIdentity) -> None:
        """Raise an error if no shard of this build has used the checkpoint."""
        others = list(self.known())
        if not self.folder or identity in others:
            return
        if not others:
            hints = ["without --finish, the whole build runs here"]
            raise UsageError(f"the checkpoint {self.where} has no build", hints=hints)
        nearest = min(others, key=lambda other: len(identity.differences(other)))
        raise UsageError(
            f"the checkpoint {self.where} is of another build: {identity.differences(nearest)}",
            hints=["build with the same tools and options", "or without --finish"],
        )

    def shares(
        self, identity: BuildIdentity, pieces: Sequence[Piece], shards: int
    ) -> tuple[tuple[str, ...], ...]:
        """Return the outputs of each shard, as the first job of this build has split them."""
        graph = digest(sorted(piece.output for piece in pieces))
        name = f"split-{shards}-{graph[:12]}.json"
        found = read_json(path, Split) if (path := self._path(identity, name)) else None
        if found and found.graph == graph and _same(found.shares, pieces, shards):
            return found.shares
        shares = split_pieces(pieces, shards)
        if self.folder:
            self._write(identity, name, Split(graph=graph, shares=shares))
        return shares

    def ended(self, identity: BuildIdentity, shard: Shard, steps: int) -> None:
        if self.folder:
            name = f"done-{shard.number}-of-{shard.of}.json"
            self._write(identity, name, Ended(steps=steps))

    def missing(self, identity: BuildIdentity) -> tuple[int, tuple[int, ...]]:
        """Return the largest number of shards that is known, and those that have not ended."""
        folder = self._path(identity, "")
        names = [path.stem.split("-") for path in folder.glob("done-*-of-*.json")] if folder else []
        of = max((int(name[3]) for name in names if name[3].isdigit()), default=0)
        ended = {name[1] for name in names if name[3] == str(of)}
        return of, tuple(n for n in range(1, of + 1) if str(n) not in ended)

    def timings(self, identity: BuildIdentity) -> dict[str, Timing]:
        """Return what steps of this build took, by output. What a step took until a job ended it
        counts only if none has finished it.
        """
        records = [record for trace in self._traces(identity).values() for record in trace.steps]
        return {
            record.step.output: Timing(seconds=record.wall_s, peak=record.peak_bytes)
            for record in sorted(records, key=lambda record: not record.killed)
        }

    def learn(self, identity: BuildIdentity, build: Path) -> None:
        """Add to the history of this machine what other jobs have measured."""
        with History() as history:
            have = {run.command for run in history.runs()}
            for name, trace in self._traces(identity).items():
                if (command := f"checkpoint {name}") not in have:
                    run = history.start_run(command, str(build))
                    for record in _at(trace.steps, _BUILD, str(build)):
                        history.add(run, Attempt.elsewhere(record))

    def keep(self, identity: BuildIdentity, trace: Trace, build: Path) -> None:
        """Add the times of a job, and drop those of the oldest ones."""
        if not self.folder:
            return
        steps = tuple(_at(trace.steps, str(build), _BUILD))
        path = self._path(identity, f"steps-{uuid.uuid4().hex[:16]}.json")
        assert path is not None
        write_whole(path, write_trace(replace(trace, steps=steps)))
        files = sorted(path.parent.glob("steps-*.json"), key=_time)
        for old in files[:-_MOST_TRACES]:
            with suppress(StorageError):  # the folder is not ours alone: it may hold links
                remove_file(old, below=self.folder)

    def _traces(self, identity: BuildIdentity) -> dict[str, Trace]:
        folder, found = self._path(identity, ""), {}
        for path in sorted(folder.glob("steps-*.json"), key=_time) if folder else ():
            with suppress(StokerError, OSError):
                found[path.stem] = read_trace(path.read_bytes(), path.name)
        return found

    def changed_at(self) -> float | None:
        """Return when an object was last written or used; None at an address, which does not
        tell.
        """
        if not self.folder:
            return None
        states = map(_state, self._objects.glob("*/*"))
        return max((state.st_ctime for state in states if state), default=0.0)

    def prune(self) -> int:
        """Delete the objects that were not used for longest, if all are too large together; return
        how many. An object that a job needs meanwhile is compiled again.
        """
        if not self.folder:
            return 0
        entries = [
            (state.st_mtime, state.st_size, path)
            for path in self._objects.glob("*/*")
            if not path.parent.is_symlink() and (state := _state(path))
        ]
        excess = sum(size for _, size, _ in entries) - self._most_bytes
        if excess <= 0:
            return 0
        excess += round((1 - _PRUNED_TO) * self._most_bytes)
        deleted = 0
        for _, size, path in sorted(entries):
            if excess <= 0:
                break
            remove_file(path, below=self._objects)
            excess, deleted = excess - size, deleted + 1
        return deleted

    def _path(self, identity: BuildIdentity, name: str) -> Path | None:
        return self.folder / "builds" / identity.name / name if self.folder else None

    def _write(self, identity: BuildIdentity, name: str, value: Value) -> None:
        path = self._path(identity, name)
        assert path is not None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        write_whole(path, json_bytes(value))


def _same(shares: Iterable[Sequence[str]], pieces: Sequence[Piece], shards: int) -> bool:
    """Return whether a split that was read has every step exactly once."""
    found = [list(share) for share in shares]
    named = sorted(output for share in found for output in share)
    return len(found) == shards and named == sorted(piece.output for piece in pieces)


def _at(steps: Iterable[StepRecord], here: str, there: str) -> Iterator[StepRecord]:
    """Yield steps with the name of their build folder replaced."""
    here = here if here == _BUILD else build_folder(here)
    there = there if there == _BUILD else build_folder(there)
    for record in steps:
        moved = record.step.directory == here
        yield replace(record, step=replace(record.step, directory=there)) if moved else record


def _state(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None


def _time(path: Path) -> tuple[float, str]:
    state = _state(path)
    return (state.st_mtime if state else 0.0), path.name
