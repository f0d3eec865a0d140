"""What the modes of gcc's garbage collector change: memory, CPU time, and the object.

    python benchmarks/accelerate.py [--compiler g++] [--flags=-O2] [--functions 40] [SOURCE...]
    python benchmarks/accelerate.py --build FOLDER [--heaviest 40] [--random 40] [--seed 16]
    python benchmarks/accelerate.py --history history.sqlite
    python benchmarks/accelerate.py --simulate [--memory 8G,32G] [--cpus 16] [--seeds 1,2,3]

The first form compiles a generated C++ file or the given ones in every mode and compares the
objects. All modes of a file run at the same time, or `--jobs` of them, so that other load affects
them alike. `--build` does so with steps of torch_cpu in a configured build folder of PyTorch 2.6.0:
those with the highest peaks in the recorded build, and random ones. It writes the result after
each step, and continues with the missing steps when it is called again.

`--history` compares the peaks of a real build of PyTorch 2.6.0, in which the governor has chosen
modes, with those of the recorded build, which had none. `--simulate` replays the recorded build
with and without modes. Nothing is compiled. Modes change a step as `--build` found; of steps that
it did not measure, the lean mode changes peaks above 1 GB as `--history` found, and other effects
are the shipped ones. `history` in the result says what the governor knows of the steps at the
start: nothing, what they take by default, or what they take by default and in the lean mode. It
assumes that no step has debug information.
"""

import argparse
import json
import lzma
import os
import platform
import random
import re
import resource
import shlex
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import chain, pairwise, product, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import in_mode, scattered
from stoker.govern.history.trace import read_trace
from stoker.govern.policy.adaptive import Adaptive
from stoker.knowledge.compiler_modes import mode_options, shipped_effects
from stoker.model.govern import Collector, CompileMode, ModeEffect, Role, StepRecord
from stoker.model.terms import Gc
from stoker.model.value import byte_count

RESULTS = Path(__file__).parent / "results"
REAL = RESULTS / "accelerate-pytorch.json"
IN_ALL_MODES = RESULTS / "accelerate-pytorch-modes-aarch64.json"
REFERENCE = RESULTS / "pytorch-2.6.0-x86_64-trace.json.xz"
SCATTER = 0.10
MODES = (CompileMode.DEFAULT, CompileMode.FAST, CompileMode.LEAN, CompileMode.LOW)
LONG = 100.0  # CPU seconds
SHORTEST = 2.0  # seconds; peaks of shorter steps are noise
SIZES = (0, 200_000_000, 1_000_000_000, 1 << 50)  # as the shipped effects are divided
HEADERS = ("algorithm", "functional", "map", "string", "vector")
FUNCTION = """
struct K{n} {{ int v; bool operator<(const K{n}& other) const {{ return v < other.v; }} }};
int f{n}(int n) {{
    std::map<K{n}, std::string> known;
    std::vector<K{n}> all;
    std::function<bool(const K{n}&, const K{n}&)> less = [n](const K{n}& a, const K{n}& b) {{
        return (a.v ^ n) < (b.v ^ n);
    }};
    for (int i = 0; i < n; i++) {{
        known[K{n}{{i}}] += std::to_string(i);
        all.push_back(K{n}{{n - i}});
    }}
    std::sort(all.begin(), all.end(), less);
    return static_cast<int>(known.size()) + all[0].v;
}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O2 -std=c++17")
    parser.add_argument("--functions", type=int, default=40)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--heaviest", type=int, default=40)
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=len(MODES))
    parser.add_argument("--history", type=Path)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--memory", default="8G,32G")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.simulate:
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        memories = arguments.memory.split(",")
        name = f"accelerate-simulated-{'-'.join(memories)}"
        found = simulated(arguments.cpus, memories, seeds)
    elif arguments.build:
        name = f"accelerate-pytorch-modes-{platform.machine()}"
        found = measured_build(arguments, arguments.json or RESULTS / f"{name}.json")
    elif arguments.history:
        name, found = REAL.stem, compared(arguments.history)
    else:
        name, found = f"accelerate-{platform.machine()}", measured(arguments)
    text = json.dumps(found, indent=1) + "\n"
    (arguments.json or RESULTS / f"{name}.json").write_text(text)
    print(text)


def measured(arguments: argparse.Namespace) -> dict[str, object]:
    command = [arguments.compiler, *shlex.split(arguments.flags), "-c"]
    with tempfile.TemporaryDirectory() as folder:
        sources = arguments.sources or [generated(Path(folder), arguments.functions)]
        rows = [
            {"source": source.name, "mode": mode.value} | row
            for source in sources
            for mode, row in compiled([*command, source], Path(folder), jobs=arguments.jobs).items()
        ]
    return {
        "benchmark": "accelerate: measured",
        "compiler": version_of(command[0]),
        "flags": [flag for flag in command[1:] if not flag.startswith("-I")],
        "rows": rows,
    }


def version_of(compiler: str) -> str:
    shown = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return shown.stdout.partition("\n")[0]


def generated(folder: Path, count: int) -> Path:
    source = folder / f"{count}-functions.cc"
    headers = "".join(f"#include <{header}>\n" for header in HEADERS)
    source.write_text(headers + "".join(FUNCTION.format(n=n) for n in range(count)))
    return source


def compiled(
    command: Sequence[object],
    folder: Path,
    *,
    jobs: int,
    order: Sequence[CompileMode] = MODES,
    cwd: str | None = None,
) -> dict[CompileMode, dict[str, object]]:
    """Compile in all modes, so many of them at once."""
    waiting, rows = list(order), {}
    children: dict[int, tuple[CompileMode, Path, float]] = {}
    while waiting or children:
        if waiting and len(children) < jobs:
            mode, began = waiting.pop(0), time.monotonic()
            output = folder / f"{mode.value}.o"
            words = map(str, [*command, *mode_options(mode), "-o", output])
            children[subprocess.Popen(list(words), cwd=cwd).pid] = mode, output, began
            continue
        pid, status, usage = os.wait4(-1, 0)
        mode, output, began = children.pop(pid)
        rows[mode] = figures(began, status, usage)
        rows[mode]["object"] = digest(output) if output.exists() else ""
        output.unlink(missing_ok=True)
        print({"mode": mode.value} | rows[mode], flush=True)
    default = rows[CompileMode.DEFAULT]["object"]
    return {mode: rows[mode] | {"same_object": rows[mode]["object"] == default} for mode in MODES}


def measured_build(arguments: argparse.Namespace, path: Path) -> dict[str, object]:
    """Compile steps of torch_cpu in all modes. Heavy and random steps alternate, so that a run that
    is cut off has measured as many of both.
    """
    listed = json.loads((arguments.build / "compile_commands.json").read_text())
    compiles = {
        entry["output"]: (entry["directory"], plain_words(entry["command"]))
        for entry in listed
        if "/torch_cpu.dir/" in entry.get("output", "")
    }
    trace = read_trace(lzma.decompress(REFERENCE.read_bytes()), str(REFERENCE))
    groups = chosen([record for record in trace.steps if record.step.output in compiles], arguments)
    found: dict[str, object] = {
        "benchmark": "accelerate: steps of torch_cpu in every mode",
        "compiler": version_of(next(iter(compiles.values()))[1][0]),
        "processor": platform.machine(),
        "seed": arguments.seed,
        "modes": {mode.value: mode_options(mode) for mode in MODES[1:]},
        "chosen": {group: len(records) for group, records in groups.items()},
    }
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    found |= result_of(rows)
    alternating = chain.from_iterable(
        zip_longest(*(product([group], records) for group, records in groups.items()))
    )
    for turn, (group, record) in enumerate(filter(None, alternating)):
        if any(row["source"] == record.step.source for row in rows):
            continue
        row = {"source": record.step.source, "group": group}
        print(row, flush=True)
        rows.append(row | in_all_modes(compiles[record.step.output], arguments.jobs, turn))
        found |= result_of(rows)
        path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def chosen(
    records: Sequence[StepRecord], arguments: argparse.Namespace
) -> dict[str, list[StepRecord]]:
    """Return the steps to measure, in random order; very long ones come last."""
    draw = random.Random(arguments.seed)
    by_peak = sorted(records, key=lambda record: -record.peak_bytes)
    heaviest = by_peak[: arguments.heaviest]
    others = [each for each in by_peak[arguments.heaviest :] if each.wall_s >= SHORTEST]
    draws = {
        "heaviest": draw.sample(heaviest, len(heaviest)),
        "random": draw.sample(others, min(arguments.random, len(others))),
    }
    return {
        group: sorted(steps, key=lambda each: each.cpu_s > LONG) for group, steps in draws.items()
    }


def plain_words(command: str) -> list[str]:
    """Return the words of a compile without the names of its output and dependency files."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        if word in ("-o", "-MF", "-MT", "-MQ"):
            next(words)
        elif word not in ("-MD", "-MMD"):
            kept.append(word)
    return kept


def in_all_modes(step: tuple[str, list[str]], jobs: int, turn: int) -> dict[str, object]:
    """Compile a step in all modes, beginning with another one at each turn."""
    first = turn % len(MODES)
    with tempfile.TemporaryDirectory() as folder:
        order = (*MODES[first:], *MODES[:first])
        made = compiled(step[1], Path(folder), jobs=jobs, order=order, cwd=step[0])
    return {mode.value: row for mode, row in made.items()}


def result_of(rows: Sequence[dict[str, Any]]) -> dict[str, object]:
    """Return the rows, and the median effect of each mode on files of similar size."""
    found = []
    for mode, (least, most) in product(MODES[1:], pairwise(SIZES)):
        alike = [row for row in rows if least <= row["default"]["peak_bytes"] < most]
        if alike:
            effects = [effect_of(row, mode) for row in alike]
            found.append(
                {
                    "mode": mode.value,
                    "from_bytes": least,
                    "files": len(alike),
                    "median_cpu": round(median(each.seconds for each in effects), 3),
                    "median_peak": round(median(each.memory for each in effects), 3),
                    "same_objects": sum(row[mode.value]["same_object"] for row in alike),
                }
            )
    return {
        "measured": Counter(row["group"] for row in rows),
        "summary": found,
        "rows": list(rows),
    }


def effect_of(row: dict[str, Any], mode: CompileMode) -> ModeEffect:
    """Return what a mode has changed of a measured file."""
    default, other = row["default"], row[mode.value]
    return ModeEffect(
        mode=mode,
        memory=other["peak_bytes"] / default["peak_bytes"],
        seconds=other["cpu_s"] / max(0.1, default["cpu_s"]),
    )


def figures(began: float, status: int, usage: resource.struct_rusage) -> dict[str, object]:
    return {
        "status": os.waitstatus_to_exitcode(status),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]


def compared(path: Path) -> dict[str, object]:
    """Return what the lean mode has saved in a build, by source."""
    trace = read_trace(lzma.decompress(REFERENCE.read_bytes()), str(REFERENCE))
    default = {record.step.source: record for record in trace.steps if record.wall_s >= SHORTEST}
    with closing(sqlite3.connect(path)) as database:
        attempts = database.execute(
            "SELECT source, mode, peak_bytes FROM attempt WHERE outcome = 'done' ORDER BY source"
        ).fetchall()
    known = [(source, mode, peak) for source, mode, peak in attempts if source in default]
    factors = {
        (source, mode): round(peak / default[source].peak_bytes, 3) for source, mode, peak in known
    }
    classes = []
    for mode, (least, most) in product((CompileMode.DEFAULT, CompileMode.LEAN), pairwise(SIZES)):
        found = [
            factor
            for (source, each), factor in factors.items()
            if each == mode and least <= default[source].peak_bytes < most
        ]
        row = {"mode": mode.value, "from_bytes": least, "steps": len(found)}
        classes.append(row | ({"median_peak": median(found)} if found else {}))
    return {
        "benchmark": "accelerate: peaks of a real build over those of the recorded one",
        "trace": trace.what,
        "classes": classes,
        "lean_peaks": {
            source: factor for (source, mode), factor in factors.items() if mode == CompileMode.LEAN
        },
    }


def simulated(cpus: int, memories: Sequence[str], seeds: Sequence[int]) -> dict[str, object]:
    trace = read_trace(lzma.decompress(REFERENCE.read_bytes()), str(REFERENCE))
    steps = tuple(map(as_gcc, trace.steps))
    effects = real_effects()
    gcc = [record for record in steps if record.step.collector is Collector.FREE]
    both = (*(in_mode(record, CompileMode.LEAN, effects) for record in gcc), *steps)
    histories = {"none": (), "default mode": steps, "default and lean mode": both}
    rows = []
    for memory, (known, history) in product(
        filter(None, map(byte_count, memories)), histories.items()
    ):
        walls = {}
        for gc in (Gc.OFF, Gc.AUTO):
            runs = [
                simulate(
                    scattered(steps, by=SCATTER, seed=seed),
                    Adaptive(),
                    cpus=cpus,
                    memory=memory,
                    history=history,
                    gc=gc,
                    effects=effects,
                )
                for seed in seeds
            ]
            walls[gc] = median(run.wall_s for run in runs)
            rows.append(
                {
                    "memory_bytes": memory,
                    "history": known,
                    "gc": gc.value,
                    "wall_s": round(walls[gc], 1),
                    "of_wall_without": round(walls[gc] / walls[Gc.OFF], 3),
                    "modes": {
                        mode: median(run.modes.get(mode, 0) for run in runs) for mode in MODES[1:]
                    },
                    "preemptions": median(run.preemptions for run in runs),
                    "oom_kills": median(run.oom_kills for run in runs),
                    "lost_cpu_s": round(median(run.lost_s for run in runs)),
                    "failed": max(len(run.failed) for run in runs),
                }
            )
            print(rows[-1], flush=True)
    return {
        "benchmark": "accelerate: simulated, nothing was compiled",
        "trace": trace.what,
        "cpus": cpus,
        "draws": len(seeds),
        "rows": rows,
    }


def real_effects() -> Callable[[StepRecord], tuple[ModeEffect, ...]]:
    """Return what tells the effects of modes on a step: those measured of the file, or of the same
    kernel for other processors, else the lean peak of the real build and the shipped effects.
    The real build had a lower ggc-min-heapsize in the lean mode, which matters for small steps.
    """
    rows = {kernel_of(row["source"]): row for row in json.loads(IN_ALL_MODES.read_text())["rows"]}
    lean = json.loads(REAL.read_text())["lean_peaks"]

    def effects(record: StepRecord) -> tuple[ModeEffect, ...]:
        if row := rows.get(kernel_of(record.step.source)):
            return tuple(effect_of(row, mode) for mode in MODES[1:])
        return tuple(
            replace(each, memory=lean.get(record.step.source, each.memory))
            if each.mode is CompileMode.LEAN and record.peak_bytes >= SIZES[-2]
            else each
            for each in shipped_effects(record.peak_bytes)
        )

    return effects


def kernel_of(source: str) -> str:
    return re.sub(r"\.(DEFAULT|AVX2|AVX512)\.cpp$", "", source)


def as_gcc(record: StepRecord) -> StepRecord:
    """Every compile of C and C++ can run in every mode."""
    if record.step.role not in (Role.C, Role.CXX):
        return record
    return replace(record, step=replace(record.step, collector=Collector.FREE))


if __name__ == "__main__":
    main()
