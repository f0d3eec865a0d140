"""A checkpoint: what another machine needs to continue a build.

    FOLDER/objects/     compiled objects, in the storage format of ccache
    FOLDER/builds/ID/   what jobs have noted of a build (`notes.py`)

Objects are found as in the compiler cache, by the content of what the compiler has read, and ccache
checks them when it reads them: one that is damaged or does not fit is compiled again. A checkpoint
at an address of a server holds objects only.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.builds.jobs.notes import BuildIdentity, BuildNotes
from stoker.model.caching import CacheEngine, Chain, ChainOptions
from stoker.model.errors import MissingError, StorageError, UsageError
from stoker.model.govern import Role
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_problem, read_json

_PRUNED_TO = 0.9  # of the most bytes, so that not every job has to delete
CACHED = (Role.C, Role.CXX, Role.CUDA)  # steps whose objects a checkpoint keeps


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
        if chain.cache in (CacheEngine.NONE, CacheEngine.PROJECT):
            raise UsageError(
                f"a checkpoint keeps objects by a cache: leave out --cache {chain.cache}"
            )
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

    def notes(self, identity: BuildIdentity) -> BuildNotes:
        """Return what jobs note of a build."""
        return BuildNotes(self.folder / "builds" / identity.name if self.folder else None)

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


def _state(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat()
    return None
