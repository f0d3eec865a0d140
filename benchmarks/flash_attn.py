"""Forward kernels of flash-attn under a memory limit: its own MAX_JOBS rule against adaptive.

    python benchmarks/flash_attn.py FOLDER OUT [--rows ample,warm,cold,rule] [--limit-mb 32768]

FOLDER is the unpacked sdist of flash-attn 2.8.3. Twelve kernels are compiled for sm_90, head
dimensions 32, 64 and 96. Rows, in the order given:

    ample   adaptive without a limit: the history that "warm" knows, and OUT/trace.json
    warm    adaptive under the limit, after "ample"
    cold    adaptive under the limit, without any history
    rule    ninja -j as flash-attn's setup.py would choose: half the CPUs, one job for each 9 GB

Needs root, a memory cgroup, nvcc and torch's headers. Each row is one build, minutes long; what was
measured is written to OUT/flash_attn.json after each row. `stoker simulate OUT/trace.json
--memory 32G --policy ...` predicts the result of other policies.
"""

import argparse
import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from governor import Group
from torch.utils.cpp_extension import include_paths

from stoker.machine.snapshot import read_machine
from stoker.model.units import size

FLAGS = """-std=c++17 -O3 -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
-U__CUDA_NO_HALF2_OPERATORS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ --expt-relaxed-constexpr
--expt-extended-lambda --use_fast_math -gencode arch=compute_90,code=sm_90"""
KERNELS = [
    f"flash_fwd_hdim{width}_{kind}{causal}_sm80.cu"
    for width in (32, 64, 96)
    for kind in ("bf16", "fp16")
    for causal in ("_causal", "")
]
GB = 10**9
STOKER = [sys.executable, "-m", "stoker"]
Row = dict[str, Any]


def write_build(source: Path, build: Path) -> None:
    """Write a build.ninja with the same commands for every row."""
    headers = [source / "flash_attn", source / "flash_attn/src", source / "cutlass/include"]
    headers += map(Path, include_paths())
    headers.append(Path(sysconfig.get_paths()["include"]))
    flags = " ".join([*FLAGS.split(), *(f"-I{folder}" for folder in headers)])
    lines = ["rule cuda", f"  command = nvcc {flags} -c $in -o $out"]
    lines += [f"build {name}.o: cuda {source / 'flash_attn/src' / name}" for name in KERNELS]
    build.mkdir(parents=True, exist_ok=True)
    (build / "build.ninja").write_text("\n".join(lines) + "\n")


class Bench:
    def __init__(self, build: Path, out: Path, limit: int):
        self.build, self.out, self.limit = build, out, limit
        self.machine = read_machine()
        self.group = Group(limit)

    def run(self, row: str) -> Row:
        for file in (*self.build.glob("*.o"), self.build / ".ninja_log"):
            file.unlink(missing_ok=True)
        self.group.set_limit(self.machine.memory.total if row == "ample" else self.limit)
        measured = self.rule() if row == "rule" else self.adaptive(row)
        if row == "ample":
            export = [*STOKER, "history", "1", "--export", str(self.out / "trace.json")]
            self.group.run(export, self.environment("warm"))
        return {"row": row, **measured}

    def rule(self) -> Row:
        jobs = max(1, min(self.machine.cpu.usable // 2, self.machine.memory.total // (9 * GB)))
        command = ["ninja", "-C", str(self.build), f"-j{jobs}", "-k0"]
        status, seconds, kills = self.group.run(command, dict(os.environ))
        return {"jobs": jobs, "status": status, "wall_s": seconds, "oom_kills": kills}

    def adaptive(self, row: str) -> Row:
        home = "cold" if row == "cold" else "warm"
        if row != "warm":
            shutil.rmtree(self.build / home, ignore_errors=True)
        summary = self.out / f"summary-{row}.json"
        command = [*STOKER, "run", "--progress", "json", "--summary", str(summary), "--"]
        command += ["ninja", "-C", str(self.build), "-k0"]
        script = f'exec "$@" 2> {self.out}/events-{row}.jsonl'
        status, _, kills = self.group.run(
            ["sh", "-c", script, "sh", *command], self.environment(home)
        )
        return {**json.loads(summary.read_text()), "status": status, "oom_kills": kills}

    def environment(self, home: str) -> dict[str, str]:
        return {**os.environ, "STOKER_HOME": str(self.build / home), "STOKER_CACHE": "none"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", default="ample,warm,cold,rule")
    parser.add_argument("--limit-mb", type=int, default=32 * 1024)
    arguments = parser.parse_args()
    build = arguments.folder.resolve() / "stoker-bench"
    write_build(arguments.folder.resolve() / "csrc", build)
    bench = Bench(build, arguments.out.resolve(), arguments.limit_mb << 20)
    machine, rows = bench.machine, []
    for row in arguments.rows.split(","):
        rows.append(bench.run(row))
        print(f"{row:6} {rows[-1]['wall_s']:7.1f} s  {rows[-1]}", flush=True)
        result = {
            "machine": {"cpu": machine.cpu.model, "memory": size(machine.memory.total)},
            "limit_mb": arguments.limit_mb,
            "rows": rows,
        }
        (arguments.out / "flash_attn.json").write_text(json.dumps(result, indent=1) + "\n")
    bench.group.drop()


if __name__ == "__main__":
    main()
