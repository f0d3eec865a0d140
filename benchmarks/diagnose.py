"""Seconds and memory of `stoker diagnose` on a log of 500 MB, and on one line of 50 MB.

    python benchmarks/diagnose.py [--megabytes N] [--json FILE]
    python benchmarks/diagnose.py --labelled [--errors FOLDER] [--set NAME] [--json FILE]

The log is that of a verbose build: commands, progress, warnings, names such as ErrorReport.cpp; one
step fails after three fifths of it, and the end only repeats that. The line is endless and full of
words that patterns begin with. The diagnosis of both must be correct. CPU seconds are included,
because wall time is unreliable on a shared machine.

The second form diagnoses logs whose cause is known, those of labelled.toml and of a folder with an
index.tsv (file, cause), and prints for each band of confidence how many of the first answers are
right. Of answers that say 90 %, at least 90 % must be. Unknown ones of which stoker rightly says
that no cause is in the excerpt are counted once more.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
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
LABELLED = Path(__file__).with_name("labelled.toml")
BANDS = (0.95, 0.9, 0.85, 0.75, 0.6, 0.0)  # the least confidence of each


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


# -- confidence ------------------------------------------------------------------------------------


def labelled(errors: Path | None, wanted: str | None) -> Iterator[tuple[str, bytes, list[str]]]:
    """Yield the name, the content and the possible causes of each log."""
    for log in tomllib.loads(LABELLED.read_text())["log"]:
        if wanted in (None, log["set"]):
            yield log["name"], log["text"].encode(), log["cause"]
    if errors:
        for row in (errors / "index.tsv").read_text().splitlines()[1:]:
            name, cause, *_ = row.split("\t")
            yield name, (errors / name).read_bytes(), [cause]


def calibration(errors: Path | None, wanted: str | None) -> dict[str, Any]:
    """Return how many first answers are right, in all and by their confidence."""
    from stoker.diagnose.sieve import read_log
    from stoker.diagnose.verdict import diagnose

    ends, bands = Counter[str](), {least: list[tuple[float, bool]]() for least in BANDS}
    missed = {}
    for name, content, causes in labelled(errors, wanted):
        diagnosis = diagnose(read_log(BytesIO(content)))
        findings, kind = diagnosis.findings, diagnosis.kind
        if not findings:
            ends["unknown"] += 1
            ends["of which without a cause"] += bool(kind and kind.cause in causes)
            missed[name] = "unknown"
            continue
        best = findings[0]
        right = best.cause in causes
        ends["right" if right else "wrong"] += 1
        if not right:
            missed[name] = best.cause
        band = next(least for least in BANDS if best.confidence >= least)
        bands[band].append((best.confidence, right))
    return {
        "logs": ends["right"] + ends["wrong"] + ends["unknown"],
        **ends,
        "missed": missed,
        "by confidence": [summary(least, answers) for least, answers in bands.items() if answers],
    }


def summary(least: float, answers: list[tuple[float, bool]]) -> dict[str, Any]:
    return {
        "from": least,
        "answers": len(answers),
        "says": round(sum(confidence for confidence, _ in answers) / len(answers), 3),
        "right": round(sum(right for _, right in answers) / len(answers), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--labelled", action="store_true")
    parser.add_argument("--errors", type=Path)
    parser.add_argument(
        "--set",
        choices=sorted({log["set"] for log in tomllib.loads(LABELLED.read_text())["log"]}),
    )
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.labelled:
        result = calibration(asked.errors, asked.set)
        print(json.dumps(result, indent=2))
        if asked.json:
            asked.json.write_text(json.dumps(result, indent=2) + "\n")
        return
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
