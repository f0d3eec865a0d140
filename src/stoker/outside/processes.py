"""Reads what the kernel reports of processes, and ends those of a build that is over."""

import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ELF_HEADER = 64  # bytes
_INTERPRETER = (3).to_bytes(4, sys.byteorder)  # the kind of a segment that names the loader


def children_cpu_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class MachineTime(NamedTuple):
    """CPU seconds since the machine started."""

    used: float  # by its programs
    stolen: float  # wanted by them, but given to other virtual machines

    @classmethod
    def now(cls) -> "MachineTime | None":
        """Read both, if the system counts them."""
        try:
            with Path("/proc/stat").open(encoding="utf-8") as stream:
                fields = stream.readline().split()[1:]
            user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
        except (OSError, ValueError):
            return None
        second = os.sysconf("SC_CLK_TCK")
        return cls((user + nice + system + irq + softirq) / second, steal / second)


def end_by(number: int) -> None:
    """End this process by a signal, as its command ended: a shell stops a loop at Ctrl-C only if
    the command that it waits for was ended by it.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def is_static(program: str) -> bool:
    """Return whether a program is an executable of its own that loads no libraries."""
    folders = [""] if "/" in program else os.get_exec_path()
    paths = (Path(folder, program) for folder in folders)
    path = next((path for path in paths if os.access(path, os.X_OK)), None)
    if path is None:
        return False
    try:
        with path.open("rb") as file:
            header = file.read(_ELF_HEADER)
            if header[:5] != b"\x7fELF\x02":  # a script, or not of 64 bits
                return False
            offset, size, count = (
                int.from_bytes(header[begin:end], sys.byteorder)
                for begin, end in ((32, 40), (54, 56), (56, 58))
            )
            file.seek(offset)
            table = file.read(size * count)
    except OSError:
        return False
    kinds = (table[at : at + 4] for at in range(0, len(table), size or 1))
    return _INTERPRETER not in kinds


def end_all_with(variable: str, value: str) -> None:
    """Kill the processes that have this in their environment, and wait until they are gone.

    A process is spared if the leader of its session has it too: then it belongs to a server that
    the build started in a session of its own, and that others may use.
    """
    mark = os.fsencode(f"{variable}={value}")

    def carries(pid: int) -> bool:
        with suppress(OSError):
            return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def serves(pid: int) -> bool:
        with suppress(ProcessLookupError):
            return carries(os.getsid(pid))
        return False

    def left() -> list[int]:
        found = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
        return [pid for pid in found if pid != os.getpid() and carries(pid) and not serves(pid)]

    while pids := left():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
