"""The work folder of a build, one for each tree and variant, which the next build resumes from.

One build uses it at a time. A stage that is done leaves a stamp: digests of all that went into it.
What a stage does is not known here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoker.builds.in_memory import (
    drop_memory_tree,
    is_in_memory,
    is_lost,
    memory_home_in,
    put_in_memory,
    take_out,
)
from stoker.govern.client.scratch import room_for_tree
from stoker.govern.client.session import Session
from stoker.machine.disks import read_temporary
from stoker.machine.system import read_machine
from stoker.model.build import BuildRequest, BuildStage, GitState
from stoker.model.plan import Plan
from stoker.model.source import SourceTree
from stoker.model.value import Value
from stoker.outside import files, folders, locks
from stoker.outside.deleting import remove_file, remove_whole
from stoker.outside.processes import end_all_with
from stoker.plan.subject import Subject

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


def build_lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def held_work(path: Path) -> Iterator["Work"]:
    """Lock the folder while the block runs, after ending processes that a killed build left."""
    with locked(path):
        end_all_with(MARK, str(path))
        yield Work(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder that only one build may use at a time. The lock file is beside it and is
    released when the process exits.
    """
    hint = "`stoker watch` shows it; wait for it, or name another --variant"
    with locks.held(build_lock(path), busy=f"another build is running in {path}", hint=hint):
        try:
            path.mkdir(parents=True, exist_ok=True)
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
        drop_memory_tree(self.build)
        if self.path.exists():
            remove_whole(self.path)
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
        remove_file(self._file(stage))

    def done(self, stage: BuildStage, inputs: Mapping[str, str], outputs: tuple[Path, ...]) -> None:
        stamp = Stamp(inputs=dict(inputs), outputs=tuple(map(str, outputs)))
        files.write_whole(self._file(stage), msgspec.json.encode(stamp))

    def _stamp(self, stage: BuildStage) -> Stamp | None:
        return files.read_json(self._file(stage), Stamp)

    def _file(self, stage: BuildStage) -> Path:
        return self._stamps / f"{stage}.json"


class Task(Value, frozen=True, kw_only=True):
    """What is built, how, and in which folder: all that the stages of a build share."""

    subject: Subject
    plan: Plan
    request: BuildRequest
    git: GitState | None
    work: Work

    @property
    def tree(self) -> SourceTree:
        assert self.subject.tree is not None  # a build always names a source
        return self.subject.tree


class Growing(Value, frozen=True, kw_only=True):
    """The folder that holds a build tree; ``growth`` limits its size in bytes in memory."""

    folder: Path
    growth: int | None = None


def growing(task: Task) -> Growing:
    """Return where the build tree grows: in memory if that is requested or the tree is already
    there, else in the work folder.
    """
    work = task.work
    if not task.request.in_ram and not is_in_memory(work.build):
        return Growing(folder=work.path)
    expected = None if work.build.exists() else task.plan.estimate.disk_bytes.amount
    free = read_machine().memory.available
    memory, most = room_for_tree(expected, read_temporary(), free=free)
    return Growing(folder=memory_home_in(Path(memory), work.path), growth=most)


@contextmanager
def placed(build: Path, work: Work, where: Growing, governed: Session) -> Iterator[None]:
    """Provide the build folder; move it to disk if it filled its share of memory."""
    if is_lost(build):
        remove_file(build)
        work.start_over()  # the results of earlier stages are lost with it
    in_memory = where.growth is not None
    if in_memory:
        put_in_memory(build, where.folder)
    try:
        yield
    except BaseException:
        if in_memory and governed.out_of_room:
            take_out(build)
        raise
