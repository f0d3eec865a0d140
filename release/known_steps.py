"""Write knowledge/known_steps.toml from the traces of whole builds: known_steps.py.

The oldest release comes first, and a newer one adds the sources that no older one has: the stored
scenarios of the governor build the older ones, and the figures of another release cost a first
build of 1/16 of PyTorch 2.6 with 2 GiB 15 %, simulated. What a table for each release would gain
is not measured. The package flash-attn has the same kernels as PyTorch under the same names, but
compiles them with more features: they have rows under their names alone.
"""

import json
import lzma
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from stoker.knowledge.compiler_modes import nvcc_rounds
from stoker.model.govern import Step

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "src/stoker/knowledge/known_steps.toml"
RESULTS = "benchmarks/results"
LEAST = 300  # MiB: what is learned from similar steps suffices below
MIB = 2**20
HEAD = f"""\
# What sources of well-known projects took, so that a first build of them already knows its large
# steps. Sources below {LEAST} MiB are left out: what is learned from similar steps suffices. The
# governor learns within a build by which factor its own compiler, flags and CPU differ, so these
# figures matter relative to each other. release/known_steps.py writes this file.
"""
ATTENTION = "pytorch-2.12.1-attention-trace.json.xz"
# Seconds of a kernel in the package flash-attn over those of PyTorch's copy.
LONGER = 1.5
COLUMNS = "# Path within the project, peak in MiB, CPU seconds; of CUDA sources for one GPU target."


PACKAGE = (
    f"PyTorch's copy of these kernels, which takes less time: {LONGER} times the seconds of "
    f"{RESULTS}/{ATTENTION}"
)


class Measured(NamedTuple):
    name: str
    basis: str
    trace: str


TRACES = (
    Measured(
        "PyTorch",
        "PyTorch 2.6.0 (CPU, Debian's tree), gcc 14, x86-64, built by stoker",
        "pytorch-2.6.0-x86_64-trace.json.xz",
    ),
    Measured(
        "PyTorch's CUDA kernels",
        "a quarter of PyTorch 2.6.0's CUDA sources for sm_90, nvcc 13.0 and gcc 14, x86-64, "
        "governed by stoker",
        "pytorch-2.6.0-cuda-trace.json.xz",
    ),
    Measured(
        "PyTorch 2.12 with CUDA",
        "what PyTorch 2.6.0 does not have of 2.12.1 (Debian's tree) with CUDA 13.0 for sm_90, "
        "gcc 14, x86-64, built by stoker",
        "pytorch-2.12.1-cuda-trace.json.xz",
    ),
    Measured(
        "PyTorch 2.12's attention kernels",
        "kernels of FlashAttention and memory-efficient attention in 2.12.1 that have no row "
        "elsewhere, CUDA 13.0 for sm_90, gcc 14, x86-64, governed by stoker",
        ATTENTION,
    ),
)


def main() -> None:
    seen: set[str] = set()
    parts = [HEAD]
    for measured in TRACES:
        found = rows_of(measured.trace)
        found = {path: row for path, row in found.items() if path not in seen}
        seen |= set(found)
        rows = {path: row for path, row in found.items() if row[0] >= LEAST}
        basis = f"{measured.basis}: {RESULTS}/{measured.trace}"
        parts.append(table(measured.name, basis, COLUMNS, rows_text(rows)))
    parts.append(table("FlashAttention-2", PACKAGE, COLUMNS, rows_text(kernels())))
    TABLE.write_text("\n".join(parts))


def kernels() -> dict[str, tuple[int, int]]:
    """Return the kernels of the package flash-attn by their names."""
    found = {PurePosixPath(path).name: row for path, row in rows_of(ATTENTION).items()}
    return {
        name: (peak, round(LONGER * seconds))
        for name, (peak, seconds) in found.items()
        if name.startswith("flash_")
    }


def rows_of(trace: str) -> dict[str, tuple[int, int]]:
    """Return the peak in MiB and the CPU seconds of each source of a trace, for one GPU target."""
    with lzma.open(ROOT / RESULTS / trace, "rt") as file:
        steps = json.load(file)["steps"]
    rows = {}
    for step in steps:
        peak, path = round(step["peak_bytes"] / MIB), within(step.get("source", ""))
        if step.get("role", "").startswith("compile") and path:
            targets = nvcc_rounds(msgspec.convert(step, Step, strict=False))
            rows[path] = (peak, max(1, round(step["cpu_s"] / targets)))
    return rows


def within(source: str) -> str:
    """Return the path within the project, without CMake's folder of generated files."""
    parts = PurePosixPath(source).parts
    tops = ("functorch", "aten", "torch", "c10", "caffe2", "third_party")
    start = next((index for index, part in enumerate(parts) if part in tops), None)
    return "" if start is None else "/".join(parts[start:])


def rows_text(rows: dict[str, tuple[int, int]]) -> str:
    return "".join(f"{path} {peak} {seconds}\n" for path, (peak, seconds) in sorted(rows.items()))


def table(name: str, basis: str, lines: str, steps: str) -> str:
    head = f"[[project]]\nname = {json.dumps(name)}\nbasis = {json.dumps(basis)}\n{lines}\n"
    return f"{head}steps = '''\n{steps}'''\n"


if __name__ == "__main__":
    main()
