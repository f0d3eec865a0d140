"""Builds one workload under a real memory limit with every policy in turn: `make bench`.

    python benchmarks/governor.py [--cuda] [--rounds 3] [--heavy 4] [--light 12] [--limit-mb 2600]

Each row is the median of its rounds: wall time, kills by the kernel, attempts repeated, peak of the
limit, ratios to the bounds and to the best hand-picked -j that lost no step, whether all objects
are those of an undisturbed build, and what `stoker simulate` said beforehand, from a build with
ample memory. Needs root and a memory cgroup. Results go to
results/governor-<workload>-<architecture>-<limit>.json.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from workload import generate, generate_cuda

from stoker.machine.system import read_machine
from stoker.model.value import size

RESULTS = Path(__file__).parent / "results"
BIN = Path(sys.executable).parent
GROUP = "stoker-bench"
TEMPORARY = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")  # nvcc names a symbol after it
Row = dict[str, Any]


class Witness:
    """Samples the own memory of all descendants of a process, by default every millisecond."""

    def __init__(self, root: int, every: float = 0.001):
        self._root = root
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak = 0

    def __enter__(self) -> "Witness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self.peak = max(self.peak, self._below(self._root))

    def _below(self, pid: int) -> int:
        total = 0
        with suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                total += self._below(int(child)) + _anonymous(int(child))
        return total


def _anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


class Group:
    """A memory cgroup of either version."""

    def __init__(self, limit: int, name: str = GROUP):
        first = Path("/sys/fs/cgroup/memory")
        version1 = first.is_dir()
        self.path = (first if version1 else Path("/sys/fs/cgroup")) / name
        if not version1:
            (self.path.parent / "cgroup.subtree_control").write_text("+memory")
        self.path.mkdir(exist_ok=True)
        names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
        if not version1:
            names = ("memory.max", "memory.peak", "memory.events")
        self._limit, self._peak, self._events = (self.path / name for name in names)
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        self._limit.write_text(str(limit))

    def kills(self) -> int:
        lines = (line.split() for line in self._events.read_text().splitlines())
        return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)

    def drop(self) -> None:
        time.sleep(0.2)
        self.path.rmdir()

    def run(self, command: list[str], env: dict[str, str]) -> tuple[int, float, int]:
        """Run a command inside; return its status, seconds and kills."""

        def enter() -> None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

        before, began = self.kills(), time.monotonic()
        done = subprocess.run(command, env=env, preexec_fn=enter, capture_output=True, check=False)
        return done.returncode, time.monotonic() - began, self.kills() - before


class Bench:
    def __init__(self, folder: Path, limit: int):
        self.folder, self.limit = folder, limit
        self.build = folder / "build"
        self.group = Group(limit)
        self.homes = {name: folder / name for name in ("cold", "warm", "others")}
        self.undisturbed: dict[str, str] = {}
        self.simulated: dict[str, float] = {}

    def environment(self, home: str) -> dict[str, str]:
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "STOKER_HOME": str(self.homes[home]),
            "STOKER_CACHE": "none",
        }

    def prepare(self) -> None:
        """Configure with the launcher; every row then builds the same folder."""
        source, build = self.folder / "source", self.build
        command = ["stoker", "run", "--progress", "quiet", "--"]
        command += ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja"]
        subprocess.run(command, env=self.environment("warm"), check=True, capture_output=True)

    def undisturb(self, ample: int, cpus: int) -> None:
        """Build with ample memory: the reference objects, the history for "warm", and the
        prediction of the simulator.
        """
        self.group.set_limit(ample)
        self.plain(1)
        self.undisturbed = self.objects()
        self.governed("adaptive", "warm")
        self.group.set_limit(self.limit)
        policies = ("adaptive", "levels", "two-phase")
        command = ["stoker", "simulate", self.last_run(), "--cpus", str(cpus)]
        command += ["--memory", str(self.limit), "--policy", ",".join(policies), "--json"]
        said = self.output(command)
        self.simulated = {row["policy"]: row["wall_s"] for row in said["results"]}

    def last_run(self) -> str:
        return str(self.output(["stoker", "history", "--json"])[0]["id"])

    def output(self, command: list[str]) -> Any:
        env = self.environment("warm")
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False)
        return json.loads(done.stdout)

    def objects(self) -> dict[str, str]:
        """Return the digest of each object, without the name of a temporary file."""
        return {
            str(path.relative_to(self.build)): hashlib.sha256(
                TEMPORARY.sub(b"", path.read_bytes())
            ).hexdigest()
            for path in sorted(self.build.rglob("*.o"))
        }

    def clean(self) -> None:
        ninja = ["ninja", "-C", str(self.build), "-t", "clean"]
        subprocess.run(ninja, env=self.environment("warm"), check=True, capture_output=True)

    def plain(self, jobs: int) -> Row:
        self.clean()
        command = ["ninja", "-C", str(self.build), f"-j{jobs}", "-k0"]
        status, seconds, kills = self.group.run(command, self.environment("warm"))
        same = self.objects() == self.undisturbed
        return {"status": status, "wall_s": seconds, "oom_kills": kills, "same objects": same}

    def governed(self, policy: str, home: str) -> Row:
        self.clean()
        if home == "cold":  # without the history of stoker and of ninja
            shutil.rmtree(self.homes[home] / "state", ignore_errors=True)
            (self.build / ".ninja_log").unlink(missing_ok=True)
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        command = ["stoker", "run", "--progress", "quiet", "--policy", policy]
        command += ["--summary", str(summary), "--", "ninja", "-C", str(self.build)]
        status, seconds, kills = self.group.run(command, self.environment(home))
        told = json.loads(summary.read_text()) if summary.exists() else {}
        measured = {"status": status, "wall_s": seconds, "oom_kills": kills}
        simulated = self.simulated.get(policy) if home != "cold" else None
        same = self.objects() == self.undisturbed
        return {**told, **measured, "same objects": same, "simulated_s": simulated}


def rows(bench: Bench, cpus: int) -> dict[str, Callable[[], Row]]:
    plain = {f"ninja -j{n}": (lambda n=n: bench.plain(n)) for n in range(1, cpus + 3)}
    governed = {
        "levels": lambda: bench.governed("levels", "others"),
        "two-phase": lambda: bench.governed("two-phase", "others"),
        "adaptive, cold": lambda: bench.governed("adaptive", "cold"),
        "adaptive, warm": lambda: bench.governed("adaptive", "warm"),
    }
    return {**plain, **governed}


def measure(bench: Bench, rounds: int, cpus: int, ample: int) -> dict[str, list[Row]]:
    kinds = rows(bench, cpus)
    bench.prepare()
    bench.undisturb(ample, cpus)
    measured: dict[str, list[Row]] = defaultdict(list)
    for number in range(rounds):
        for name, run in kinds.items():
            measured[name].append(run())
            row = measured[name][-1]
            print(f"{number + 1}/{rounds} {name:16} {row['wall_s']:7.1f} s", file=sys.stderr)
    return measured


def summarise(measured: dict[str, list[Row]]) -> list[Row]:
    whole = {name: all(row["status"] == 0 for row in runs) for name, runs in measured.items()}
    seconds = {n: statistics.median(r["wall_s"] for r in runs) for n, runs in measured.items()}
    swept = [seconds[name] for name in measured if name.startswith("ninja") and whole[name]]
    best = min(swept, default=None)
    warm = measured["adaptive, warm"]
    bound = statistics.median(row["lower_bound_s"] for row in warm if row.get("lower_bound_s"))
    return [
        {
            "row": name,
            "lost no step": whole[name],
            "wall_s": seconds[name],
            "oom_kills": [row["oom_kills"] for row in runs],
            "repeated": [row.get("retries", 0) for row in runs],
            "peak_share": max(
                (r.get("peak_bytes", 0) / r["limit_bytes"] for r in runs if r.get("limit_bytes")),
                default=None,
            ),
            "lower_bound_share": bound / seconds[name],
            "same objects": all(row["same objects"] for row in runs),
            "simulated_share": runs[0]["simulated_s"] / seconds[name]
            if runs[0].get("simulated_s")
            else None,
            "to_best_swept": seconds[name] / best if best and whole[name] else None,
            "governor_cpu_share": statistics.median(r["governor_cpu_s"] / r["cpu_s"] for r in runs)
            if all(r.get("cpu_s") for r in runs)
            else None,
        }
        for name, runs in measured.items()
    ]


def table(summary: list[Row]) -> str:
    head = (
        f"{'':16} {'wall':>8} {'whole':>6} {'kills':>10} {'repeated':>10} {'peak':>6} "
        f"{'lower':>6} {'to best':>8} {'same':>5} {'simulated':>9}"
    )
    return "\n".join([head, *map(_line, summary)])


def _line(row: Row) -> str:
    return (
        f"{row['row']:16} {row['wall_s']:7.1f}s {'yes' if row['lost no step'] else 'NO':>6} "
        f"{'/'.join(map(str, row['oom_kills'])):>10} {'/'.join(map(str, row['repeated'])):>10} "
        f"{_share(row['peak_share']):>6} {_share(row['lower_bound_share']):>6} "
        f"{_ratio(row['to_best_swept']):>8} "
        f"{'yes' if row['same objects'] else 'NO':>5} {_share(row['simulated_share']):>9}"
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cuda", action="store_true", help="kernels for nvcc instead of C++")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--heavy", type=int, default=4)
    parser.add_argument("--light", type=int, default=12)
    parser.add_argument("--limit-mb", type=int, default=2600)
    arguments = parser.parse_args()
    machine = read_machine()
    make = generate_cuda if arguments.cuda else generate
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        make(Path(folder) / "source", arguments.heavy, arguments.light, 1)
        bench = Bench(Path(folder), arguments.limit_mb << 20)
        try:
            measured = measure(
                bench, arguments.rounds, machine.cpu.usable, machine.memory.limit.limit
            )
        finally:
            bench.group.drop()
    summary = summarise(measured)
    print(table(summary))
    kind = "cuda" if arguments.cuda else "cxx"
    result = {
        "workload": vars(arguments),
        "machine": {
            "cpu": machine.cpu.model,
            "cpus": machine.cpu.usable,
            "memory": size(machine.memory.total),
            "system": f"{machine.os.pretty}, {platform.machine()}",
        },
        "rows": summary,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"governor-{kind}-{platform.machine()}-{arguments.limit_mb}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
