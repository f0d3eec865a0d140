"""Places a build tree in memory if it fits, and moves it to disk when memory runs out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.build.memory_tree import home_in, is_in_memory, is_lost, put, take_out
from stoker.build.work import Work
from stoker.govern.session import Session
from stoker.govern.storage import room_for_tree
from stoker.machine.system import read_machine, read_temporary
from stoker.model.plan import Plan
from stoker.model.value import Value


class Growing(Value, frozen=True, kw_only=True):
    """The folder that holds a build tree; ``growth`` limits its size in bytes in memory."""

    folder: Path
    growth: int | None = None


def growing(work: Work, plan: Plan, *, in_ram: bool) -> Growing:
    """Return where the build tree grows: in memory if that is requested or the tree is already
    there, else in the work folder.
    """
    if not in_ram and not is_in_memory(work.build):
        return Growing(folder=work.path)
    expected = None if work.build.exists() else plan.estimate.disk_bytes.amount
    free = read_machine().memory.available
    memory, most = room_for_tree(expected, read_temporary(), free=free)
    return Growing(folder=home_in(Path(memory), work.path), growth=most)


@contextmanager
def placed(build: Path, work: Work, where: Growing, governed: Session) -> Iterator[None]:
    """Provide the build folder; move it to disk if it filled its share of memory."""
    if is_lost(build):
        build.unlink()
        work.start_over()  # the results of earlier stages are lost with it
    in_memory = where.growth is not None
    if in_memory:
        put(build, where.folder)
    try:
        yield
    except BaseException:
        if in_memory and governed.out_of_room:
            take_out(build)
        raise
