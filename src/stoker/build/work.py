"""Keeps a folder for each tree and variant, which the next build resumes from; one build uses it at
a time.

A stage that is done leaves a stamp: digests of all that went into it. What a stage does is not
known here.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from stoker.build import memory_tree
from stoker.model.build import BuildStage
from stoker.model.errors import StokerError
from stoker.model.value import Value
from stoker.outside import files, folders, locks, process

MARK = "STOKER_WORK"  # in the environment of all that a build starts


class Stamp(Value, frozen=True, kw_only=True):
    """The stamp of a stage. ``inputs`` are digests by name; ``outputs`` are paths that must still
    exist.
    """

    inputs: dict[str, str]
    outputs: tuple[str, ...] = ()


def work_folder(tree: Path, *, name: str, variant: str, python: str) -> Path:
    """Return the folder of a build. It depends on tree, variant and Python, not on other
    options.
    """
    readable = folders.short_name(f"{name}-{variant}")
    signs = (folders.signature(text) for text in (str(tree), python))
    return folders.builds() / "-".join((readable, *signs))


def in_tree_folder(tree: Path) -> Path:
    """Return the folder of builds in the tree itself, for any variant."""
    return work_folder(tree, name="in-tree", variant="any", python="")


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def held(path: Path) -> Iterator["Work"]:
    """Lock the folder while the block runs, after ending processes that a killed build left."""
    with locked(path):
        process.end_all_with(MARK, str(path))
        yield Work(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder that only one build may use at a time. The lock file is beside it and is
    released when the process exits.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locks.held(lock_of(path)))
            path.mkdir(parents=True, exist_ok=True)
        except locks.BusyError:
            hints = ["wait for it, or name another --variant"]
            raise StokerError(f"another build is running in {path}", hints=hints) from None
        except OSError as error:
            raise folders.unwritable(path, error, doing="use") from error
        yield


class Work:
    """The paths and stamps in a work folder."""

    def __init__(self, path: Path):
        self.path = path
        self.build = path / "build"
        self.environment = path / "environment"  # of an isolated back end
        self.tools = path / "tools"  # links to programs that the PATH lacks
        self.wheel = path / "wheel"  # as the back end made it
        self.packed = path / "packed"
        self._stamps = path / "stamps"

    def start_over(self) -> None:
        """Forget everything."""
        memory_tree.drop(self.build)
        if self.path.exists():
            files.remove_whole(self.path)
        self.path.mkdir(parents=True)

    def reason(self, stage: BuildStage, inputs: Mapping[str, str]) -> str | None:
        """Return why a stage must run, in words; ``None`` if it need not."""
        stamp = self._stamp(stage)
        if stamp is None:
            return "not done before"
        names = sorted(inputs.keys() | stamp.inputs.keys())
        changed = [name for name in names if inputs.get(name) != stamp.inputs.get(name)]
        if changed:
            return f"changed: {', '.join(changed)}"
        gone = [path for path in stamp.outputs if not Path(path).exists()]
        return f"{gone[0]} is gone" if gone else None

    def changed(self, stage: BuildStage, name: str, digest: str) -> bool:
        """Return whether this input has changed since the stage last succeeded."""
        stamp = self._stamp(stage)
        return stamp is None or stamp.inputs.get(name) != digest

    def outputs(self, stage: BuildStage) -> tuple[Path, ...]:
        stamp = self._stamp(stage)
        return tuple(map(Path, stamp.outputs)) if stamp else ()

    def begin(self, stage: BuildStage) -> None:
        """Mark the stage as not done, until ``done`` is called."""
        self._file(stage).unlink(missing_ok=True)

    def done(self, stage: BuildStage, inputs: Mapping[str, str], outputs: tuple[Path, ...]) -> None:
        stamp = Stamp(inputs=dict(inputs), outputs=tuple(map(str, outputs)))
        files.write_whole(self._file(stage), msgspec.json.encode(stamp))

    def _stamp(self, stage: BuildStage) -> Stamp | None:
        return files.read_json(self._file(stage), Stamp)

    def _file(self, stage: BuildStage) -> Path:
        return self._stamps / f"{stage}.json"
