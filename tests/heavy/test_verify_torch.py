"""A trial of PyTorch itself: the CPU build for this machine, from import to a CMake project."""

import json
import sys
from pathlib import Path

import pytest

from stoker.cli.wheel import verify as command
from stoker.outside import process

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(3600)]

STEPS = (
    "install",
    "import",
    "version",
    "configuration",
    "matmul",
    "autograd",
    "extension",
    "cmake",
)


def test_torch_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    process.check([*download, "torch==2.13.0", "--dest", tmp_path], timeout=1800)
    (wheel,) = tmp_path.glob("*.whl")
    status = command.main([str(wheel), "--run", "--json"], standalone_mode=False)
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert {findings[f"trial-{step}"]["severity"] for step in STEPS} == {"ok"}
    assert status == 0
