"""What governing costs where steps are short: `python benchmarks/short_steps.py`.

Trivial compiles: the same C file is compiled many times by ninja, alone and under `stoker run`, in
turns, so that the governor and the launchers are the largest cost of stoker. Each round has the
ratio of wall times and the core time that governing adds to a compile: that of the governor, and
that of everything else (launchers, preloaded library, `stoker run`). Core time is valid on a busy
machine, wall time is not.

Pretended places: a compiler that sleeps for 50 ms, with 128 places whatever the machine has. It
shows how many steps a second one governor can serve.

    python benchmarks/short_steps.py                                       here
    python benchmarks/short_steps.py --compiles 6000 --places 16 --rounds 5  on a large machine

`--compare FOLDER` measures the stoker of another checkout too. Results go to
results/short_steps.json.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
BIN = Path(sys.executable).parent
SLEEPER = "clang"  # the name of a compiler, which may be started again
SLEEP = """#include <time.h>
int main(void) { struct timespec t = {0, 50000000}; return nanosleep(&t, 0); }
"""
COMPILE = "rule compile\n  command = cc -c $in -o $out\n"
SLEEPS = f"rule compile\n  command = {SLEEPER} -c $in -o $out\n"  # it makes no file


class Cost(NamedTuple):
    """What a build took. ``cpu_s`` is of everything but the governor."""

    wall_s: float
    cpu_s: float
    governor_cpu_s: float = 0.0

    @property
    def core_s(self) -> float:
        return self.cpu_s + self.governor_cpu_s


class Project:
    """Many steps with the same source, which ninja runs again and again."""

    def __init__(self, folder: Path, rule: str, steps: int, places: int):
        self._folder, self._steps, self._places = folder, steps, places
        (folder / "a.c").write_text("int a;\n")
        statements = (f"build {number}.o: compile a.c\n" for number in range(steps))
        (folder / "build.ninja").write_text(rule + "".join(statements))
        (folder / "sleep.c").write_text(SLEEP)
        (folder / "bin").mkdir()
        subprocess.run(["cc", "-o", folder / "bin" / SLEEPER, folder / "sleep.c"], check=True)
        self._env = {
            **os.environ,
            "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
            "STOKER_CACHE": "none",
            "STOKER_PROGRESS": "quiet",
        }

    def plain(self) -> Cost:
        return self._run(["ninja", f"-j{self._places}"], self._env)

    def governed(self, name: str, stoker: Path) -> Cost:
        """Build with a history of its own, which the first round fills."""
        summary = self._folder / "summary.json"
        words = [stoker, "run", "--cpus", str(self._places), "--summary", summary, "--", "ninja"]
        home = {"STOKER_HOME": str(self._folder / f"home-{name}")}
        cost = self._run(list(map(str, words)), self._env | home)
        found = json.loads(summary.read_text())
        assert found["steps"] == self._steps, f"{found['steps']} of {self._steps} were governed"
        return cost._replace(governor_cpu_s=found["governor_cpu_s"])

    def _run(self, command: list[str], environment: dict[str, str]) -> Cost:
        for path in (*self._folder.glob("*.o"), self._folder / ".ninja_log"):
            path.unlink(missing_ok=True)
        began, before = time.monotonic(), _cpu_seconds()
        subprocess.run(
            command, cwd=self._folder, env=environment, check=True, stdout=subprocess.DEVNULL
        )
        return Cost(time.monotonic() - began, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(
    rule: str, steps: int, places: int, rounds: int, stokers: dict[str, Path]
) -> dict[str, Any]:
    """Return the costs of ninja and of each stoker, by turns."""
    found: dict[str, list[Cost]] = {"ninja": [], **{name: [] for name in stokers}}
    with tempfile.TemporaryDirectory(prefix="short-steps-", ignore_cleanup_errors=True) as name:
        project = Project(Path(name), rule, steps, places)
        for _ in range(rounds):
            found["ninja"].append(project.plain())
            for each, stoker in stokers.items():
                found[each].append(project.governed(each, stoker))
    plain = found.pop("ninja")
    return {
        "steps": steps,
        "places": places,
        "ninja": _figures(plain, steps),
        **{each: _figures(costs, steps) | _added(costs, plain) for each, costs in found.items()},
    }


def _figures(costs: list[Cost], steps: int) -> dict[str, Any]:
    return {
        "steps_a_second": [round(steps / cost.wall_s) for cost in costs],
        "core_ms_a_step": _milliseconds([cost.core_s for cost in costs], steps),
        "governor_ms_a_step": _milliseconds([cost.governor_cpu_s for cost in costs], steps),
    }


def _added(costs: list[Cost], plain: list[Cost]) -> dict[str, Any]:
    pairs = list(zip(costs, plain, strict=True))
    return {
        "wall_of_ninja": [round(cost.wall_s / alone.wall_s, 2) for cost, alone in pairs],
        "core_of_ninja": [round(cost.core_s / alone.core_s, 2) for cost, alone in pairs],
    }


def _milliseconds(seconds: list[float], steps: int) -> float:
    return round(1000 * statistics.median(seconds) / steps, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--compiles", type=int, default=1500)
    parser.add_argument("--places", type=int, default=os.cpu_count())
    parser.add_argument("--sleeps", type=int, default=3000)
    parser.add_argument("--pretended", type=int, default=128, help="places for the sleeps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compare", type=Path, help="a checkout with a .venv")
    parser.add_argument("--json", type=Path, default=RESULTS / "short_steps.json")
    arguments = parser.parse_args()
    stokers = {"governed": BIN / "stoker"}
    if arguments.compare:
        stokers["compared"] = arguments.compare.resolve() / ".venv/bin/stoker"
    result: dict[str, Any] = {
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count()},
        "load_before": round(os.getloadavg()[0], 1),
    }
    for name, rule, steps, places in (
        ("compiles", COMPILE, arguments.compiles, arguments.places),
        ("sleeps", SLEEPS, arguments.sleeps, arguments.pretended),
    ):
        if steps:
            result[name] = measure(rule, steps, places, arguments.rounds, stokers)
            print(json.dumps({name: result[name]}, indent=1), flush=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
