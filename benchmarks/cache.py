"""Measures builds of the example with an empty and with a filled compiler cache, side by side.

    python benchmarks/cache.py [--rounds 3]

Builds examples/kiln with plain ninja and ccache, and with `stoker run` and the same ccache, each
with an empty cache once and then with a filled one, in turns. Prints a table and writes
results/cache.json with a description of the machine. Goals: a filled cache makes the build ten
times faster, and stoker adds at most 5 % to the build without it.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "cache.json"
BIN = Path(sys.executable).parent
SETTINGS = {"CCACHE_COMPILERCHECK": "content"}  # what stoker uses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="filled builds of each kind")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="cache-") as name:
        folder = Path(name)
        environment = (
            os.environ
            | SETTINGS
            | {
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
                "STOKER_HOME": str(folder / "home"),
            }
        )
        plain = Kind("plain", folder, environment, ("ninja",), launcher="ccache")
        stoker = Kind(
            "stoker", folder, environment, ("stoker", "run", "--progress", "quiet", "--", "ninja")
        )
        kinds = (plain, stoker)
        empty = {kind.name: kind.build() for kind in kinds}
        filled: dict[str, list[float]] = {kind.name: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                filled[kind.name].append(kind.build())
    report(empty, {name: statistics.median(times) for name, times in filled.items()}, rounds)


class Kind:
    """One way to build the example, with a build folder and a cache of its own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        environment: dict[str, str],
        command: tuple[str, ...],
        launcher: str | None = None,
    ):
        self.name = name
        self._build = folder / name
        self._command = command
        self._environment = environment | {"CCACHE_DIR": str(folder / f"cache-{name}")}
        if launcher is None:
            self._environment |= {"STOKER_CACHE": "ccache"}
        options = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"] if launcher else []
        tree = folder / f"tree-{name}"
        shutil.copytree(ROOT / "examples" / "kiln", tree)
        self._run("cmake", "-S", str(tree), "-B", str(self._build), "-G", "Ninja", *options)

    def build(self) -> float:
        """Compile everything and return the seconds that it took."""
        self._run("ninja", "-C", str(self._build), "-t", "clean")
        began = time.monotonic()
        self._run(*self._command, "-C", str(self._build))
        return time.monotonic() - began

    def _run(self, *words: str) -> None:
        subprocess.run(words, env=self._environment, check=True, stdout=subprocess.DEVNULL)


def report(empty: dict[str, float], filled: dict[str, float], rounds: int) -> None:
    for name in empty:
        print(f"{name:8} empty {empty[name]:8.2f} s   filled {filled[name]:6.2f} s")
    faster = empty["stoker"] / filled["stoker"]
    added = filled["stoker"] / filled["plain"] - 1
    print(
        f"a filled cache is {faster:.1f} times faster; stoker adds {added:+.0%} to a filled build"
    )
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    result = {
        "machine": machine,
        "rounds": rounds,
        "empty_s": empty,
        "filled_s": filled,
        "times_faster": faster,
        "added_by_stoker": added,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
