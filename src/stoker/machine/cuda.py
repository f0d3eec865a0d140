"""Finds CUDA toolkits and asks each nvcc for its version. Other modules choose one."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.machine.file_tree import FileTree
from stoker.model.machine import TORCH_INCLUDES, CudaToolkit
from stoker.outside.looking import is_file, is_folder, matching

if TYPE_CHECKING:
    from stoker.machine.python import Probe  # starts programs, which finding nvcc does not need

HOME_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_SYSTEM_HEADERS = Path("/usr/include")  # where distributions put those of their toolkit
SYSTEM_HOMES = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit")


def find_nvccs(
    tree: FileTree, environment: Mapping[str, str], homes: Iterable[Path] = ()
) -> list[Path]:
    """Return the compilers in the order in which a build searches for them, each file once;
    ``homes`` are last.
    """
    found: dict[Path, Path] = {}
    for nvcc in _candidates(tree, environment, homes):
        if os.access(nvcc, os.X_OK):
            found.setdefault(nvcc.resolve(), nvcc)
    return list(found.values())


def _candidates(
    tree: FileTree, environment: Mapping[str, str], homes: Iterable[Path]
) -> Iterator[Path]:
    for variable in HOME_VARIABLES:
        if home := environment.get(variable):
            nvcc = Path(home) / "bin/nvcc"
            if not os.access(nvcc, os.X_OK):
                tree.note(f"${variable} is {home}, where there is no bin/nvcc that can be run")
            yield nvcc
    if on_path := shutil.which("nvcc", path=environment.get("PATH", "")):
        yield Path(on_path)
    system = (home for pattern in SYSTEM_HOMES for home in tree.matching(pattern))
    yield from (home / "bin/nvcc" for home in (*system, *homes))


def read_toolkit(nvcc: Path, probe: "Probe") -> CudaToolkit:
    version, problem = probe.ask_version(nvcc, r"release (\d+\.\d+)")
    if problem:
        home = nvcc.resolve().parent.parent
        return CudaToolkit(home=str(home), nvcc=str(nvcc), version=None, problem=problem)
    # The file on the PATH may be a script, so the compiler is asked for its folder.
    printed = probe.ask([nvcc, "--dryrun", "-x", "cu", "/dev/null"]).printed
    found = re.search(r"^#\$ TOP=(.+)$", printed, re.MULTILINE)
    told = Path(found[1].strip()) if found else None
    home = told.resolve() if told and is_folder(told) else nvcc.resolve().parent.parent
    own = home / "bin/nvcc"
    # What is neither in the toolkit's own folders nor in those that nvcc says it uses.
    used = map(Path, re.findall(r'"-I([^"]+)"', printed))
    folders = [home / "include", *matching(home, "targets/*/include"), *used, _SYSTEM_HEADERS]
    names = TORCH_INCLUDES.values()
    lacks = [name for name in names if not any(is_file(each / name) for each in folders)]
    return CudaToolkit(
        home=str(home),
        nvcc=str(own if os.access(own, os.X_OK) else nvcc),
        version=version,
        archs=parse_archs(probe.ask([nvcc, "--list-gpu-code"]).printed),
        lacks=tuple(lacks),
    )


def best_first(toolkits: Iterable[CudaToolkit]) -> tuple[CudaToolkit, ...]:
    """Return each home once, in the given order, with those that do not work at the end."""
    by_home: dict[str, CudaToolkit] = {}
    for toolkit in toolkits:
        by_home.setdefault(toolkit.home, toolkit)
    return tuple(sorted(by_home.values(), key=lambda toolkit: toolkit.problem is not None))


def parse_archs(printed: str) -> tuple[str, ...]:
    """Return the architectures: ``sm_90a`` is 9.0a, ``sm_120`` is 12.0; the last digit is the minor
    version.
    """
    found = set(re.findall(r"\bsm_(\d{1,3})(\d)([a-z]?)\b", printed, re.ASCII))
    ordered = sorted(found, key=lambda arch: (int(arch[0]), int(arch[1]), arch[2]))
    return tuple(f"{major}.{minor}{suffix}" for major, minor, suffix in ordered)
