"""`stoker slim` killed at every step, twice at once, and on a disk that is full."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from built_libraries import Need
from conftest import Stoker
from slim_kills import CASES, SIGNALS, SLIM, has_store, tree
from slim_libraries import build_library, cubins
from small_disks import small_disk
from stoker.model.errors import ExitStatus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF is what Linux loads")

COMMAND = [sys.executable, "-m", "stoker", "slim"]


@pytest.fixture
def folder(need: Need, tmp_path: Path) -> Path:
    """Two libraries of one distribution, and its RECORD."""
    made = tmp_path / "made"
    made.mkdir()
    library = build_library(need, made, [cubins(1, 80, 86, 90)])
    folder = tmp_path / "site"
    lib, dist_info = folder / "mill" / "lib", folder / "mill-1.dist-info"
    lib.mkdir(parents=True)
    dist_info.mkdir()
    for name in ("libone.so", "libtwo.so"):
        shutil.copy(library, lib / name)
    rows = ["mill/lib/libone.so,,", "mill/lib/libtwo.so,,", "mill-1.dist-info/RECORD,,", ""]
    (dist_info / "RECORD").write_text("\n".join(rows))
    return folder


@pytest.mark.parametrize("case", range(len(CASES)))
def test_killed_at_every_step(folder: Path, case: int) -> None:
    """Whatever command comes next, all files are as before or all are slimmed."""
    script = Path(__file__).parents[1] / "slim_kills.py"
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(case)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 5
