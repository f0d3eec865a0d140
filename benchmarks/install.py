"""`stoker install` from a server with thirty wheels of which none fits: refusals, bytes, a build,
and what a second installation costs beside pip.

    python benchmarks/install.py [--rounds N] [--json FILE]

The server answers range requests over HTTP. The machines are virtual environments with a small
library in place of PyTorch; the project is one CUDA kernel, so nvcc is needed. The share of stoker
in an installation is measured as `stoker install --print`, which does everything but the
installation; pip's share is the command that it prints, run on a machine of its own.
"""

import argparse
import json
import os
import platform
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1] / "tests")

from ranged_server import served  # noqa: E402
from shelf_server import Server  # noqa: E402

STOKER = Path(sys.executable).with_name("stoker")
IMPORT = "import mill, sys; sys.exit(not mill.__file__.startswith(sys.prefix))"


class Measured:
    """A command that was run, with its CPU time and wall time."""

    def __init__(self, words: list[str], environment: dict[str, str]):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            words, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.wall_s = round(time.monotonic() - began, 2)
        self.cpu_s = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        self.out, self.err = done.stdout, done.stderr
        if done.returncode:
            raise SystemExit(f"{shlex.join(words)} failed:\n{done.stderr}")

    @property
    def times(self) -> dict[str, float]:
        return {"cpu_s": self.cpu_s, "wall_s": self.wall_s}


def measure(server: Server, work: Path, rounds: int) -> dict[str, Any]:
    install = [str(STOKER), "install", "mill", "--for", "h100", "--python"]
    home = {**server.environment, "STOKER_HOME": str(work / "home"), "STOKER_CACHE": "none"}
    first = server.machine("first")
    dry = Measured([*install, first, "--dry-run", "--json"], home)
    (found,) = json.loads(dry.out)["found"]
    built = Measured([*install, first], home)
    subprocess.run([first, "-c", IMPORT], check=True)
    again = [_again(server, install, home, number) for number in range(rounds)]
    kept = Measured([str(STOKER), "cache", "wheels", "--folder"], home).out.strip()
    away = server.machine("away")
    with served(Path(kept)) as (catalogue, sent):
        elsewhere = {**home, "STOKER_HOME": str(work / "elsewhere")}
        shared = Measured([*install, away, "--catalogue", catalogue], elsewhere)
    subprocess.run([away, "-c", IMPORT], check=True)
    return {
        "wheels": len(found["judged"]),
        "wrong_refusals": server.wrong(dry.err),
        "on_the_server_bytes": sum(one.stat().st_size for one in server.shelf.folder.glob("*.whl")),
        "downloaded_bytes": sum(one["downloaded_bytes"] for one in found["judged"]),
        "judged_and_planned": dry.times,
        "built_and_installed": built.times,
        "second_installation": again,
        "second_installation_median": {
            name: {
                key: statistics.median(one[name][key] for one in again)
                for key in ("cpu_s", "wall_s")
            }
            for name in ("whole", "stoker", "pip")
        },
        "another_machine": {**shared.times, "catalogue_bytes": sent.total},
    }


def _again(
    server: Server, install: list[str], home: dict[str, str], number: int
) -> dict[str, dict[str, float]]:
    """Install from the kept wheel: whole, without the installation, and the installation alone."""
    whole, alone = server.machine(f"whole{number}"), server.machine(f"alone{number}")
    done = Measured([*install, whole], home)
    assert "built from source" not in done.err
    subprocess.run([whole, "-c", IMPORT], check=True)
    printed = Measured([*install, alone, "--print"], home)
    pip = Measured(shlex.split(printed.out), home)
    subprocess.run([alone, "-c", IMPORT], check=True)
    return {"whole": done.times, "stoker": printed.times, "pip": pip.times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        work = Path(folder)
        (work / "server").mkdir()
        with served(work / "server") as (url, sent):
            server = Server(lambda name: str(shutil.which(name)), work, url, sent)
            result = measure(server, work, asked.rounds)
    machine = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }
    result = {**machine, "load": round(os.getloadavg()[0], 1), **result}
    print(json.dumps(result, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
