"""Locks that another process holds."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from stoker.outside import locks
with locks.held(Path(sys.argv[1]), shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(lock: Path, how: str = "alone") -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        child.communicate()
