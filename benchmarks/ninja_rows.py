"""Builds the targets of one ninja folder in several ways, one after the other.

    python benchmarks/ninja_rows.py BUILD OUT --rows cold@32,ninja@32,two-phase@32,warm@32
    python benchmarks/ninja_rows.py BUILD OUT --rows warm@16,ninja:16 --targets FILE --home HOME

BUILD is a folder with a build.ninja, such as benchmarks/kernels.py writes. Rows, in the order
given, each with its memory limit in GiB after an @, or none:

    cold        stoker run, without any history
    warm        stoker run, with the history of the rows before it, or that of HOME
    two-phase   the same with the policy two-phase
    ninja       ninja with its own number of jobs, which is what PyTorch's setup.py uses
    ninja:N     ninja -jN

The targets in FILE, or all outputs, are deleted before each row. Needs root and a
memory cgroup. What was measured is written to OUT/rows.json after each row, and the trace of the
first governed row to OUT/trace.json: `stoker simulate` predicts other policies and limits from it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from governor import Group

from stoker.machine.system import read_machine
from stoker.model.value import size

GIB = 2**30
STOKER = [sys.executable, "-m", "stoker"]
ALL_AT_ONCE = "-j1000"  # stoker has its own number of jobs that wait
Row = dict[str, Any]


class Rows:
    def __init__(self, build: Path, out: Path, targets: list[str], home: Path):
        self._ninja = ["ninja", "-C", str(build), "-k0"]
        self._build, self._out, self._targets, self._home = build, out, targets, home
        self.total = read_machine().memory.total
        self._group = Group(self.total)

    def measure(self, text: str) -> Row:
        """Build the targets as one row says, such as ``ninja:16@32``."""
        row, _, gib = text.partition("@")
        kind, _, jobs = row.partition(":")
        self._group.set_limit(int(float(gib) * GIB) if gib else self.total)
        self._clean()
        if kind == "ninja":
            command = [*self._ninja, *([f"-j{jobs}"] if jobs else []), *self._targets]
            measured = self._plain(command)
        else:
            if kind == "cold":
                shutil.rmtree(self._home, ignore_errors=True)
            policy = "two-phase" if kind == "two-phase" else "adaptive"
            measured = self._governed(policy)
        return {"row": row, "limit_gib": float(gib) if gib else None, **measured}

    def _clean(self) -> None:
        for target in self._targets:  # ninja -t clean would also delete what they are made of
            (self._build / target).unlink(missing_ok=True)
        if not self._targets:
            clean = ["ninja", "-C", str(self._build), "-t", "clean"]
            subprocess.run(clean, check=True, stdout=subprocess.DEVNULL)

    def _plain(self, command: list[str]) -> Row:
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        status, seconds, kills = self._group.run(command, environment)
        return {"status": status, "wall_s": seconds, "oom_kills": kills}

    def _governed(self, policy: str) -> Row:
        summary = self._out / "summary.json"
        command = [*STOKER, "run", "--policy", policy, "--cache", "none", "--progress", "log"]
        command += ["--summary", str(summary), "--", *self._ninja, ALL_AT_ONCE, *self._targets]
        environment = {**os.environ, "STOKER_HOME": str(self._home)}
        status, _, kills = self._group.run(command, environment)
        measured = json.loads(summary.read_text())
        trace = self._out / "trace.json"
        if not trace.exists():
            export = [*STOKER, "history", str(measured["run"]), "--export", str(trace)]
            subprocess.run(export, check=True, env=environment, stdout=subprocess.DEVNULL)
        return {**measured, "status": status, "oom_kills": kills}

    def drop(self) -> None:
        self._group.drop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--targets", type=Path, help="a file with names of targets")
    parser.add_argument("--home", type=Path, help="STOKER_HOME with a history; default: in OUT")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    targets = arguments.targets.read_text().split() if arguments.targets else []
    home = (arguments.home or out / "home").resolve()
    rows = Rows(arguments.build.resolve(), out, targets, home)
    machine, measured = read_machine(), []
    for text in arguments.rows.split(","):
        measured.append(rows.measure(text))
        print(f"{text:14} {measured[-1]['wall_s']:7.1f} s  {measured[-1]}", flush=True)
        result = {
            "machine": {"cpu": machine.cpu.model, "memory": size(machine.memory.total)},
            "rows": measured,
        }
        (out / "rows.json").write_text(json.dumps(result, indent=1) + "\n")
    rows.drop()


if __name__ == "__main__":
    main()
