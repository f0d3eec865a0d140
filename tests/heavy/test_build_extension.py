"""A real extension from the package index, with and without isolation, installed and called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Stoker

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(7200)]

TORCH = "torch==2.13.0"
CALL = """
import torch
from torch_scatter import scatter
summed = scatter(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 0]), dim=0, reduce="sum")
assert summed.tolist() == [4.0, 2.0], summed
print("fine")
"""


def environment(folder: Path, *packages: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return python


@pytest.mark.parametrize("isolation", ["none", "torch"])
def test_torch_scatter(stoker: Stoker, tmp_path: Path, isolation: str) -> None:
    """``torch``: an isolated environment with the PyTorch that is installed."""
    packages = ["setuptools", "wheel"] if isolation == "none" else []
    here = environment(tmp_path / "here", TORCH, "numpy", *packages)
    done = stoker(
        *("build", "torch-scatter==2.1.2", "--variant", "cpu", "--isolation", isolation),
        *("--out", str(tmp_path / "out"), "--json"),
        timeout=3600,
        VIRTUAL_ENV=str(here.parent.parent),
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = json.loads(done.stdout)["record"]["outputs"]
    assert json.loads(done.stdout)["record"]["summary"]["steps"] >= 4  # its compiles asked
    clean = environment(tmp_path / "clean", wheel, "numpy")
    called = subprocess.run(
        [str(clean), "-c", CALL],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.stdout == "fine\n", called.stderr
