import platform
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from stoker.machine.file_tree import FileTree
from stoker.machine.system import read_machine
from stoker.model.machine import LimitKind, Machine

Record = Callable[[Mapping[str, str]], FileTree]


def test_this_machine_goes_through_json_and_back(tmp_path: Path) -> None:
    machine = read_machine((tmp_path,))
    assert machine.os.system == {"Linux": "linux", "Darwin": "macos"}[platform.system()]
    assert 0 < machine.memory.available <= machine.memory.total
    assert machine.memory.available <= machine.memory.limit.free
    assert machine.memory.limit.limit <= machine.memory.total
    assert [disk.path for disk in machine.disks] == [str(tmp_path)]
    assert msgspec.json.decode(msgspec.json.encode(machine), type=Machine) == machine


def test_notes_of_all_parts_come_together(record: Record, tmp_path: Path) -> None:
    tree = record(
        {
            "/proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 512 kB\n",
            "/proc/self/cgroup": "0::/a\n",
            "/proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n",
            "/cg/a/memory.max": "garbage\n",
            "/cg/a/cpu.max": "garbage\n",
            "/etc/os-release/": "",
        }
    )
    machine = read_machine((tmp_path,), root=tree.root)
    assert machine.memory.limit.kind is LimitKind.PHYSICAL
    assert machine.memory.limit.limit == 1 << 20
    assert machine.notes == (
        "cannot read /etc/os-release: Is a directory",
        "/cg/a/cpu.max holds no quota: 'garbage'",
        "/cg/a/memory.max holds no number: 'garbage'",
    )
