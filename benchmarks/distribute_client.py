"""Measures what a compile on another machine takes of the machine that builds, with a real distcc.

    python benchmarks/distribute_client.py --directory TREE FILE... -- g++ -O2 -I...

For each file: CPU seconds of a compile here, of the preprocessor alone, and of the distcc client
with its preprocessor; the largest memory of the client; the bytes that go over the network in both
directions, compressed by distcc (`,lzo`). The worker is a distccd on the loopback device. The
figures are CPU seconds, so that other processes do not count. `knowledge/distribution.toml` has the
medians, which `stoker simulate --distribute` uses.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

PORT = 36432
COMPRESSED = re.compile(r"compressed (\d+) bytes to (\d+) bytes")
RESULT = Path(__file__).parent / "results/distribute_client.json"


def main() -> None:
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path.cwd())
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args(sys.argv[1:split])
    command = sys.argv[split + 1 :] or ["g++", "-O2"]
    with tempfile.TemporaryDirectory() as folder, worker():
        rows = [
            measured(file, command, arguments.directory, Path(folder)) for file in arguments.files
        ]
    RESULT.write_text(json.dumps(result(command, rows), indent=2) + "\n")
    print(json.dumps(summary(rows), indent=2))


def worker() -> subprocess.Popen[bytes]:
    """Start a distccd that accepts this machine only; it ends with the ``with`` block."""
    words = ["distccd", "--daemon", "--no-detach", "--allow", "127.0.0.1", "--listen", "127.0.0.1"]
    words += [
        "--port",
        str(PORT),
        "--jobs",
        "2",
        "--nice",
        "0",
        "--log-stderr",
        "--log-level",
        "error",
    ]

    class Worker(subprocess.Popen[bytes]):
        def __exit__(self, *_: object) -> None:
            self.terminate()
            self.wait()

    started = Worker(words)
    time.sleep(1)
    return started


def measured(file: str, command: Sequence[str], directory: Path, folder: Path) -> dict[str, object]:
    compile_words = [*command, "-c", file]
    preprocessed = folder / "preprocessed.ii"
    here, _, _ = cost([*compile_words, "-o", str(folder / "here.o")], directory)
    before, _, _ = cost([*command, "-E", file, "-o", str(preprocessed)], directory)
    hosts = {
        "DISTCC_HOSTS": f"127.0.0.1:{PORT}/2,lzo",
        "DISTCC_FALLBACK": "0",
        "DISTCC_VERBOSE": "1",
        "DISTCC_IO_TIMEOUT": "3000",
    }
    client, memory, log = cost(
        ["distcc", *compile_words, "-o", str(folder / "there.o")],
        directory,
        {**hosts, "DISTCC_DIR": str(folder)},
    )
    sent = [int(found[2]) for found in COMPRESSED.finditer(log)]
    row: dict[str, object] = {
        "file": file,
        "compile_cpu_s": round(here, 2),
        "preprocess_cpu_s": round(before, 2),
        "client_cpu_s": round(client, 2),
        "client_peak_bytes": memory,
        "preprocessed_bytes": preprocessed.stat().st_size,
        "sent_bytes": sum(sent),
        "object_bytes": (folder / "there.o").stat().st_size,
    }
    print(json.dumps(row), flush=True)
    return row


def cost(
    words: Sequence[str], directory: Path, environment: dict[str, str] | None = None
) -> tuple[float, int, str]:
    """Return the CPU seconds of a command with its children, their largest memory, and its log."""
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(
            words, cwd=directory, env={**os.environ, **(environment or {})}, stderr=log
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read()
    if child.returncode:
        raise SystemExit(f"{' '.join(words)}\n{text[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text


def summary(rows: Sequence[dict[str, object]]) -> dict[str, float]:
    """Return the medians from which the simulator computes."""

    def middle(over: str, under: str) -> float:
        return round(median(float(str(row[over])) / float(str(row[under])) for row in rows), 4)

    return {
        "client_share": middle("client_cpu_s", "compile_cpu_s"),
        "sent_bytes_per_client_s": middle("sent_bytes", "client_cpu_s"),
        "object_bytes_per_compile_s": middle("object_bytes", "compile_cpu_s"),
        "client_peak_bytes": median(int(str(row["client_peak_bytes"])) for row in rows),
    }


def result(command: Sequence[str], rows: Sequence[dict[str, object]]) -> dict[str, object]:
    version = subprocess.run(["distcc", "--version"], capture_output=True, text=True, check=True)
    return {
        "benchmark": "distribute_client: a real distcc with a worker on the loopback device",
        "distcc": version.stdout.splitlines()[0],
        "machine": platform.machine(),
        "command": " ".join(command),
        "rows": rows,
        "medians": summary(rows),
    }


if __name__ == "__main__":
    main()
