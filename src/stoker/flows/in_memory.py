"""A build tree in memory: whether there is room, and back to disk when there is none left."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.build.memory_tree import home_in, is_in_memory, is_lost, put, take_out
from stoker.build.work import Work
from stoker.flows.governed import Session
from stoker.machine.disks import read_temporary
from stoker.machine.snapshot import read_machine
from stoker.model.plan import Plan
from stoker.model.value import Value
from stoker.plan.scratch import room_for_tree


class Growing(Value, frozen=True, kw_only=True):
    """Where a build tree grows, and by how much it may, where that is not all there is."""

    folder: Path
    growth: int | None = None


def growing(work: Work, plan: Plan, *, in_ram: bool) -> Growing:
    """In memory if that is asked for, or if it was before."""
    if not in_ram and not is_in_memory(work.build):
        return Growing(folder=work.path)
    expected = None if work.build.exists() else plan.estimate.disk_bytes.amount
    free = read_machine().memory.available
    memory, most = room_for_tree(expected, read_temporary(), free=free)
    return Growing(folder=home_in(Path(memory), work.path), growth=most)


@contextmanager
def placed(build: Path, work: Work, where: Growing, governed: Session) -> Iterator[None]:
    """The build folder where it is to be; what filled memory to its share is moved to disk."""
    if is_lost(build):
        build.unlink()
        work.start_over()  # what was done in it is not done any more
    in_memory = where.growth is not None
    if in_memory:
        put(build, where.folder)
    try:
        yield
    except BaseException:
        if in_memory and governed.out_of_room:
            take_out(build)
        raise
