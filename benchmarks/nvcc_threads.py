"""Threads of nvcc: chosen by the governor for each step, against one number for the whole build.

    python benchmarks/nvcc_threads.py [--json FILE]
    python benchmarks/nvcc_threads.py --simulate [--cpus 16] [--memory 32G,128G] [--json FILE]

The first form compiles four generated kernels of different size for four GPU targets: once with
each fixed number of threads, then as the governor chooses. It compares the device code with
cuobjdump (PyPI: nvidia-cuda-cuobjdump), also of --split-compile. The second form simulates builds
of kernels on a larger machine; nothing is compiled.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import with_threads
from stoker.govern.policy.adaptive import Adaptive
from stoker.model.govern import Collector, CompileMode, Role, Step, StepRecord
from stoker.model.value import byte_count

RESULTS = Path(__file__).parent / "results"
TARGETS = ("80", "90", "100", "120")
GIB = 1024**3
Row = dict[str, Any]
KERNEL = """
template <int N, int S> __device__ float chain(float x, const float *w) {
    float a[N];
#pragma unroll
    for (int i = 0; i < N; i++) a[i] = w[i * S] * x;
#pragma unroll
    for (int r = 0; r < 5; r++)
#pragma unroll
        for (int i = 0; i < N; i++)
            a[i] = fmaf(a[(i + r) % N], w[(i * 7 + r) % (N * S)], __sinf(a[(i * 3 + S) % N]));
    float sum = 0;
    for (int i = 0; i < N; i++) sum += a[i];
    return sum;
}
template <int N, int S> __global__ void kernel(float *o, const float *w) {
    o[threadIdx.x] = chain<N, S>(o[threadIdx.x], w);
}
void all(float *o, const float *w) {
"""


def source(kernels: int) -> str:
    calls = (f"    kernel<64, {n + 1}><<<1, 32>>>(o, w);\n" for n in range(kernels))
    return KERNEL + "".join(calls) + "}\n"


# -- measured ------------------------------------------------------------------------------------


class Bench:
    def __init__(self, folder: Path, sizes: Sequence[int]):
        self.folder = folder
        self.names = [f"kernel{n}" for n in range(len(sizes))]
        for name, kernels in zip(self.names, sizes, strict=True):
            (folder / f"{name}.cu").write_text(source(kernels))

    def build(self, row: str, more: str = "", options: Sequence[str] = ()) -> Row:
        """Build all kernels with these options of nvcc, and return what was measured."""
        targets = " ".join(f"-gencode=arch=compute_{each},code=sm_{each}" for each in TARGETS)
        lines = ["rule cuda", f"  command = nvcc -O3 {targets} {more} -c $in -o $out"]
        lines += [f"build {name}.o: cuda {name}.cu" for name in self.names]
        (self.folder / "build.ninja").write_text("\n".join(lines) + "\n")
        for old in (*self.folder.glob("*.o"), self.folder / ".ninja_log"):
            old.unlink(missing_ok=True)
        summary = self.folder / "summary.json"
        command = [sys.executable, "-m", "stoker", "run", *options, "--summary", str(summary)]
        home = {"STOKER_HOME": str(self.folder / "home"), "STOKER_CACHE": "none"}
        subprocess.run(
            [*command, "--", "ninja"], cwd=self.folder, env={**os.environ, **home}, check=True
        )
        measured = json.loads(summary.read_text())
        names = ("wall_s", "cpu_s", "peak_bytes", "retries", "modes")
        return {"row": row, **{name: measured[name] for name in names}}

    def device_code(self, cuobjdump: str) -> dict[str, str]:
        return dict(self._cubins(cuobjdump))

    def _cubins(self, cuobjdump: str) -> Iterator[tuple[str, str]]:
        for name in self.names:
            with tempfile.TemporaryDirectory() as into:
                object_file = self.folder / f"{name}.o"
                extract = [cuobjdump, "-xelf", "all", str(object_file)]
                subprocess.run(extract, cwd=into, check=True, stdout=subprocess.DEVNULL)
                for cubin in Path(into).iterdir():
                    arch = cubin.name.split(".")[-2]
                    yield f"{name} {arch}", hashlib.sha256(cubin.read_bytes()).hexdigest()


def measure(cuobjdump: str, sizes: Sequence[int]) -> Row:
    rows: list[Row] = []
    codes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), sizes)
        cases = [
            ("1 thread", "--threads=1", []),
            ("2 threads", "--threads=2", []),
            ("4 threads", "--threads=4", []),
            ("one thread, measured for the next row", "", ["--nvcc-threads", "off"]),
            ("chosen by the governor", "", []),
            ("--split-compile=2", "--split-compile=2", []),
        ]
        for row, more, options in cases:
            rows.append(bench.build(row, more, options))
            codes[row] = bench.device_code(cuobjdump)
            same = codes[row] == codes["1 thread"]
            rows[-1]["same_device_code"] = same
            print(f"{row:40} {rows[-1]['wall_s']:7.1f} s  same device code: {same}", flush=True)
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
    return {
        "benchmark": "four generated kernels for four GPU targets",
        "kernels_of_each_file": list(sizes),
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "nvcc": nvcc.stdout.split("release ")[1].split(",")[0],
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }


# -- simulated -----------------------------------------------------------------------------------


def kernel(number: int, seconds: float, peak: int) -> StepRecord:
    name = f"kernel{number}"
    step = Step(
        key=name,
        role=Role.CUDA,
        source=f"src/{name}.cu",
        output=f"{name}.o",
        compiler="nvcc",
        archs=TARGETS,
        collector=Collector.FREE,
    )
    area = 0.7 * peak * seconds  # its mean is below its peak
    return StepRecord(step=step, wall_s=seconds, cpu_s=seconds, peak_bytes=peak, byte_seconds=area)


def compile_of(number: int) -> StepRecord:
    name = f"host{number}"
    step = Step(key=name, role=Role.CXX, source=f"src/{name}.cc", output=f"{name}.o")
    return StepRecord(step=step, wall_s=8.0, cpu_s=8.0, peak_bytes=GIB // 2, byte_seconds=3.2 * GIB)


BUILDS: dict[str, list[StepRecord]] = {
    "4 kernels of 400 s and 4 GiB": [kernel(n, 400, 4 * GIB) for n in range(4)],
    "4 kernels of 900, 500, 300 and 200 s": [
        kernel(n, seconds, 4 * GIB) for n, seconds in enumerate((900, 500, 300, 200))
    ],
    "4 kernels of 400 s, 80 C++ files of 8 s": [
        *(kernel(n, 400, 4 * GIB) for n in range(4)),
        *map(compile_of, range(80)),
    ],
    "40 kernels of 100 to 220 s and 3 GiB": [
        kernel(n, 100 + 20 * (n % 7), 3 * GIB) for n in range(40)
    ],
}


def fixed(steps: Sequence[StepRecord], threads: int) -> list[StepRecord]:
    """Return the steps of a build in which every nvcc has so many threads."""
    return [_fixed(each, threads) if each.step.archs else each for each in steps]


def _fixed(record: StepRecord, threads: int) -> StepRecord:
    wide = with_threads(record, threads)
    return replace(
        wide, mode=CompileMode.DEFAULT, step=replace(wide.step, collector=Collector.NONE)
    )


def simulated(cpus: int, memories: Sequence[int]) -> Row:
    rows = []
    for name, steps in BUILDS.items():
        for memory in memories:
            walls = {
                f"{threads} threads": _wall(fixed(steps, threads), cpus, memory)
                for threads in (1, 2, 4)
            }
            for history, known in (("warm", steps), ("cold", [])):
                walls[f"chosen, {history}"] = _wall(steps, cpus, memory, known)
            rows.append({"build": name, "memory_bytes": memory, "wall_s": walls})
            shown = ", ".join(f"{case}: {wall:.0f} s" for case, wall in walls.items())
            print(f"{name}, {memory / GIB:.0f} GiB: {shown}", flush=True)
    return {
        "benchmark": "simulated, nothing was compiled; threads scale as in compiler_modes.toml",
        "cpus": cpus,
        "rows": rows,
    }


def _wall(
    steps: Sequence[StepRecord], cpus: int, memory: int, known: Sequence[StepRecord] | None = None
) -> float:
    history = steps if known is None else known
    result = simulate(steps, Adaptive(), cpus=cpus, memory=memory, history=history)
    return round(result.wall_s, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--cpus", type=int, default=16)
    parser.add_argument("--memory", default="32G,128G")
    parser.add_argument("--kernels", default="12,6,4,2", help="in each of the four files")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "cuobjdump")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.simulate:
        memories = [memory for text in arguments.memory.split(",") if (memory := byte_count(text))]
        result, name = simulated(arguments.cpus, memories), "nvcc_threads-simulated.json"
    else:
        result = measure(arguments.cuobjdump, [int(n) for n in arguments.kernels.split(",")])
        name = f"nvcc_threads-{os.uname().machine}.json"
    (arguments.json or RESULTS / name).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
