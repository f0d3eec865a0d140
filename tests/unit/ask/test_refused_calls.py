"""The filter of the kernel's calls, in processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

import stoker.ask

INSIDE = Path(stoker.ask.__file__).parent / "inside"
# An ordinary user may install a filter only after giving up new privileges (prctl 38).
PROGRAM = """
import ctypes, os, socket, sys
sys.path.insert(0, sys.argv[1])
from refused_calls import refuse_calls
libc = ctypes.CDLL(None, use_errno=True)
os.getuid() or os.setuid(65534)
if sys.argv[2] == "1":
    libc.prctl(38, 1, 0, 0, 0)
print(refuse_calls(libc))
socket.socket(socket.AF_UNIX).close()
try:
    socket.socket(socket.AF_VSOCK)
except OSError as error:
    print(os.strerror(error.errno))
"""


@pytest.mark.parametrize(("unprivileged", "result"), [("1", "0"), ("0", "-1")])
def test_a_filter_that_the_kernel_refuses_is_noticed(unprivileged: str, result: str) -> None:
    told = subprocess.check_output(
        [sys.executable, "-c", PROGRAM, str(INSIDE), unprivileged], text=True
    )
    said, *refused = told.splitlines()
    assert said == result
    if result == "0":
        assert refused == ["Address family not supported by protocol"]
