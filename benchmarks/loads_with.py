"""Compares "loads with" of `stoker inspect` with the loader, and prints its table for wheels.

    python benchmarks/loads_with.py table WHEEL... [--json FILE]
    python benchmarks/loads_with.py load WHEEL... --torch WHEEL... --modules FOLDER [--json FILE]

`table` prints how many symbols of each wheel each release of PyTorch lacks. `load` unpacks each
PyTorch, and loads every library of each wheel with it in its own process, after `import torch`, as
Python loads an extension module: all symbols at once. FOLDER has what PyTorch imports. A library
that does not load because another library is missing, such as FFmpeg's, says nothing about PyTorch;
it is listed and not counted.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from stoker.model.artifact import LoadsWith, TorchFit
from stoker.wheel.inspecting import inspect
from stoker.wheel.loads_with import releases_in_words, relevant

LOAD = "import sys, torch, ctypes; ctypes.CDLL(sys.argv[1]); print('loaded')"


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
    for torch in torches:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as work:
            site = Path(work) / "site"
            zipfile.ZipFile(torch).extractall(site)
            release = parse_wheel_filename(torch.name)[1].public
            for path in wheels:
                unpacked = Path(work) / path.name
                zipfile.ZipFile(path).extractall(unpacked)
                row = _compared(path, unpacked, release, (site, modules, unpacked))
                if row:
                    rows.append(row)
                    print(row, flush=True)
    return rows


def _compared(
    path: Path, unpacked: Path, release: str, sites: tuple[Path, ...]
) -> dict[str, Any] | None:
    """Return what was said of one wheel and one PyTorch, and what the loader did."""
    loads = inspect(str(path)).loads_with
    if loads is None:
        return None
    fit = next(one for one in loads.builds if one.release == release and one.cuda is None)
    results = {
        str(library.relative_to(unpacked)): _load(library, sites)
        for library in sorted(unpacked.rglob("*.so"))
        if _uses_torch(library)
    }
    other = {name: text for name, text in results.items() if "cannot open shared" in text}
    counted = {name: text for name, text in results.items() if _says_something(fit, text)}
    loaded = all(text == "loaded" for text in counted.values())
    return {
        "wheel": path.name,
        "torch": release,
        "said": "loads" if fit.loads else f"lacks {len(fit.missing) + len(fit.absent)}",
        "loaded": loaded if counted else None,
        "agrees": not counted or loaded == fit.loads,
        "undefined": sorted({text for text in counted.values() if text != "loaded"}),
        "other_libraries": sorted(set(other.values())),
    }


def _says_something(fit: TorchFit, text: str) -> bool:
    """A library of PyTorch that is missing counts; one of others does not."""
    return "cannot open shared" not in text or any(name in text for name in fit.absent)


def _uses_torch(library: Path) -> bool:
    loads: LoadsWith | None = inspect(str(library)).loads_with
    return loads is not None


def _load(library: Path, sites: tuple[Path, ...]) -> str:
    """Return ``loaded``, or what the loader says."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sites))}
    environment["LD_LIBRARY_PATH"] = str(sites[0] / "torch/lib")  # as `import torch` has loaded it
    command = [sys.executable, "-c", LOAD, str(library)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    return last.replace(f"{library.parents[0]}{os.sep}", "")


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
        counted = [row for row in rows if row["loaded"] is not None]
        print(f"{len(counted)} pairs counted, {len(wrong)} disagreements")
    if asked.json:
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        asked.json.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
