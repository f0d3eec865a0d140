"""Repacks torch's wheel with stoker's engine and with ``wheel unpack`` and ``pack``, alternating.

    python benchmarks/wheel_engine.py

Takes about five minutes, prints a table and writes results/wheel_engine.json. Every measurement is
a separate process, including its start and imports; each row is the median of its rounds.
``STOKER_TORCH_WHEEL`` names another wheel than the one that pip downloads.
"""

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from stoker.machine.system import read_machine
from stoker.model.value import size as in_words
from stoker.wheel.zip import Content, Edit, Wheel, open_wheel, rewrite

TORCH = "torch==2.13.0"
RESULTS = Path(__file__).parent / "results" / "wheel_engine.json"
ROUNDS = 3
SMALL, LARGE = "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so"
MEMORY_LIMIT, SIZE_LIMIT = 300 << 20, 1.04


def longer(wheel: Wheel, name: str) -> Content:
    """Stream a member with one more byte."""

    def chunks() -> Iterator[bytes]:
        yield from wheel.stream(name)
        yield b"\0"

    return Content(size=wheel.members[name].size + 1, chunks=chunks)


def everything(wheel: Wheel) -> Edit:
    record = f"{wheel.dist_info}/RECORD"
    return Edit(contents={name: wheel.content(name) for name in wheel.members if name != record})


def small(wheel: Wheel) -> Edit:
    return Edit(contents={SMALL: longer(wheel, SMALL)})


def small_and_checked(wheel: Wheel) -> Edit:
    """`wheel unpack` compares every hash with RECORD; so does this row."""
    if wrong := list(wheel.wrong_hashes()):
        raise SystemExit(f"the wheel is broken: {wrong}")
    return small(wheel)


def large(wheel: Wheel) -> Edit:
    return Edit(contents={LARGE: longer(wheel, LARGE)})


# The operations, and how many times faster than unpack and pack each must be.
ROWS: dict[str, tuple[Callable[[Wheel], Edit], float | None]] = {
    "libc10.so changed": (small, 15),
    "libc10.so changed, all hashes checked": (small_and_checked, None),
    "libtorch_cpu.so changed": (large, 5),
    "everything recompressed": (everything, 3),
}


def repack(row: str, source: Path, into: Path) -> None:
    """Repack the wheel in the child process."""
    with open_wheel(source) as wheel:
        rewrite(wheel, ROWS[row][0](wheel), into)


class Measured:
    """The resources that one process used."""

    def __init__(self, command: list[str | Path], **environment: str) -> None:
        start = time.perf_counter()
        child = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.perf_counter() - start
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss * 1024
        if child.returncode:
            raise SystemExit(f"{command[:4]} failed with status {child.returncode}")


def with_engine(row: str, source: Path, folder: Path) -> dict[str, object]:
    into = folder / "engine"
    shutil.rmtree(into, ignore_errors=True)
    cost = Measured([sys.executable, __file__, row, source, into])
    (target,) = into.iterdir()
    return {
        "seconds": cost.seconds,
        "cpu_seconds": cost.cpu_seconds,
        "peak_bytes": cost.peak_bytes,
        "wheel_bytes": target.stat().st_size,
        "sha256": digest(target),
    }


def digest(path: Path) -> str:
    """Return a digest, read in parts: a child's peak starts at the memory of its parent."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def with_wheel(source: Path, folder: Path, tools: Path) -> dict[str, object]:
    """Unpack, change a library and pack; one result for all rows: `pack` compresses all."""
    into = folder / "wheel"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    command = [sys.executable, "-m", "wheel"]
    unpack = Measured([*command, "unpack", "--dest", into, source], PYTHONPATH=str(tools))
    (tree,) = into.iterdir()
    with (tree / SMALL).open("ab") as library:
        library.write(b"\0")
    pack = Measured([*command, "pack", "--dest-dir", into, tree], PYTHONPATH=str(tools))
    (target,) = into.glob("*.whl")
    size = target.stat().st_size
    shutil.rmtree(into)
    return {
        "seconds": unpack.seconds + pack.seconds,
        "cpu_seconds": unpack.cpu_seconds + pack.cpu_seconds,
        "peak_bytes": max(unpack.peak_bytes, pack.peak_bytes),
        "wheel_bytes": size,
    }


def median(runs: list[dict[str, object]], field: str) -> float:
    return statistics.median(float(str(run[field])) for run in runs)


def summary(row: str, runs: list[dict[str, object]], rival: list[dict[str, object]]) -> dict:
    wanted = ROWS[row][1]
    times_faster = median(rival, "seconds") / median(runs, "seconds")
    ratio = median(runs, "wheel_bytes") / median(rival, "wheel_bytes")
    peak = max(int(str(run["peak_bytes"])) for run in runs)
    same = len({run["sha256"] for run in runs}) == 1
    fast = wanted is None or times_faster >= wanted
    return {
        "row": row,
        "seconds": median(runs, "seconds"),
        "times_faster": times_faster,
        "times_faster_wanted": wanted,
        "times_less_cpu": median(rival, "cpu_seconds") / median(runs, "cpu_seconds"),
        "peak_bytes": peak,
        "size_ratio": ratio,
        "same_bytes_every_run": same,
        "holds": fast and same and peak < MEMORY_LIMIT and ratio < SIZE_LIMIT,
        "runs": runs,
    }


def find_wheel(folder: Path) -> Path:
    if given := os.environ.get("STOKER_TORCH_WHEEL"):
        return Path(given)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", TORCH, "-d"]
    subprocess.run([*command, folder / "source"], check=True)
    (found,) = (folder / "source").glob("*.whl")
    return found


def find_tools(folder: Path) -> Path:
    """Return the other tool; install it for this run if it is missing."""
    tools = folder / "tools"
    if importlib.util.find_spec("wheel") is None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tools, "wheel"]
        subprocess.run(command, check=True)
        sys.path.append(str(tools))
    return tools


def described() -> dict[str, object]:
    machine = read_machine()
    return {
        "cpu": machine.cpu.model,
        "cores": machine.cpu.usable,
        "memory": in_words(machine.memory.total),
        "system": f"{machine.os.pretty}, {platform.machine()}",
        "python": platform.python_version(),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "zlib-ng": version("zlib-ng"),
        "wheel": version("wheel"),
    }


def compare(source: Path, folder: Path) -> dict[str, object]:
    tools = find_tools(folder)
    rival: list[dict[str, object]] = []
    runs: dict[str, list[dict[str, object]]] = {row: [] for row in ROWS}
    loads = []
    for _ in range(ROUNDS):
        loads.append(os.getloadavg()[0])
        rival.append(with_wheel(source, folder, tools))
        for row in ROWS:
            runs[row].append(with_engine(row, source, folder))
    with open_wheel(source) as wheel:
        unpacked = sum(member.size for member in wheel.members.values())
    return {
        "machine": described(),
        "load_before_each_round": loads,
        "wheel": {"name": source.name, "bytes": source.stat().st_size, "unpacked": unpacked},
        "wheel unpack and pack": {"seconds": median(rival, "seconds"), "runs": rival},
        "rows": [summary(row, runs[row], rival) for row in ROWS],
    }


def table(result: dict) -> str:
    rival = result["wheel unpack and pack"]["seconds"]
    lines = [f"{result['wheel']['name']}: unpacked and packed by wheel in {rival:.1f} s"]
    form = "{:<38} {:>7} {:>8} {:>7} {:>9} {:>7} {:>6}  {}"
    heads = ("", "seconds", "faster", "wanted", "peak", "size", "same", "holds")
    lines.append(form.format(*heads))
    lines += [
        form.format(
            row["row"],
            f"{row['seconds']:.2f}",
            f"{row['times_faster']:.1f}x",
            f"{row['times_faster_wanted']}x" if row["times_faster_wanted"] else "",
            in_words(row["peak_bytes"]),
            f"{100 * (row['size_ratio'] - 1):+.2f}%",
            "yes" if row["same_bytes_every_run"] else "NO",
            "yes" if row["holds"] else "NO",
        )
        for row in result["rows"]
    ]
    return "\n".join(lines)


def main() -> None:
    if len(sys.argv) == 4:
        repack(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory(prefix="wheel-engine-") as folder:
        result = compare(find_wheel(Path(folder)), Path(folder))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
