"""Compilers that a running program starts: `torch.utils.cpp_extension.load` under `stoker run`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Stoker
from stoker.govern.history import History

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(3600)]

LIMIT_MIB = 1000
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


def test_each_compile_of_load_is_a_step_within_the_limit(
    stoker: Stoker, stoker_home: Path, tmp_path: Path
) -> None:
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    packages = ["torch==2.13.0", "numpy", "ninja", "setuptools"]
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    (tmp_path / "serve.py").write_text(SERVE)
    (tmp_path / "main.cpp").write_text(MAIN)
    for n in range(3):
        (tmp_path / f"kernel{n}.cpp").write_text(KERNEL.format(n=n))
    summary = tmp_path / "summary.json"
    done = stoker(
        *("run", "--memory", f"{LIMIT_MIB}M", "--summary", str(summary), "--"),
        *(str(python), "serve.py"),
        timeout=3000,
        PATH=f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
        TORCH_EXTENSIONS_DIR=str(tmp_path / "extensions"),
        MAX_JOBS="8",
    )
    assert done.returncode == 0, done.stderr
    assert "result 6" in done.stdout
    told = json.loads(summary.read_text())
    assert told["steps"] == 5  # four compiles and the link
    assert told["oom_kills"] == 0
    limit = LIMIT_MIB << 20
    assert told["limit_bytes"] == limit
    assert told["peak_bytes"] <= limit
    with History(stoker_home / "state/history.sqlite") as history:
        records = [one.record for one in history.attempts(told["run"])]
    compiles = [one.peak_bytes for one in records if one.step.output.endswith(".o")]
    assert len(compiles) == 4
    assert all(peak > 100 << 20 for peak in compiles)
    assert sum(compiles) > limit  # all of them at once, as MAX_JOBS allows, would not have fitted
