"""Compilers that a running program starts: `torch.utils.cpp_extension.load` under `stoker run`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Stoker
from stoker.govern.history.store import History

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(3600)]

SERVE = """
from torch.utils.cpp_extension import load
kernels = load("kernels", ["main.cpp", *(f"kernel{n}.cpp" for n in range(3))], verbose=True)
print("result", kernels.total())
"""
KERNEL = """
#include <torch/types.h>
long part{n}() {{ return torch::ones({{ {n} + 1 }}).sum().item<long>(); }}
"""
MAIN = """
#include <torch/extension.h>
long part0(); long part1(); long part2();
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("total", [] { return part0() + part1() + part2(); });
}
"""


class Served:
    """A program that compiles four files with PyTorch's `load`, under `stoker run`."""

    def __init__(self, stoker: Stoker, home: Path, folder: Path):
        self._stoker, self._home, self._folder = stoker, home, folder
        self._python = folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        packages = ["torch==2.13.0", "numpy", "ninja", "setuptools"]
        subprocess.run([self._python, "-m", "pip", "install", "-q", *packages], check=True)
        (folder / "serve.py").write_text(SERVE)
        (folder / "main.cpp").write_text(MAIN)
        for n in range(3):
            (folder / f"kernel{n}.cpp").write_text(KERNEL.format(n=n))

    def run(self, memory: str, cache: str) -> tuple[dict[str, Any], list[int]]:
        """Return the summary, and the peaks of the compiles."""
        summary = self._folder / "summary.json"
        done = self._stoker(
            *("run", "--memory", memory, "--summary", str(summary), "--"),
            *(str(self._python), "serve.py"),
            timeout=3000,
            PATH=f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin",
            TORCH_EXTENSIONS_DIR=str(self._folder / cache),
            MAX_JOBS="8",
        )
        assert done.returncode == 0, done.stderr
        assert "result 6" in done.stdout
        told = json.loads(summary.read_text())
        with History(self._home / "state/history.sqlite") as history:
            records = [one.record for one in history.attempts(told["run"])]
        return told, [one.peak_bytes for one in records if one.step.output.endswith(".o")]


def test_each_compile_of_load_is_a_step_within_the_limit(
    stoker: Stoker, stoker_home: Path, tmp_path: Path
) -> None:
    served = Served(stoker, stoker_home, tmp_path)
    roomy, peaks = served.run("16G", "first")
    assert roomy["steps"] == 5  # four compiles and the link
    assert len(peaks) == 4
    *_, second, largest = sorted(peaks)
    limit_mib = (largest + second // 4) >> 20  # for one of the two largest, and not for both
    tight, _ = served.run(f"{limit_mib}M", "second")
    assert tight["steps"] == 5
    assert tight["oom_kills"] == 0
    assert tight["peak_bytes"] <= limit_mib << 20
