"""Slims official PyTorch wheels: size, time and memory, compared with `wheel unpack` and `pack`.

    python benchmarks/slim.py [WHEEL...]

Without arguments pip downloads the wheels of WHEELS. Takes some ten minutes and 10 GB of disk,
prints a table and writes results/slim.json. Every measurement is a separate process, alternating
with the other tool; each row is the median of its rounds.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "slim.json"
HERE = (
    Path(__file__).resolve().parent
)  # which has a module with the name of one in the standard library
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]

from stoker.machine.system import read_machine  # noqa: E402
from stoker.model.value import size as in_words  # noqa: E402

# The downloads, and the allowed share of their size and of the other tool's time for sm_90.
WHEELS = {"torch==2.9.1": 0.32, "torch==2.12.1": 0.48}
MOST_TIME, MOST_MEMORY = 0.25, 1 << 30
PLATFORM = ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.12")
ROUNDS = 2
TARGETS = (("sm90",), ("sm86",), ("rtx4090",), ("sm90", "--strip"))

Row = dict[str, Any]


def measured(command: list[str | Path], **environment: str) -> Row:
    """The resources that one process used."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command} failed with status {child.returncode}")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def slim(wheel: Path, folder: Path, words: tuple[str, ...]) -> Row:
    into = folder / "slim"
    shutil.rmtree(into, ignore_errors=True)
    command = [sys.executable, "-P", "-m", "stoker", "slim", wheel, "-o", into, "--for", *words]
    cost = measured(command)
    (made,) = into.glob("*.whl")
    return {**cost, "bytes": made.stat().st_size}


def unpack_and_pack(wheel: Path, folder: Path, tools: Path) -> Row:
    """Measure a repack with the usual tool, without changes in between."""
    into = folder / "wheel"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    command = [sys.executable, "-P", "-m", "wheel"]
    parts = [measured([*command, "unpack", "--dest", into, wheel], PYTHONPATH=str(tools))]
    (tree,) = into.iterdir()
    parts.append(measured([*command, "pack", "--dest-dir", into, tree], PYTHONPATH=str(tools)))
    shutil.rmtree(into)
    return {
        "seconds": sum(part["seconds"] for part in parts),
        "cpu_seconds": sum(part["cpu_seconds"] for part in parts),
        "peak_bytes": max(part["peak_bytes"] for part in parts),
    }


def median(rows: list[Row], field: str) -> float:
    return statistics.median(row[field] for row in rows)


def compare(wheel: Path, folder: Path, tools: Path, most_size: float | None) -> Row:
    rival: list[Row] = []
    runs: dict[str, list[Row]] = {" ".join(words): [] for words in TARGETS}
    loads = []
    for _ in range(ROUNDS):
        loads.append(os.getloadavg()[0])
        rival.append(unpack_and_pack(wheel, folder, tools))
        for words in TARGETS:
            runs[" ".join(words)].append(slim(wheel, folder, words))
    original = wheel.stat().st_size
    rows = [summary(name, made, rival, original, most_size) for name, made in runs.items()]
    return {
        "wheel": wheel.name,
        "bytes": original,
        "load_before_each_round": loads,
        "wheel unpack and pack": {"seconds": median(rival, "seconds"), "runs": rival},
        "rows": rows,
    }


def summary(
    name: str, runs: list[Row], rival: list[Row], original: int, most_size: float | None
) -> Row:
    share = median(runs, "bytes") / original
    of_time = median(runs, "seconds") / median(rival, "seconds")
    peak = max(run["peak_bytes"] for run in runs)
    small = name != "sm90" or most_size is None or share <= most_size
    return {
        "for": name,
        "bytes": int(median(runs, "bytes")),
        "share_of_size": share,
        "seconds": median(runs, "seconds"),
        "share_of_time": of_time,
        "peak_bytes": peak,
        "same_bytes_every_run": len({run["bytes"] for run in runs}) == 1,
        "holds": small and of_time <= MOST_TIME and peak < MOST_MEMORY,
        "runs": runs,
    }


def find_wheels(folder: Path) -> dict[Path, float | None]:
    if given := sys.argv[1:]:
        return {Path(word): wanted(Path(word).name) for word in given}
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    for number, what in enumerate(WHEELS):
        into = folder / str(number)
        subprocess.run([*command, "--only-binary=:all:", *PLATFORM, what, "-d", into], check=True)
    found = sorted(folder.glob("*/*.whl"))
    return {wheel: wanted(wheel.name) for wheel in found}


def wanted(name: str) -> float | None:
    """Return the allowed figures, which are known for the x86-64 wheels."""
    known = {what.replace("==", "-"): share for what, share in WHEELS.items()}
    return known.get("-".join(name.split("-")[:2])) if name.endswith("x86_64.whl") else None


def find_tools(folder: Path) -> Path:
    tools = folder / "tools"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, "wheel"]
    subprocess.run(command, check=True)
    return tools


def table(result: Row) -> str:
    form = "  {:<14} {:>9} {:>6} {:>9} {:>6} {:>9}  {}"
    lines = []
    for wheel in result["wheels"]:
        rival = wheel["wheel unpack and pack"]["seconds"]
        lines.append(f"{wheel['wheel']}, {in_words(wheel['bytes'])}: repacked in {rival:.0f} s")
        lines.append(form.format("--for", "size", "", "time", "", "memory", "holds"))
        lines += [
            form.format(
                row["for"],
                in_words(row["bytes"]),
                f"{100 * row['share_of_size']:.1f}%",
                f"{row['seconds']:.1f} s",
                f"{100 * row['share_of_time']:.0f}%",
                in_words(row["peak_bytes"]),
                "yes" if row["holds"] else "NO",
            )
            for row in wheel["rows"]
        ]
    return "\n".join(lines)


def main() -> None:
    machine = read_machine()
    result: Row = {
        "machine": {
            "cpu": machine.cpu.model,
            "cores": machine.cpu.usable,
            "memory": in_words(machine.memory.total),
            "system": f"{machine.os.pretty}, {platform.machine()}",
            "python": platform.python_version(),
        },
        "wheels": [],
    }
    with tempfile.TemporaryDirectory(prefix="slim-") as name:
        folder = Path(name)
        tools = find_tools(folder)
        for wheel, most_size in find_wheels(folder).items():
            result["wheels"].append(compare(wheel, folder, tools, most_size))
            RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
