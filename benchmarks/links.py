"""Links of a large library, and the cycle of a change in one file, with each installed linker.

    python benchmarks/links.py [--units 12] [--rounds 5] [--work DIR] [--json FILE]
    python benchmarks/links.py --table

Generates C++ sources full of templates, compiles them with debug information, and links one shared
library of more than 100 MB. Every linker links the same objects in interleaved rounds, and the file
is compared with that of the default linker, as `stoker tune` does. Then a small source changes, and
`stoker run --linker NAME -- ninja` compiles and links. Results with a description of the machine go
to results/links-ARCHITECTURE.json.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from stoker.accelerate.linkage import differences, read_linkage
from stoker.accelerate.linkers import linker_version
from stoker.knowledge.compiler_modes import linker_programs, mode_options
from stoker.model.govern import CompileMode

RESULTS = Path(__file__).parent / "results"
STOKER = str(Path(sys.executable).with_name("stoker"))
LIBRARY = "liblarge.so"
FLAGS = "-std=c++17 -O0 -g -fPIC"
LINK = ["g++", "-shared", "-Wl,-soname,liblarge.so.1", "-Wl,-rpath,$ORIGIN"]
INSTANCES = 24
HEADERS = ("array", "functional", "map", "string", "unordered_map", "vector", "algorithm")
UNIT = """
namespace unit00 {
template <int N> struct Item {
    std::array<long, N> values;
    bool operator<(const Item& other) const { return values < other.values; }
};
template <int N> struct Table {
    std::map<std::string, Item<N>> ordered;
    std::unordered_map<std::string, std::vector<Item<N>>> hashed;
    std::vector<std::function<long(const Item<N>&)>> callbacks;
    long run(const std::string& key, int value) {
        ordered[key].values.fill(value);
        hashed[key].emplace_back();
        callbacks.push_back([value](const Item<N>& item) { return item.values[0] + value; });
        std::sort(hashed[key].begin(), hashed[key].end());
        long sum = 0;
        for (auto& call : callbacks) sum += call(ordered[key]);
        return sum;
    }
};
long entry(const std::string& key) {
    long sum = 0;
CALLS
    return sum;
}
}
"""
NINJA = """
rule compile
  command = g++ {flags} -MD -MF $out.d -c $in -o $out
  deps = gcc
  depfile = $out.d
rule link
  command = {link} -o $out $in
"""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--units", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="keep the objects here and use them again")
    parser.add_argument("--json", type=Path, default=RESULTS / f"links-{platform.machine()}.json")
    parser.add_argument("--table", action="store_true", help="only print the stored result")
    wanted = parser.parse_args()
    if wanted.table:
        print("\n".join(table(json.loads((RESULTS / "links-aarch64.json").read_text()))))
        return
    with tempfile.TemporaryDirectory(dir=wanted.work and wanted.work.parent) as temporary:
        folder = wanted.work or Path(temporary, "build")
        found = measured(folder, wanted.units, wanted.rounds)
    text = json.dumps(found, indent=1) + "\n"
    wanted.json.write_text(text)
    print(text)


def measured(folder: Path, units: int, rounds: int) -> Row:
    generate(folder, units)
    subprocess.run([STOKER, "run", "--cache", "none", "--", "ninja", "-C", folder], check=True)
    linkers = [mode for mode, program in linker_programs().items() if shutil.which(program)]
    modes = [CompileMode.DEFAULT, *linkers]
    links: dict[CompileMode, list[Row]] = {mode: [] for mode in modes}
    cycles: dict[CompileMode, list[float]] = {mode: [] for mode in modes}
    for number in range(rounds):
        for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
            if not any("problem" in row for row in links[mode]):
                links[mode].append(linked(folder, units, mode))
                print(mode.value, links[mode][-1], flush=True)
    for number in range(rounds):
        for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
            cycles[mode].append(cycle(folder, mode))
            print(mode.value, "cycle", cycles[mode][-1], flush=True)
    return {
        "benchmark": "links",
        "machine": machine(modes),
        "library_bytes": (folder / output_of(CompileMode.DEFAULT)).stat().st_size,
        "objects": units,
        "rounds": rounds,
        "rows": [row_of(folder, mode, links, cycles) for mode in modes],
    }


def table(found: Row) -> Iterator[str]:
    """Yield the lines of the table that the documentation shows."""
    machine = found["machine"]
    cpus = f"{machine['cpus']} CPUs ({machine['cpu']}), load {machine['load_average'][0]:.0f}"
    large = f"library of {found['library_bytes'] / 1e6:.0f} MB, {cpus}"
    yield f"| {large} | link | CPU time | change of one file |"
    yield "|---|---|---|---|"
    for row in found["rows"]:
        name = machine["linkers"][row["linker"]].partition(" (compatible")[0]
        cycle = f"{row['cycle_s']:.0f} s"
        if "problem" in row:
            yield f"| {name} | fails, repeated by default | | {cycle} |"
        else:
            yield f"| {name} | {row['wall_s']:.0f} s | {row['cpu_s']:.1f} s | {cycle} |"


def row_of(
    folder: Path,
    mode: CompileMode,
    links: dict[CompileMode, list[Row]],
    cycles: dict[CompileMode, list[float]],
) -> Row:
    row: Row = {"linker": mode.value}
    if problem := links[mode][-1].get("problem"):  # `stoker run` repeats it with the default linker
        return row | {"problem": problem} | cycle_row(cycles[mode])
    before = read_linkage(folder / output_of(CompileMode.DEFAULT))
    walls = [row["wall_s"] for row in links[mode]]
    usual = median(row["wall_s"] for row in links[CompileMode.DEFAULT])
    row |= {
        "wall_s": round(median(walls), 3),
        "wall_range_s": [round(min(walls), 3), round(max(walls), 3)],
        "of_default": round(median(walls) / usual, 3),
        "cpu_s": round(median(row["cpu_s"] for row in links[mode]), 3),
        "peak_bytes": max(row["peak_bytes"] for row in links[mode]),
        "differences": differences(before, read_linkage(folder / output_of(mode))),
    }
    return row | cycle_row(cycles[mode])


def cycle_row(seconds: list[float]) -> Row:
    return {
        "cycle_s": round(median(seconds), 2),
        "cycle_range_s": [round(min(seconds), 2), round(max(seconds), 2)],
    }


def machine(modes: list[CompileMode]) -> Row:
    version = subprocess.run(["ld", "--version"], capture_output=True, text=True, check=True)
    listed = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    names = [line.partition(":")[2].strip() for line in listed.splitlines() if "Model name" in line]
    return {
        "architecture": platform.machine(),
        "cpu": names[0] if names else "unknown",
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "linkers": {
            mode.value: linker_version(mode)
            if mode.is_linker
            else version.stdout.partition("\n")[0]
            for mode in modes
        },
    }


def generate(folder: Path, units: int) -> None:
    """Write sources and objects. One unit is compiled; the assembly of the others is the same with
    other names, which is much faster.
    """
    folder.mkdir(parents=True, exist_ok=True)
    link = " ".join(LINK).replace("$", "\\$$")
    lines = [NINJA.format(flags=FLAGS, link=link), "build small.o: compile small.cc"]
    lines.append(f"build {LIBRARY}: link {' '.join(objects(units))}\n")
    write(folder / "build.ninja", "\n".join(lines))
    write(folder / "small.cc", "int small() { return 1; }\n")
    calls = "".join(f"    sum += Table<{n}>().run(key, {n});\n" for n in range(1, INSTANCES + 1))
    headers = "".join(f"#include <{header}>\n" for header in HEADERS)
    write(folder / "unit00.cc", headers + UNIT.replace("CALLS", calls))
    missing = [name for name in objects(units)[1:] if not (folder / name).exists()]
    if missing:
        compile_unit = ["g++", *FLAGS.split(), "-S", "-o", "-", "unit00.cc"]
        text = subprocess.run(compile_unit, cwd=folder, stdout=subprocess.PIPE, check=True).stdout
        for name in missing:
            renamed = text.replace(b"unit00", name.removesuffix(".o").encode())
            subprocess.run(["as", "-o", name], input=renamed, cwd=folder, check=True)


def write(path: Path, text: str) -> None:
    """Write a file only if it changes, so that ninja compiles nothing again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def objects(units: int) -> list[str]:
    return ["small.o", *(f"unit{number:02}.o" for number in range(units))]


def output_of(mode: CompileMode) -> str:
    return f"{mode.value}-{LIBRARY}"


def linked(folder: Path, units: int, mode: CompileMode) -> Row:
    output = output_of(mode)
    (folder / output).unlink(missing_ok=True)
    began = time.monotonic()
    words = [LINK[0], *mode_options(mode), *LINK[1:], "-o", output, *objects(units)]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(words, cwd=folder, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            return {"problem": said.readline().decode().strip()}
    return {
        "wall_s": time.monotonic() - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def cycle(folder: Path, mode: CompileMode) -> float:
    """Change one small file, and build with the linker."""
    (folder / "small.cc").touch()
    name = mode.value
    began = time.monotonic()
    run = [STOKER, "run", "--progress", "quiet", "--cache", "none", "--linker", name, "--"]
    subprocess.run([*run, "ninja", "-C", folder], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
