"""Compares "loads with" of `stoker inspect` with the loader, and prints its table for wheels.

    python benchmarks/loads_with.py table WHEEL... [--json FILE]
    python benchmarks/loads_with.py load WHEEL... --torch WHEEL... --modules FOLDER [--json FILE]

`table` prints how many symbols of each wheel each release of PyTorch lacks. `load` unpacks each
PyTorch, and loads every library of each wheel with it in its own process, after `import torch`, as
Python loads an extension module: all symbols at once. FOLDER has what PyTorch imports. A library
that does not load because another library is missing, such as FFmpeg's, says nothing about PyTorch;
it is listed and not counted. A library whose symbols are all found may still abort when it is
initialized, because the layout of an object changed: such pairs are counted apart.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from stoker.model.artifact import LoadsWith, TorchFit
from stoker.wheel.inspect.inspecting import inspect
from stoker.wheel.inspect.loads_with import relevant
from stoker.wheel.inspect.loads_with_words import releases_in_words

# The loader has found all symbols, but an initializer of the library ended the process.
ABORTED = "aborted in an initializer"

# Imports PyTorch once, and loads each library in a process of its own, which has nothing else.
LOAD = """
import ctypes, json, os, sys, torch
for library in json.load(sys.stdin):
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            ctypes.CDLL(library)
            result = "loaded"
        except OSError as error:
            result = str(error)
        print(json.dumps([library, result]), flush=True)
        os._exit(0)
    os.wait()
"""


def table(wheels: list[Path]) -> list[dict[str, Any]]:
    """Return the number of missing symbols for each wheel and release."""
    rows = []
    for path in wheels:
        loads = inspect(str(path)).loads_with
        if loads is None:
            rows.append({"wheel": path.name, "uses_torch": False})
            continue
        lacking = {_name(fit): len(fit.missing) + len(fit.absent) for fit in relevant(loads)}
        rows.append(
            {
                "wheel": path.name,
                "symbols": loads.symbols,
                "stable_abi": loads.stable_abi,
                "loads_with": releases_in_words(loads),
                "lacks": lacking,
            }
        )
        print(f"{path.name}: {loads.symbols} symbols, loads with {releases_in_words(loads)}")
        print("   " + "  ".join(f"{name}: {count}" for name, count in lacking.items()), flush=True)
    return rows


def _name(fit: TorchFit) -> str:
    return f"{fit.release} {f'CUDA {fit.cuda}' if fit.cuda else 'CPU'}"


def load(wheels: list[Path], torches: list[Path], modules: Path) -> list[dict[str, Any]]:
    """Load every library with every PyTorch, and compare with what is said."""
    rows = []
    said = {path: loads for path in wheels if (loads := inspect(str(path)).loads_with)}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as work:
        libraries = {path: _unpacked(path, Path(work)) for path in said}
        for torch in torches:
            release = parse_wheel_filename(torch.name)[1].public
            site = Path(work) / release
            zipfile.ZipFile(torch).extractall(site)
            results = _loaded(
                [name for names in libraries.values() for name in names], site, modules
            )
            for path, loads in said.items():
                found = {name: results.get(name, ABORTED) for name in libraries[path]}
                rows.append(_compared(path, loads, release, found))
                print(rows[-1], flush=True)
            shutil.rmtree(site)
    return rows


def _unpacked(wheel: Path, work: Path) -> list[str]:
    """Return the libraries of a wheel that use PyTorch, after unpacking it."""
    folder = work / wheel.stem
    zipfile.ZipFile(wheel).extractall(folder)
    return [str(path) for path in sorted(folder.rglob("*.so")) if inspect(str(path)).loads_with]


def _loaded(libraries: list[str], site: Path, modules: Path) -> dict[str, str]:
    """Return for each library ``loaded``, or what the loader says."""
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{modules}"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env=environment,
        input=json.dumps(libraries),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def _compared(
    path: Path, loads: LoadsWith, release: str, results: dict[str, str]
) -> dict[str, Any]:
    """Return what was said of one wheel and one PyTorch for CPUs, and what the loader did."""
    fit = next(one for one in loads.builds if one.release == release and one.cuda is None)
    counted = [text for text in results.values() if _says_something(fit, text)]
    resolved = all(text in ("loaded", ABORTED) for text in counted)
    return {
        "wheel": path.name,
        "torch": release,
        "said": "loads" if fit.loads else f"lacks {len(fit.missing) + len(fit.absent)}",
        "libraries": len(counted),
        "resolved": resolved if counted else None,
        "agrees": not counted or resolved == fit.loads,
        "aborted": counted.count(ABORTED),
        "refused": sorted({_without_folder(text) for text in counted if text != "loaded"}),
        "not_counted": sorted({_without_folder(one) for one in set(results.values()) - {*counted}}),
    }


def _without_folder(text: str) -> str:
    return re.sub(r"\S+/", "", text)


def _says_something(fit: TorchFit, text: str) -> bool:
    """A library of PyTorch that is missing counts; one of others does not."""
    return "cannot open shared" not in text or any(name in text for name in fit.absent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["table", "load"])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--torch", nargs="+", type=Path, default=[])
    parser.add_argument("--modules", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.what == "table":
        rows = table(asked.wheels)
    else:
        rows = load(asked.wheels, asked.torch, asked.modules)
        wrong = [row for row in rows if not row["agrees"]]
        counted = [row for row in rows if row["resolved"] is not None]
        aborted = [row for row in counted if row["aborted"]]
        print(f"{len(counted)} pairs, {len(wrong)} disagreements, {len(aborted)} aborted")
    if asked.json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        asked.json.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
