"""The overhead of the governor with ample memory: `python benchmarks/overhead.py`.

For trivial steps: wall time per step with and without the governor, alternating. For C++ compiles
of about two seconds: the CPU time of all processes that are not compilers, as a share of the
compilers' time. Results are written to results/overhead.json.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from workload import FUNCTION, LIGHT

from stoker.machine.snapshot import read_machine

RESULTS = Path(__file__).parent / "results"
BIN = Path(sys.executable).parent
TRIVIAL = "rule trivial\n  command = {launcher} true $in -o $out && touch $out\n"
COMPILE = "rule compile\n  command = {launcher} g++ -O2 -c $in -o $out\n"


class Project:
    """A build.ninja with or without the launcher in front of its commands."""

    def __init__(self, folder: Path, rule: str, statements: list[str]):
        self._folder, self._statements = folder, statements
        self._rule = rule
        self._env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self._env["STOKER_HOME"] = str(folder / "home")
        self.summary: dict[str, Any] = {}

    def plain(self) -> float:
        return self._run(["ninja", f"-j{os.cpu_count()}"], launcher="")

    def governed(self) -> float:
        summary = self._folder / "summary.json"
        command = ["stoker", "run", "--progress", "quiet", "--summary", str(summary), "--", "ninja"]
        seconds = self._run(command, launcher="$$STOKER_LAUNCHER")
        self.summary = json.loads(summary.read_text())
        return seconds

    def _run(self, command: list[str], *, launcher: str) -> float:
        lines = [self._rule.format(launcher=launcher), *self._statements]
        (self._folder / "build.ninja").write_text("".join(lines))
        for made in self._folder.glob("*.o"):
            made.unlink()
        (self._folder / ".ninja_log").unlink(missing_ok=True)
        began = time.monotonic()
        subprocess.run(
            command, cwd=self._folder, env=self._env, check=True, stdout=subprocess.DEVNULL
        )
        return time.monotonic() - began


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def trivial(folder: Path, steps: int, rounds: int) -> dict[str, float]:
    project = Project(folder, TRIVIAL, [f"build {n}.o: trivial\n" for n in range(steps)])
    plain, governed = [], []
    for _ in range(rounds):
        plain.append(project.plain())
        governed.append(project.governed())
    a, b = statistics.median(plain), statistics.median(governed)
    return {
        "steps": steps,
        "plain_ms_a_step": 1000 * a / steps,
        "governed_ms_a_step": 1000 * b / steps,
        "added_ms_a_step": 1000 * (b - a) / steps,
        "governor_cpu_ms_a_step": 1000 * project.summary["governor_cpu_s"] / steps,
    }


def compiles(folder: Path, steps: int) -> dict[str, float]:
    for number in range(steps):
        functions = "".join(FUNCTION.format(index=number, number=n) for n in range(50))
        (folder / f"{number}.cpp").write_text(LIGHT.format(functions=functions))
    statements = [f"build {n}.o: compile {n}.cpp\n" for n in range(steps)]
    project = Project(folder, COMPILE, statements)
    before = cpu_seconds()
    project.governed()
    everything = cpu_seconds() - before
    compilers, governor = project.summary["cpu_s"], project.summary["governor_cpu_s"]
    # Includes the start of `stoker run`, but not the governor, which is not a child process.
    return {
        "steps": steps,
        "seconds_a_step": compilers / steps,
        "compilers_cpu_s": compilers,
        "governor_cpu_s": governor,
        "launchers_ninja_and_command_cpu_s": everything - compilers,
        "share": (governor + everything - compilers) / compilers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--compiles", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    machine = read_machine()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        result = {
            "machine": {"cpu": machine.cpu.model, "cpus": machine.cpu.usable},
            "load_before": os.getloadavg()[0],
            "trivial": trivial(Path(one), arguments.steps, arguments.rounds),
            "compiles": compiles(Path(two), arguments.compiles),
        }
    print(json.dumps(result, indent=1))
    (RESULTS / "overhead.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
