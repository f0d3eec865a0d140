"""A small PyTorch to slim, as the members of a wheel and installed, and the command that slims it.

Its Python code loads its libraries, so that a library that was spoilt is noticed.
"""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from built_libraries import build
from conftest import Need
from slim_libraries import build_library, cubins
from stoker.cli.wheel import slim as command
from wheel_files import record, zipped

MACHINE = os.uname().machine
ARCHS = 80, 86, 90
FLAGS = 'const char* flags(void) { return "sm_80 sm_86 sm_90"; }'
PYTHON = b"""
import ctypes, pathlib

folder = pathlib.Path(__file__).parent / "lib"
listing = ctypes.CDLL(str(folder / "libtorch_python.so")).flags
listing.restype = ctypes.c_char_p
flags = listing().decode()
answer = ctypes.CDLL(str(folder / "libtorch_cuda.so")).answer()
"""
CUDA, LISTING = "torch/lib/libtorch_cuda.so", "torch/lib/libtorch_python.so"


def torch_members(need: Need, folder: Path) -> dict[str, bytes]:
    """Return what a small PyTorch has: two regions of device code, and the list of
    architectures.
    """
    folder.mkdir()
    cuda = build_library(need, folder, [cubins(1, *ARCHS), cubins(2, *ARCHS)])
    other = build(need, folder, source=f'extern "C" {{ {FLAGS} }}', name="libtorch_python.so")
    return {
        "torch/__init__.py": PYTHON,
        "torch/version.py": b"__version__ = '2.0+cu130'\n",
        CUDA: cuda.read_bytes(),
        LISTING: other.read_bytes(),
    }


def make_wheel(
    folder: Path, members: Mapping[str, bytes], *, name: str = "torch", version: str = "2.0+cu130"
) -> Path:
    dist_info, tag = f"{name}-{version}.dist-info", f"py3-none-linux_{MACHINE}"
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nBurns.\n"
    about = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n"
    everything = {
        **members,
        f"{dist_info}/METADATA": metadata.encode(),
        f"{dist_info}/WHEEL": about.encode(),
    }
    everything[f"{dist_info}/RECORD"] = record(everything, dist_info)
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    modes = {path: 0o755 for path in members if ".so" in path}
    wheel.write_bytes(zipped(everything, modes=modes))
    return wheel


def slim(*words: object) -> int:
    return int(command.main([str(word) for word in words], standalone_mode=False) or 0)


def slim_json(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert slim(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def venv_with(wheel: Path, folder: Path) -> Path:
    """Without a pip of its own, which takes long to install."""
    venv.create(folder)
    pip(folder, "install", str(wheel))
    return folder


def pip(environment: Path, command: str, *words: str) -> None:
    ours = ["-m", "pip", "--python", str(environment / "bin" / "python"), command, "--quiet"]
    more = ["--no-index", "--no-deps"] if command == "install" else ["--yes"]
    done = subprocess.run([sys.executable, *ours, *more, *words], check=False, timeout=240)
    assert done.returncode == 0


def ask_torch(environment: Path) -> str:
    """Return the architectures that the installed PyTorch lists, and a number from its library."""
    question = "import torch; print(torch.flags, torch.answer)"
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", question],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
