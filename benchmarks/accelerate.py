"""What the modes of gcc's garbage collector change: memory, CPU time, and the object.

    python benchmarks/accelerate.py [--compiler g++] [--functions 40,120] [--json FILE]
    python benchmarks/accelerate.py --simulate [--memory 8G,32G] [--cpus 16] [--json FILE]

The first form compiles generated C++ files in every mode and compares the objects. The second
replays the recorded build of PyTorch 2.6.0 with and without modes. It is simulated, with the
shipped factors of the modes, and assumes that no step has debug information.
"""

import argparse
import json
import lzma
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from stoker.govern.policies import Adaptive
from stoker.govern.simulate import scattered, simulate
from stoker.govern.trace import read_trace
from stoker.knowledge.compiler_modes import mode_options
from stoker.model.govern import Collector, Gc, Mode, Role, StepRecord
from stoker.model.units import byte_count

RESULTS = Path(__file__).parent / "results"
REFERENCE = RESULTS / "pytorch-2.6.0-x86_64-trace.json.xz"
SCATTER = 0.10
SEEDS = (1, 2, 3)
FLAGS = ("-O2", "-std=c++17", "-c")
NO_COLLECTION = ("--param=ggc-min-expand=10000", "--param=ggc-min-heapsize=8388608")
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
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--functions", default="40,120")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--memory", default="8G,32G")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.simulate:
        name, found = "accelerate-simulated", simulated(arguments.cpus, arguments.memory.split(","))
    else:
        counts = [int(count) for count in arguments.functions.split(",")]
        name, found = f"accelerate-{platform.machine()}", measured(arguments.compiler, counts)
    text = json.dumps(found, indent=2) + "\n"
    (arguments.json or RESULTS / f"{name}.json").write_text(text)
    print(text)


def measured(compiler: str, counts: Sequence[int]) -> dict[str, object]:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            source = Path(folder) / f"{count}.cc"
            headers = "".join(f"#include <{header}>\n" for header in HEADERS)
            source.write_text(headers + "".join(FUNCTION.format(n=n) for n in range(count)))
            rows += compiled(compiler, source)
    return {
        "benchmark": "accelerate: measured",
        "compiler": version.stdout.partition("\n")[0],
        "flags": FLAGS,
        "rows": rows,
    }


def compiled(compiler: str, source: Path) -> list[dict[str, object]]:
    """Compile the file in every mode, one after another."""
    modes = {mode.value: mode_options(mode) for mode in Mode} | {"no collection": NO_COLLECTION}
    rows: list[dict[str, object]] = []
    objects = []
    for name, options in modes.items():
        output = source.with_suffix(".o")
        began = time.monotonic()
        child = subprocess.Popen([compiler, *options, *FLAGS, source, "-o", output])
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        objects.append(output.read_bytes())
        rows.append(
            {
                "functions": int(source.stem),
                "mode": name,
                "status": child.returncode,
                "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
                "wall_s": round(time.monotonic() - began, 1),
                "peak_bytes": usage.ru_maxrss * 1024,
                "same_object": objects[-1] == objects[0],
            }
        )
        print(rows[-1], flush=True)
    return rows


def simulated(cpus: int, memories: Sequence[str]) -> dict[str, object]:
    trace = read_trace(lzma.decompress(REFERENCE.read_bytes()), str(REFERENCE))
    steps = tuple(map(as_gcc, trace.steps))
    rows = []
    for memory in filter(None, map(byte_count, memories)):
        walls = {}
        for gc in (Gc.OFF, Gc.AUTO):
            runs = [
                simulate(
                    scattered(steps, by=SCATTER, seed=seed),
                    Adaptive(),
                    cpus=cpus,
                    memory=memory,
                    history=steps,
                    gc=gc,
                )
                for seed in SEEDS
            ]
            walls[gc] = median(run.wall_seconds for run in runs)
            rows.append(
                {
                    "memory_bytes": memory,
                    "gc": gc.value,
                    "wall_s": round(walls[gc], 1),
                    "of_wall_without": round(walls[gc] / walls[Gc.OFF], 3),
                    "lean_steps": median(run.modes.get(Mode.LEAN, 0) for run in runs),
                    "preemptions": median(run.preemptions for run in runs),
                    "oom_kills": median(run.oom_kills for run in runs),
                    "failed": max(len(run.failed) for run in runs),
                }
            )
            print(rows[-1], flush=True)
    return {
        "benchmark": "accelerate: simulated, nothing was compiled",
        "trace": trace.what,
        "cpus": cpus,
        "draws": len(SEEDS),
        "rows": rows,
    }


def as_gcc(record: StepRecord) -> StepRecord:
    """Every compile of C and C++ can run in every mode."""
    if record.step.role not in (Role.C, Role.CXX):
        return record
    return replace(record, step=replace(record.step, collector=Collector.FREE))


if __name__ == "__main__":
    main()
