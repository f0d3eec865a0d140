"""How many processes the kernel killed for want of memory in the group that a process is in.

Version 1 counts a kill only where the victim was, version 2 there and in all groups round it: so
with both it is the victim's own group that must be asked. Knows nothing of limits.
"""

from stoker.machine.cgroup import groups
from stoker.machine.file_tree import FileTree, content
from stoker.machine.memory_group import INTERFACES, parse_counters


class KillCounter:
    """Opened once, read as often as one likes, and closed. A process that is moved to another
    group later is not followed.
    """

    def __init__(self, process: int | None, tree: FileTree | None = None):
        """``None`` is a process that could not be told."""
        tree = tree or FileTree()
        found = groups(tree, "memory", process) if process else ()
        files = [f"{group.folder}/{INTERFACES[group.version].events}" for group in found[:1]]
        self._file = tree.open(files[0]) if files else None

    def read(self) -> int | None:
        """``None`` where no such counter can be read."""
        return parse_counters(content(self._file)).get("oom_kill")

    def close(self) -> None:
        if self._file:
            self._file.close()
