"""Measures this checkout against another commit, by turns: `make compare REF=COMMIT`.

    python benchmarks/compare.py COMMIT [--rounds 3] [--only ROW,...] [--json FILE]

Both commits are installed into environments of their own and do the same work on this machine. A
ratio is that of the checkout's HEAD over the other commit: above 1 is slower. The exit status is 1
if a row is more than 5 % slower. `tight` and `roomy` need root and a memory cgroup; `slim` and
`inspect` need ``--wheel``, a large wheel. Take figures on an idle machine only.
"""

import argparse
import json
import lzma
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from governor import Group

PROJECT = Path(__file__).resolve().parents[1]
TRACE = PROJECT / "benchmarks/results/pytorch-2.6.0-x86_64-trace.json.xz"
WORSE = 1.05
IDLE = 0.8  # load average above which figures are noise
FILLED = 200  # files
ELEMENTS = 45_000  # of a table that g++ -O1 needs about 1.1 GB for
GIB = 1 << 30


class Times(NamedTuple):
    wall: float
    cpu: float


class RowError(Exception):
    """A command of a row has failed, perhaps because the other commit does not know an option."""


class Side:
    """One commit, installed, with a home of its own."""

    def __init__(self, name: str, commit: str, root: Path):
        self.name, self.root = name, root / name
        self.root.mkdir()
        source = self.root / "source"
        run("git", "clone", "-q", str(PROJECT), str(source))
        run("git", "-C", str(source), "checkout", "-q", commit)
        run(sys.executable, "-m", "venv", str(self.root / "venv"))
        run(str(self.root / "venv/bin/pip"), "install", "-q", str(source))
        self.environment = {
            **os.environ,
            "HOME": str(self.root / "home"),
            "STOKER_HOME": str(self.root / "state"),
            "CCACHE_DISABLE": "1",
        }
        (self.root / "home").mkdir()

    def time(
        self,
        *words: str,
        group: Group | None = None,
        may_fail: bool = False,
        cached: bool = False,
    ) -> Times:
        """Return what a command of stoker takes, with its children; ``cached`` ones use ccache."""
        environment = self.environment
        if cached:
            environment = environment | {"CCACHE_DIR": str(self.root / "ccache")}
            del environment["CCACHE_DISABLE"]
        command = [str(self.root / "venv/bin/stoker"), *words]
        if group:
            enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
            command = ["sh", "-c", enter, str(group.path), *command]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            command,
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode and not may_fail:
            what = f"{self.name}: stoker {' '.join(words)} ended with {done.returncode}"
            raise RowError(f"{what}: {done.stderr[-500:].strip()}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Times(wall, cpu)


class Work(NamedTuple):
    """What rows share: a folder for their files, the rounds, and a large wheel if one was named."""

    folder: Path
    rounds: int
    wheel: Path | None


Found = dict[str, list[float]]
Row = Callable[[Sequence[Side], Work], Found]


def run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def by_turns(sides: Sequence[Side], rounds: int, once: Callable[[Side], float]) -> Found:
    found: Found = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            found[side.name].append(once(side))
    return found


# -- rows ----------------------------------------------------------------------------------------


def start(sides: Sequence[Side], work: Work) -> Found:
    """`stoker run -- true`, wall"""
    return by_turns(sides, work.rounds * 5, lambda side: side.time("run", "--", "true").wall)


def plan(sides: Sequence[Side], work: Work) -> Found:
    """`stoker plan h100`, wall"""
    return by_turns(sides, work.rounds * 2, lambda side: side.time("plan", "h100").wall)


def diagnose(sides: Sequence[Side], work: Work) -> Found:
    """`stoker diagnose` of a log of two lines, CPU"""
    log = work.folder / "short.log"
    log.write_text("a.cpp:3:10: fatal error: zlib.h: No such file or directory\nninja: failed\n")
    return by_turns(
        sides, work.rounds, lambda side: side.time("diagnose", str(log), may_fail=True).cpu
    )


def trivial(sides: Sequence[Side], work: Work) -> Found:
    """400 compiles of an empty C file by ninja -j8, wall"""
    for side in sides:
        folder = side.root / "trivial"
        folder.mkdir()
        (folder / "a.c").write_text("int a;\n")
        builds = "".join(f"build o{number}.o: c a.c\n" for number in range(400))
        (folder / "build.ninja").write_text(f"rule c\n  command = cc -c $in -o $out\n{builds}")

    def once(side: Side) -> float:
        run("ninja", "-C", str(side.root / "trivial"), "-t", "clean")
        return side.time("run", "--", "ninja", "-C", "trivial", "-j8").wall

    return by_turns(sides, work.rounds, once)


def filled(sides: Sequence[Side], work: Work) -> Found:
    """200 C++ files with 40 headers of their own, all in ccache, CPU"""
    for side in sides:
        folder = side.root / "filled"
        folder.mkdir()
        (folder / ".git").mkdir()  # the root of the project
        for number in range(40):
            text = f"#pragma once\ninline int of_{number}(int x) {{ return x + {number}; }}\n"
            (folder / f"h{number}.h").write_text(text)
        own = "".join(f'#include "h{number}.h"\n' for number in range(40))
        standard = "#include <map>\n#include <string>\n#include <vector>\n"
        for number in range(FILLED):
            body = f"int f_{number}(std::vector<std::string>& a) {{ return of_7(a.size()); }}\n"
            (folder / f"{number}.cpp").write_text(f"{standard}{own}{body}")
        rule = "rule c\n  command = g++ -MD -MF $out.d -c $in -o $out\n  depfile = $out.d\n"
        builds = "".join(f"build {number}.o: c {number}.cpp\n" for number in range(FILLED))
        (folder / "build.ninja").write_text(rule + builds)

    def once(side: Side) -> float:
        run("ninja", "-C", str(side.root / "filled"), "-t", "clean")
        return side.time("run", "--", "ninja", "-C", "filled", cached=True).cpu

    for side in sides:
        once(side)
    return by_turns(sides, work.rounds, once)


def roomy(sides: Sequence[Side], work: Work) -> Found:
    """4 compiles of 1.1 GB among 40 light ones under 8 GiB, wall"""
    return governed(sides, work, heavy=4, limit=8 * GIB)


def tight(sides: Sequence[Side], work: Work) -> Found:
    """8 compiles of 1.1 GB among 40 light ones under 2 GiB, wall; the first round is cold"""
    return governed(sides, work, heavy=8, limit=2 * GIB)


def slim(sides: Sequence[Side], work: Work) -> Found:
    """`stoker slim WHEEL --for h100`, CPU"""
    wheel = large_wheel(work)

    def once(side: Side) -> float:
        shutil.rmtree(side.root / "slim", ignore_errors=True)
        return side.time("slim", wheel, "--for", "h100", "--out", "slim").cpu

    return by_turns(sides, work.rounds, once)


def inspect(sides: Sequence[Side], work: Work) -> Found:
    """`stoker inspect WHEEL --json`, CPU"""
    wheel = large_wheel(work)
    return by_turns(sides, work.rounds, lambda side: side.time("inspect", wheel, "--json").cpu)


def simulate(sides: Sequence[Side], work: Work) -> Found:
    """`stoker simulate` of PyTorch, 16 CPUs, 8 GiB, CPU"""
    trace = work.folder / "pytorch.json"
    trace.write_bytes(lzma.decompress(TRACE.read_bytes()))
    machine = ("--cpus", "16", "--memory", "8G")
    return by_turns(
        sides, work.rounds, lambda side: side.time("simulate", str(trace), *machine).cpu
    )


def build(sides: Sequence[Side], work: Work) -> Found:
    """`stoker build` of the demo's project, wall"""
    for side in sides:
        shutil.copytree(PROJECT / "examples/kiln", side.root / "kiln")

    def once(side: Side) -> float:
        return side.time("build", "kiln", "--fresh", "--cache", "none").wall

    return by_turns(sides, work.rounds, once)


def large_wheel(work: Work) -> str:
    if work.wheel is None:
        raise RowError("name a large wheel with --wheel")
    return str(work.wheel)


def governed(sides: Sequence[Side], work: Work, *, heavy: int, limit: int) -> Found:
    source = work.folder / f"tables-{heavy}"
    write_tables(source, heavy, 40)
    group = Group(limit, name=f"stoker-compare-{os.getpid()}")
    folder = f"build-{heavy}"
    try:
        for side in sides:
            run("cmake", "-G", "Ninja", "-S", str(source), "-B", str(side.root / folder))

        def once(side: Side) -> float:
            run("ninja", "-C", str(side.root / folder), "-t", "clean")
            return side.time("run", "--", "ninja", "-C", folder, "-j8", group=group).wall

        return by_turns(sides, work.rounds, once)
    finally:
        group.drop()


def write_tables(folder: Path, heavy: int, light: int) -> None:
    folder.mkdir()
    for name, text in tables(heavy, light):
        (folder / name).write_text(text)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(tables CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
        "set(CMAKE_CXX_FLAGS -O1)\nfile(GLOB SOURCES *.cpp)\n"
        "add_library(tables SHARED ${SOURCES})\n"
    )


def tables(heavy: int, light: int) -> Iterator[tuple[str, str]]:
    for number in range(heavy):
        pairs = ",".join(f"{{{k},{k}.5}}" for k in range(number, number + ELEMENTS))
        kind = f"const std::pair<int,double> table_{number}[]"
        text = f"#include <utility>\nextern {kind};\n{kind}={{{pairs}}};\n"
        yield f"{number * 5 % 8}_table.cpp", text
    for number in range(light):
        text = "#include <map>\n#include <string>\n#include <vector>\n"
        text += f"std::size_t f{number}(std::vector<int> v) {{ std::map<int,std::string> m;"
        text += ' m[v.size()]="x"; return m.size(); }\n'
        yield f"{number % 8}_small_{number}.cpp", text


ROWS: dict[str, Row] = {
    row.__name__: row
    for row in (
        start,
        plan,
        diagnose,
        trivial,
        filled,
        roomy,
        tight,
        slim,
        inspect,
        simulate,
        build,
    )
}


def measure(name: str, sides: Sequence[Side], work: Work) -> Found:
    try:
        return ROWS[name](sides, work)
    except (RowError, OSError, subprocess.CalledProcessError) as error:
        print(f"{name:9} not measured: {error}", flush=True)
        return {}


def show(name: str, found: Found) -> float:
    """Print a row and return its ratio."""
    what = ROWS[name].__doc__
    ref, head = (statistics.median(values) for values in found.values())
    rounds = "; ".join(
        f"{side} {' '.join(f'{value:.2f}' for value in values)}" for side, values in found.items()
    )
    print(f"{name:9} {ref:8.2f} {head:8.2f} {head / ref:6.2f}  {what} ({rounds})", flush=True)
    return head / ref


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--wheel", type=Path, help="for slim and inspect")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if (load := os.getloadavg()[0]) > IDLE:
        print(f"the load is {load:.1f}: figures are noise while others work", file=sys.stderr)
    kept: dict[str, Found] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="stoker-compare-") as name:
        folder = Path(name)
        sides = [Side("ref", options.ref, folder), Side("head", "HEAD", folder)]
        work = Work(folder, options.rounds, options.wheel and options.wheel.resolve())
        print(f"{'row':9} {'ref':>8} {'head':>8} {'ratio':>6}  medians in seconds", flush=True)
        for row in options.only.split(","):
            if found := measure(row, sides, work):
                kept[row], ratios[row] = found, show(row, found)
    if options.json:
        options.json.write_text(json.dumps({"load": load, "rounds": kept}, indent=1) + "\n")
    if worse := [row for row, ratio in ratios.items() if ratio > WORSE]:
        sys.exit(f"slower than {options.ref}: {', '.join(worse)}")


if __name__ == "__main__":
    main()
