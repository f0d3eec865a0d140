"""The start-up overhead of `stoker run`: `python benchmarks/start.py`.

Three commands, each alone and under `stoker run`, alternating: `true`; a build of 40 small C files
that are all in ccache, which starts no governor; and the same build with a link, which starts one.
``--before`` names the `stoker` of another version to compare with. Results go to results/start.json

On a busy machine, run it as `chrt -f 10 python benchmarks/start.py`, so that other processes do not
disturb it; the load is recorded with the results.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"
STOKER = str(Path(sys.executable).with_name("stoker"))
FILES = 40
NINJA = """
rule cc
  command = ccache cc -c $in -o $out
rule link
  command = cc -shared $in -o $out
"""


class Sample(NamedTuple):
    wall_ms: float
    cpu_ms: float  # of the command and of stoker; without the governor, which exits later


class Case(NamedTuple):
    command: tuple[str, ...]
    prepare: Callable[[], object]  # before each round


def measure(words: Sequence[str], folder: Path, environment: dict[str, str]) -> Sample:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Sample(wall * 1000, cpu * 1000)


def make_project(folder: Path) -> None:
    """Create a project of 40 objects, and a library that is linked only on request."""
    statements = [NINJA]
    for number in range(FILES):
        (folder / f"f{number}.c").write_text(f"int f{number}(void) {{ return {number}; }}\n")
        statements.append(f"build f{number}.o: cc f{number}.c")
    objects = " ".join(f"f{number}.o" for number in range(FILES))
    statements += [f"build objects: phony {objects}", f"build all.so: link {objects}"]
    (folder / "build.ninja").write_text("\n".join([*statements, "default objects", ""]))


def remove_objects(folder: Path) -> None:
    for path in (*folder.glob("*.o"), *folder.glob("*.so")):
        path.unlink()


def summary(samples: list[Sample]) -> dict[str, float]:
    walls, cpus = zip(*samples, strict=True)
    return {
        "median_ms": round(statistics.median(walls), 1),
        "best_ms": round(min(walls), 1),
        "cpu_ms": round(statistics.median(cpus), 1),
    }


def compare(
    case: Case, stokers: dict[str, str], folder: Path, environment: dict[str, str], rounds: int
) -> dict[str, dict[str, float]]:
    ways = {"alone": case.command}
    for name, stoker in stokers.items():
        ways[name] = (stoker, "run", "--", *case.command)
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, words in ways.items():
            case.prepare()
            sample = measure(words, folder, environment)
            if number:  # the first round fills the caches
                samples[name].append(sample)
    return {name: summary(found) for name, found in samples.items()}


def report(name: str, found: dict[str, dict[str, float]]) -> None:
    print(name)
    alone = found["alone"]
    for way, result in found.items():
        more = result["median_ms"] - alone["median_ms"]
        ratio = result["median_ms"] / alone["median_ms"]
        print(
            f"  {way:8} {result['median_ms']:7.1f} ms (best {result['best_ms']:.1f}), "
            f"CPU {result['cpu_ms']:.1f} ms; {more:+.1f} ms, {ratio:.2f} times"
        )


def describe(load: float) -> dict[str, object]:
    return {
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(load, 1),
        "real_time_priority": os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", metavar="STOKER")
    parser.add_argument("--json", type=Path, default=RESULTS / "start.json")
    arguments = parser.parse_args()
    stokers = {"stoker": STOKER}
    if arguments.before:
        stokers = {"before": arguments.before, **stokers}
    load = os.getloadavg()[0]
    results = {}
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        folder = Path(name)
        make_project(folder)
        environment = dict(
            os.environ,
            STOKER_HOME=str(folder / "home"),
            CCACHE_DIR=str(folder / "cache"),
            PYTHONPYCACHEPREFIX=str(folder / "compiled"),
        )
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cases = {
            "true": Case(("true",), lambda: None),
            "warm ccache, 40 files": Case(("ninja",), lambda: remove_objects(folder)),
            "the same and a link": Case(("ninja", "all.so"), lambda: remove_objects(folder)),
        }
        for what, case in cases.items():
            results[what] = compare(case, stokers, folder, environment, arguments.rounds)
            report(what, results[what])
    text = json.dumps({"machine": describe(load), "cases": results}, indent=2)
    arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
