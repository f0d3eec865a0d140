"""`stoker install` of real packages that no index has a wheel of: from nothing to an import.

    python benchmarks/install_real.py WORK VENV PACKAGE... [--for GPU] [--json FILE]

VENV is an environment with PyTorch; WORK is a folder on the same disk. Each package is installed
into a copy of VENV, which compiles it, then again from the kept wheel, with the share of stoker
(`--print` does everything but the installation) and that of pip, and at last into another copy
from a served catalogue, with a STOKER_HOME of its own. A WORK that was used before continues: what
its record says about the build is told again.
"""

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1] / "tests")

from ranged_server import served  # noqa: E402

STOKER = Path(sys.executable).with_name("stoker")


def measured(words: list[str], home: Path) -> tuple[str, dict[str, float]]:
    """Run a command; return what it prints on both streams, and its times."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**os.environ, "STOKER_HOME": str(home)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times = {"cpu_s": round(cpu, 2), "wall_s": round(time.monotonic() - began, 2)}
    return done.stdout + done.stderr, times


def imported(python: Path, package: str) -> str:
    """Return the file of the module, below its environment."""
    module = package.replace("-", "_")
    code = f"import sys, {module} as m; print(m.__file__.removeprefix(sys.prefix))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def environment(work: Path, venv: Path, name: str) -> Path:
    """Return the Python of a copy of the environment, with links instead of contents."""
    if not (work / name).is_dir():
        subprocess.run(["cp", "-al", str(venv), str(work / name)], check=True)
    return work / name / "bin/python"


def installed(work: Path, venv: Path, package: str, gpu: str) -> dict[str, Any]:
    home = work / "home"
    first, second = (environment(work, venv, name) for name in ("first", "second"))
    words = [str(STOKER), "install", package, "--for", gpu, "--python"]
    said, times = measured([*words, str(first)], home)
    row: dict[str, Any] = {"package": package, "torch": torch_of(first), "first": times}
    row |= {"imported": imported(first, package), "build": build_of(home, package)}
    drop = ["-m", "pip", "uninstall", "-q", "-y", package]
    for python in (first, second):
        subprocess.run([python, *drop], check=True)
    said, row["stoker"] = measured([*words, str(first), "--print"], home)
    command = next(line for line in said.splitlines() if " install " in line)
    _, row["pip"] = measured(shlex.split(command), home)
    subprocess.run([first, *drop], check=True)
    said, row["whole"] = measured([*words, str(first)], home)
    row |= {"built_again": "built from source" in said, "again": imported(first, package)}
    kept, _ = measured([str(STOKER), "cache", "wheels", "--folder"], home)
    with served(Path(kept.strip())) as (catalogue, sent):
        wanted = [*words, str(second), "--catalogue", catalogue, "--no-build"]
        _, row["another_root"] = measured(wanted, work / "elsewhere")
        row["another_root"]["catalogue_bytes"] = sent.total
    return row | {"imported_there": imported(second, package)}


def torch_of(python: Path) -> str:
    return subprocess.check_output(
        [python, "-c", "import torch; print(torch.__version__)"], text=True
    ).strip()


def build_of(home: Path, package: str) -> dict[str, Any]:
    """Return what the newest run of a build says about its steps."""
    runs = sorted((home / "state/runs").glob(f"*-{package.replace('-', '_')}-*"))
    summary = json.loads((runs[-1] / "summary.json").read_text()) if runs else {}
    keys = ("steps", "cpu_s", "wall_s", "peak_bytes", "oom_kills", "preempted")
    return {key: summary[key] for key in keys if key in summary}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("venv", type=Path)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--for", dest="gpu", default="h100")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = [installed(asked.work, asked.venv, each, asked.gpu) for each in asked.packages]
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    result = {**machine, "load": round(os.getloadavg()[0], 1), "gpu": asked.gpu, "rows": rows}
    print(json.dumps(result, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
