"""Measures a whole `pip install torch` environment, official and slimmed for one GPU each.

    python benchmarks/environment.py [--work DIR] [--gpus sm80,sm90,sm120]

Resolves torch for x86-64 Linux with uv, downloads every wheel with pip, slims torch and NVIDIA's
libraries as `stoker install --slim` does, and installs each set with `pip install --target`. Prints
a table of bytes and writes results/environment.json. Needs no GPU, 25 GB of disk and 20 minutes.
Downloads in DIR are used again.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "environment.json"
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]

from packaging.utils import parse_wheel_filename  # noqa: E402

from stoker.catalogue.slim_install import holds_code, slim_wheel  # noqa: E402
from stoker.model.value import size as in_words  # noqa: E402
from stoker.wheel.slim.selection import SlimRequest, gpu_targets  # noqa: E402

TORCH, PYTHON = "torch==2.9.1", "3.12"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)] + ["manylinux2014_x86_64"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
FOREIGN = [word for tag in PLATFORMS for word in ("--platform", tag)]
FOREIGN += ["--python-version", PYTHON, "--only-binary", ":all:", "--no-deps"]

Row = dict[str, Any]


def downloaded(folder: Path) -> list[Path]:
    """Return the wheels of the whole environment."""
    pins = folder / "requirements.txt"
    if not pins.exists():
        wanted = folder / "requirements.in"
        wanted.write_text(f"{TORCH}\n")
        uv = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", wanted]
        platform = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
        subprocess.run([*uv, *platform, "--no-header", "-o", pins], check=True)
    wheels = folder / "official"
    subprocess.run([*PIP, "download", "-q", *FOREIGN, "-d", wheels, "-r", pins], check=True)
    return sorted(wheels.glob("*.whl"))


def slimmed(wheels: list[Path], gpu: str, folder: Path) -> list[Path]:
    """Return the same wheels, slimmed by the code of `stoker install --slim`."""
    folder.mkdir()
    request = SlimRequest(gpus=gpu_targets(gpu), nvidia=True)
    for wheel in wheels:
        (folder / wheel.name).hardlink_to(wheel)
    for wheel in wheels:
        if holds_code(parse_wheel_filename(wheel.name)[0], []):
            slim_wheel(folder / wheel.name, request, print)
    return sorted(folder.glob("*.whl"))


@contextmanager
def installed(wheels: list[Path], folder: Path) -> Iterator[Path]:
    target = folder / "environment"
    try:
        install = [*PIP, "install", "-q", *FOREIGN, "--no-index", "--no-compile"]
        subprocess.run([*install, "--target", target, *wheels], check=True)
        yield target
    finally:
        shutil.rmtree(target, ignore_errors=True)


def measured(name: str, wheels: list[Path], folder: Path) -> Row:
    with installed(wheels, folder) as target:
        files = [path for path in target.rglob("*") if path.is_file() and not path.is_symlink()]
        row = {
            "for": name,
            "download_bytes": sum(wheel.stat().st_size for wheel in wheels),
            "installed_bytes": sum(path.stat().st_size for path in files),
            "wheels": {wheel.name: wheel.stat().st_size for wheel in wheels},
        }
    print(json.dumps({key: row[key] for key in ("for", "download_bytes", "installed_bytes")}))
    return row


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the table that the README shows."""
    whole = rows[0]
    yield f"| `pip install {TORCH}`, x86-64, CUDA 12.8 | wheels | installed | |"
    yield "|---|---|---|---|"
    for row in rows:
        share = 100 * row["installed_bytes"] / whole["installed_bytes"]
        sizes = [in_words(row[key]) for key in ("download_bytes", "installed_bytes")]
        yield f"| {row['for']} | {sizes[0]} | {sizes[1]} | {share:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--work", type=Path, help="keep downloads here; default: a temporary folder"
    )
    parser.add_argument("--gpus", default="sm80,sm90,sm120")
    parser.add_argument("--table", action="store_true", help="only print the stored result")
    wanted = parser.parse_args()
    if wanted.table:
        print("\n".join(table(json.loads(RESULTS.read_text())["environments"])))
        return
    with tempfile.TemporaryDirectory(dir=wanted.work) as temporary:
        work = wanted.work or Path(temporary)
        wheels = downloaded(work)
        rows = [measured("official", wheels, Path(temporary))]
        for gpu in wanted.gpus.split(","):
            made = slimmed(wheels, gpu, Path(temporary) / gpu)
            rows.append(measured(f"slimmed for {gpu}", made, Path(temporary)))
            shutil.rmtree(Path(temporary) / gpu)
    RESULTS.write_text(json.dumps({"torch": TORCH, "environments": rows}, indent=1) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
