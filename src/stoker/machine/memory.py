"""Memory as the snapshot holds it: one reading of the meter."""

from stoker.machine.file_tree import FileTree
from stoker.machine.meter import Meter
from stoker.model.machine import Memory


def read_memory(tree: FileTree) -> Memory:
    with Meter(tree) as meter:
        reading = meter.reading()
    return Memory(
        total=reading.physical.total,
        available=reading.free,
        swap_total=reading.physical.swap_total,
        swap_free=reading.physical.swap_free,
        limit=reading.limit,
        pressure=reading.pressure,
    )
