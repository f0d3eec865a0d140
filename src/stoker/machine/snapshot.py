"""The machine at this moment, as one value. What could not be read is in its notes."""

import os
from pathlib import Path

from stoker.machine.cpu import read_cpu
from stoker.machine.disks import default_paths, read_disks
from stoker.machine.file_tree import FileTree
from stoker.machine.gpus import read_gpus
from stoker.machine.meter import read_memory
from stoker.machine.system import read_oomd, read_system
from stoker.model.machine import Machine


def read_machine(paths: tuple[Path, ...] = (), *, root: Path = Path("/")) -> Machine:
    """Return the facts of this machine. ``paths`` are the folders whose disks matter; the default
    is those a build writes to.
    """
    tree = FileTree(root)
    os_facts = read_system(tree, os.environ)
    cpu = read_cpu(tree)
    memory = read_memory(tree)
    gpus = read_gpus(tree.note)
    disks = read_disks(tree, paths or default_paths())
    return Machine(
        os=os_facts,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        disks=disks,
        oomd=read_oomd(tree),
        notes=tree.notes,
    )
