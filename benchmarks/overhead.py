"""What governing costs where memory is ample: `python benchmarks/overhead.py`.

Trivial steps: a compiler that does nothing, started by ninja, with and without `stoker run`, in
turns. The CPU time that governing adds to a step is that of the governor and that of everything
else (launcher, preloaded library, `stoker run`). CPU time is used because other processes of the
machine change wall time far more.

Compiles of about two seconds: the CPU time of everything that is not a compiler, as a share of the
compilers' CPU time.

The memory of the governor is sampled while trivial steps run, so that `--steps 20000 --rounds 1
--compiles 0` shows whether it grows with their number.

`--compare FOLDER` measures the stoker of another checkout, too, in turns with this one. Results go
to results/overhead.json.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from workload import FUNCTION, LIGHT

from stoker.machine.system import read_machine

RESULTS = Path(__file__).parent / "results"
BIN = Path(sys.executable).parent
COMPILER = "trivial-compiler"  # a link to `true`, which STOKER_COMPILERS declares a compiler
INTERVAL_S = 0.5
TRIVIAL = f"rule trivial\n  command = {COMPILER} $in.c -o $out && touch $out\n"
COMPILE = "rule compile\n  command = g++ -O2 -c $in -o $out\n"


class Cost(NamedTuple):
    """What a build took. ``cpu_s`` is of everything but the governor."""

    wall_s: float
    cpu_s: float
    governor_cpu_s: float = 0.0
    steps_cpu_s: float = 0.0
    governor_bytes: tuple[int, ...] = ()  # resident, in equal intervals


class Project:
    """A build.ninja that is built again and again, by the stoker of one folder of programs."""

    def __init__(self, folder: Path, rule: str, statements: list[str]):
        self._folder = folder
        (folder / "build.ninja").write_text("".join([rule, *statements]))
        (folder / "bin").mkdir()
        (folder / "bin" / COMPILER).symlink_to(shutil.which("true") or "/bin/true")
        self._env = {
            **os.environ,
            "PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]]),
            "STOKER_COMPILERS": COMPILER,
        }

    def plain(self) -> Cost:
        return self._run(["ninja", f"-j{os.cpu_count()}"])

    def governed(self, programs: Path) -> Cost:
        file = self._folder / "summary.json"
        stoker = [str(programs / "stoker"), "run", "--progress", "quiet", "--summary", str(file)]
        home = self._folder / f"home-{hashlib.sha256(str(programs).encode()).hexdigest()[:8]}"
        with Samples(home) as samples:
            cost = self._run([*stoker, "--", "ninja"], STOKER_HOME=str(home), STOKER_CACHE="none")
        summary = json.loads(file.read_text())
        expected = (self._folder / "build.ninja").read_text().count("\nbuild ")
        assert summary["steps"] == expected, f"{summary['steps']} steps of {expected} were governed"
        return cost._replace(
            governor_cpu_s=summary["governor_cpu_s"],
            steps_cpu_s=summary["cpu_s"],
            governor_bytes=tuple(samples.bytes),
        )

    def _run(self, command: list[str], **env: str) -> Cost:
        for made in self._folder.glob("*.o"):
            made.unlink()
        (self._folder / ".ninja_log").unlink(missing_ok=True)
        began, before = time.monotonic(), cpu_seconds()
        subprocess.run(
            command, cwd=self._folder, env=self._env | env, check=True, stdout=subprocess.DEVNULL
        )
        return Cost(time.monotonic() - began, cpu_seconds() - before)


class Samples:
    """Reads the memory of the governor of a home while a block runs."""

    def __init__(self, home: Path):
        self.bytes: list[int] = []
        self._home, self._over = str(home), threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Samples":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        governor: Path | None = None
        while not self._over.wait(INTERVAL_S):
            try:
                governor = governor or self._find()
                if governor:
                    pages = int((governor / "statm").read_text().split()[1])
                    self.bytes.append(pages * resource.getpagesize())
            except OSError:
                governor = None

    def _find(self) -> Path | None:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
                if "stoker.govern.server.daemon" in words and self._home in words:
                    return folder
        return None


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def trivial(folder: Path, stokers: dict[str, Path], steps: int, rounds: int) -> dict[str, Any]:
    project = Project(folder, TRIVIAL, [f"build {n}.o: trivial\n" for n in range(steps)])
    plain: list[Cost] = []
    governed: dict[str, list[Cost]] = {name: [] for name in stokers}
    for _ in range(rounds):
        plain.append(project.plain())
        for name, programs in stokers.items():
            governed[name].append(project.governed(programs))
    return {
        "steps": steps,
        "rounds": rounds,
        "plain_ms_a_step": _milliseconds([cost.wall_s for cost in plain], steps),
        **{
            name: {**_added(costs, plain, steps), "governor_bytes": _quarters(costs[-1])}
            for name, costs in governed.items()
        },
    }


def _added(costs: list[Cost], plain: list[Cost], steps: int) -> dict[str, float]:
    """Medians over the rounds, for one step."""
    pairs = list(zip(costs, plain, strict=True))
    return {
        "added_wall_ms": _milliseconds([a.wall_s - b.wall_s for a, b in pairs], steps),
        "governor_cpu_ms": _milliseconds([cost.governor_cpu_s for cost in costs], steps),
        "launcher_and_run_cpu_ms": _milliseconds([a.cpu_s - b.cpu_s for a, b in pairs], steps),
        "added_cpu_ms": _milliseconds(
            [a.cpu_s + a.governor_cpu_s - b.cpu_s for a, b in pairs], steps
        ),
    }


def _quarters(cost: Cost) -> list[int]:
    """Return the governor's memory after each quarter of the run."""
    sampled = cost.governor_bytes
    return [sampled[len(sampled) * quarter // 4 - 1] for quarter in (1, 2, 3, 4) if sampled]


def _milliseconds(seconds: list[float], steps: int) -> float:
    return round(1000 * statistics.median(seconds) / steps, 3)


def compiles(folder: Path, stokers: dict[str, Path], steps: int) -> dict[str, Any]:
    for number in range(steps):
        functions = "".join(FUNCTION.format(index=number, number=n) for n in range(50))
        (folder / f"{number}.cpp").write_text(LIGHT.format(functions=functions))
    statements = [f"build {n}.o: compile {n}.cpp\n" for n in range(steps)]
    project = Project(folder, COMPILE, statements)
    return {
        "steps": steps,
        **{name: _share(project.governed(programs), steps) for name, programs in stokers.items()},
    }


def _share(cost: Cost, steps: int) -> dict[str, float]:
    """The start of `stoker run`, which is Python's, is in it."""
    compilers, governor = cost.steps_cpu_s, cost.governor_cpu_s
    return {
        "seconds_a_step": round(compilers / steps, 3),
        "compilers_cpu_s": round(compilers, 3),
        "governor_cpu_s": round(governor, 3),
        "launchers_ninja_and_command_cpu_s": round(cost.cpu_s - compilers, 3),
        "share": round((governor + cost.cpu_s - compilers) / compilers, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--compiles", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compare", type=Path, help="a checkout with a .venv")
    parser.add_argument("--json", type=Path, default=RESULTS / "overhead.json")
    arguments = parser.parse_args()
    stokers = {"governed": BIN}
    if arguments.compare:
        stokers["compared"] = arguments.compare.resolve() / ".venv/bin"
    machine = read_machine()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        result: dict[str, Any] = {
            "machine": {"cpu": machine.cpu.model, "cpus": machine.cpu.usable},
            "load_before": os.getloadavg()[0],
            "trivial": trivial(Path(one), stokers, arguments.steps, arguments.rounds),
        }
        if arguments.compiles:
            result["compiles"] = compiles(Path(two), stokers, arguments.compiles)
    print(json.dumps(result, indent=1))
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
