"""How fast `stoker inspect` reads official wheels, and the same next to NVIDIA's cuobjdump.

    python benchmarks/inspect_wheels.py WHEEL... [--cuobjdump PATH] [--json FILE]

Wheels come from the package index, for example:
    pip download --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
        --python-version 3.12 torch==2.9.1
and cuobjdump from its package nvidia-cuda-cuobjdump. For each wheel: seconds and peak memory of
the command on the whole wheel; then, on the largest library, unpacked to a temporary folder, the
seconds of reading its device code, of the whole command, and of `cuobjdump -lelf`, each the best of
several runs with the file in the page cache; and whether both list the same entries. CPU seconds
are included, because wall time is unreliable on a shared machine.
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
import zipfile
from pathlib import Path
from typing import Any

from stoker.model.artifact import DeviceKind
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import device_regions
from stoker.wheel.reader import open_file

STOKER = [sys.executable, "-m", "stoker"]
RUNS = 5
SLOW_RUNS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {
        "machine": machine(),
        "wheels": [measure(wheel, arguments.cuobjdump) for wheel in arguments.wheels],
    }
    text = json.dumps(results, indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    print(text)


def machine() -> dict[str, Any]:
    return {
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
    }


def measure(wheel: Path, cuobjdump: str | None) -> dict[str, Any]:
    seconds, cpu, memory, printed = run([*STOKER, "inspect", str(wheel), "--json"])
    facts = json.loads(printed)
    largest = max(facts["libraries"], key=lambda library: sum_of(library, "size_bytes"))
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract(largest["path"], folder))
        compared = compare(library, cuobjdump) if cuobjdump else None
    return {
        "wheel": wheel.name,
        "bytes": facts["size_bytes"],
        "unpacked": facts["wheel"]["unpacked_bytes"],
        "libraries": len(facts["libraries"]),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_memory_mb": memory,
        "device_code": {
            library["path"]: {
                f"{code['arch']}{'' if code['linked'] else ' (not linked)'}": code["size_bytes"]
                for code in library["device_code"]
            }
            for library in facts["libraries"]
            if library["device_code"]
        },
        "largest_library": compared,
    }


def sum_of(library: dict[str, Any], field: str) -> int:
    return sum(code[field] for code in library["device_code"])


def compare(library: Path, cuobjdump: str) -> dict[str, Any]:
    """Read the same library with stoker and with cuobjdump."""
    ours = entries(library)
    reading = min(timed(library) for _ in range(RUNS))
    command = [run([*STOKER, "inspect", str(library), "--json"]) for _ in range(RUNS)]
    theirs = [run([cuobjdump, "-lelf", str(library)]) for _ in range(SLOW_RUNS)]
    listed = re.findall(r"\.(sm_\w+)\.cubin", theirs[0][3])
    seconds, cpu = (min(run[field] for run in theirs) for field in (0, 1))
    our_seconds, our_cpu = (min(run[field] for run in command) for field in (0, 1))
    return {
        "library": library.name,
        "bytes": library.stat().st_size,
        "entries": len(ours),
        "same_entries_as_cuobjdump": [arch.rstrip("f") for arch in ours] == listed,
        "stoker_reading_seconds": reading,
        "stoker_command_seconds": our_seconds,
        "stoker_command_cpu_seconds": our_cpu,
        "cuobjdump_seconds": seconds,
        "cuobjdump_cpu_seconds": cpu,
        "cuobjdump_peak_memory_mb": theirs[0][2],
        "reading_times_faster": round(seconds / reading),
        "command_times_faster": round(seconds / our_seconds),
        "command_times_less_cpu": round(cpu / our_cpu),
    }


def entries(library: Path) -> list[str]:
    """Return the architectures of the executable cubins, in the order of the file."""
    with open_file(library) as reader:
        return [
            entry.arch
            for section, region in device_regions(Elf(reader))
            for entry in region.entries
            if section == ".nv_fatbin" and entry.kind is DeviceKind.CUBIN
        ]


def timed(library: Path) -> float:
    start = time.perf_counter()
    entries(library)
    return round(time.perf_counter() - start, 4)


def run(command: list[str]) -> tuple[float, float, int, str]:
    """Run a program; return seconds, CPU seconds, peak memory in MB, and its output."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        printed = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} ended with status {child.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    return round(seconds, 3), round(cpu, 3), usage.ru_maxrss // 1024, printed


if __name__ == "__main__":
    main()
