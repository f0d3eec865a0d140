"""What a filled compiler cache costs in a real build: two stokers by turns.

    python benchmarks/cache_hits.py BUILD --objects 220 --rounds 5 NAME=STOKER NAME=STOKER

BUILD is a configured build folder of ninja, such as that of PyTorch. Some of its objects, chosen at
random with a fixed seed, are compiled by each stoker into a ccache of its own, and then made from
that cache, by turns. Prints wall and CPU seconds of each round and ccache's counts, and writes
results/cache_hits-<machine>.json.
"""

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SEED = 1


class Side:
    """One stoker with its own history and cache."""

    def __init__(self, stoker: str, folder: Path):
        self._stoker = stoker
        self.environment = os.environ | {
            "STOKER_HOME": str(folder / "home"),
            "CCACHE_DIR": str(folder / "ccache"),
            "CCACHE_MAXSIZE": "20G",
        }

    def make(self, build: Path, objects: list[str]) -> tuple[float, float]:
        """Make the objects again; return the wall and CPU seconds."""
        for name in objects:
            (build / name).unlink(missing_ok=True)
        began, before = time.monotonic(), _cpu_seconds()
        command = [self._stoker, "run", "--progress", "quiet", "--", "ninja", *objects]
        subprocess.run(
            command, cwd=build, env=self.environment, check=True, stdout=subprocess.DEVNULL
        )
        return round(time.monotonic() - began, 2), round(_cpu_seconds() - before, 2)

    def counts(self) -> str:
        return subprocess.check_output(["ccache", "-s"], env=self.environment, text=True)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def choose(build: Path, part: str, count: int) -> list[str]:
    said = subprocess.check_output(["ninja", "-t", "targets", "all"], cwd=build, text=True)
    names = (line.split(":")[0] for line in said.splitlines())
    objects = sorted(name for name in names if part in name and name.endswith(".cpp.o"))
    random.Random(SEED).shuffle(objects)
    return objects[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("sides", nargs="+", metavar="NAME=STOKER")
    parser.add_argument("--objects", type=int, default=220)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", default="/torch_cpu.dir/", help="in the objects' names")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    objects = choose(arguments.build, arguments.part, arguments.objects)
    result: dict[str, Any] = {
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "objects": len(objects),
        "columns": ["wall_s", "cpu_s"],
    }
    with tempfile.TemporaryDirectory(prefix="cache-hits-", ignore_cleanup_errors=True) as folder:
        words = (word.partition("=") for word in arguments.sides)
        sides = {side: Side(stoker, Path(folder, side)) for side, _, stoker in words}
        result["empty"] = {
            name: side.make(arguments.build, objects) for name, side in sides.items()
        }
        filled: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for side in sides.values():
            side.make(arguments.build, objects)  # the first one reads what the compiler wrote
        for number in range(arguments.rounds):
            for name in list(sides) if number % 2 == 0 else list(sides)[::-1]:
                filled[name].append(sides[name].make(arguments.build, objects))
        for name, side in sides.items():
            print(name, side.counts())
    result |= {"filled": filled, "median": {name: _medians(rows) for name, rows in filled.items()}}
    print(json.dumps(result, indent=1))
    file = arguments.json or RESULTS / f"cache_hits-{platform.machine()}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")


def _medians(rows: list[tuple[float, float]]) -> list[float]:
    return [round(statistics.median(column), 2) for column in zip(*rows, strict=True)]


if __name__ == "__main__":
    main()
