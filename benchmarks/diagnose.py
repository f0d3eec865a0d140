"""Seconds and memory of `stoker diagnose` on a log of 500 MB, and on one line of 50 MB.

    python benchmarks/diagnose.py [--megabytes N] [--json FILE]

The log is that of a verbose build: commands, progress, warnings, names such as ErrorReport.cpp; one
step fails after three fifths of it, and the end only repeats that. The line is endless and full of
words that patterns begin with. The diagnosis of both must be correct. CPU seconds are included,
because wall time is unreliable on a shared machine.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FAILED = """FAILED: caffe2/x.cu.o
/usr/local/cuda/bin/nvcc -DTORCH_API -gencode arch=compute_30,code=sm_30 -c x.cu -o caffe2/x.cu.o
nvcc fatal   : Unsupported gpu architecture 'compute_30'
"""
STOPPED = "ninja: build stopped: subcommand failed.\n"
COMMAND = (
    "/usr/bin/c++ -DAT_PER_OPERATOR_HEADERS -DBUILD_ONEDNN_GRAPH -D_FILE_OFFSET_BITS=64 -isystem "
    "/opt/conda/include -fvisibility-inlines-hidden -Wall -Wno-error=pedantic -Wno-error"
)
MEGABYTE = 10**6


def build_output(chance: random.Random) -> Iterator[str]:
    """Yield the output of an endless build, step by step."""
    folders = ("native", "core", "autograd", "jit", "cuda", "ErrorReport", "fatal_signal")
    number = 0
    while True:
        number += 1
        name = f"{chance.choice(folders)}/{chance.choice('ABCDEFGH')}{chance.randrange(3000)}.cpp"
        text = f"[{number % 6896}/6896] Building CXX object caffe2/torch_cpu.dir/{name}.o\n"
        if number % 3 == 0:
            text += f"{COMMAND} -o {name}.o -c {name}\n"
        if number % 2 == 0:
            text += (
                f"/src/aten/{name}:{number % 999}:5: warning: unused variable 'error' [-Wunused]\n"
                f"  {number % 999} |   auto error = what();\n      |        ^~~~~\n"
                "In file included from /src/c10/util/Exception.h:5,\n"
            )
        yield text


def write_log(path: Path, size: int) -> None:
    written, failed = 0, False
    with path.open("w") as stream:
        for text in build_output(random.Random(1)):
            if written > size * 0.6 and not failed:
                text += FAILED
                failed = True
            written += stream.write(text)
            if written > size:
                break
        stream.write(STOPPED)


def write_line(path: Path, size: int) -> None:
    words = "error: CMake Error at nvcc fatal : undefined symbol: No module named ' ../lib/x.so "
    with path.open("w") as stream:
        stream.write(FAILED)
        stream.writelines(words for _ in range(size // len(words)))
        stream.write("\n" + STOPPED)


def measured(log: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "stoker", "diagnose", "--json", str(log)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        streams = [(os.POSIX_SPAWN_DUP2, output.fileno(), 1)]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=streams)
        _, status, usage = os.wait4(child, 0)
        output.seek(0)
        found = json.load(output)
    return {
        "log": log.name,
        "megabytes": round(log.stat().st_size / MEGABYTE),
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "memory_megabytes": round(usage.ru_maxrss * 1024 / MEGABYTE),
        "status": os.waitstatus_to_exitcode(status),
        "causes": [finding["cause"] for finding in found["findings"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, line = Path(folder) / "build.log", Path(folder) / "line.log"
        write_log(log, asked.megabytes * MEGABYTE)
        write_line(line, 50 * MEGABYTE)
        results = [measured(log), measured(line)]
    for result in results:
        print(*(f"{name} {value}" for name, value in result.items()), sep=", ")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
