"""The overhead of the launcher, and how closely its samples match the peak of a compile.

    python benchmarks/launcher.py [--launcher PATH] [--steps 2000] [--json FILE]

- trivial steps: `true` plain, behind a launcher without a governor, and governed by a Python
  process that permits everything: milliseconds of one, the median and the best of 20 batches
- sampling: CPU time and number of samples while a tree of four processes sleeps for five seconds
- a compile of about two seconds by g++, and one by nvcc if installed: CPU time of the launcher as a
  share of the compiler's; its peak compared with one sampled every millisecond
- waiting: memory of a launcher that waits for its permit

The load of the machine is recorded with the times. On a busy machine, run it as
`chrt -f 10 python benchmarks/launcher.py`, so that other processes do not disturb it.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from governor import Witness

from stoker.govern.client.native import LAUNCHER, installed

BATCHES = 20

# A separate process, so that it does not slow down the measurement. At each `done` it records the
# message, and the CPU time and the sleeps of the launcher so far.
GOVERNOR = """
import selectors, socket, struct, sys
from pathlib import Path
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(4096)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
launchers = {}
def process_behind(stream):
    return struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
def note(fields, pid, reports):
    used = Path(f"/proc/{pid}/schedstat").read_text().split()[0]
    status = Path(f"/proc/{pid}/status").read_text()
    naps = status.partition("voluntary_ctxt_switches:")[2].split()[0]
    with open(sys.argv[2], "a") as record:
        print(*fields[3:7], used, naps, reports, file=record)
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            selector.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        data = key.fileobj.recv(65536)
        if not data:
            selector.unregister(key.fileobj)
            key.fileobj.close()
        for line in data.splitlines():
            fields = line.decode().split("\\t")
            if fields[0] == "ask":
                launchers[key.fd] = [process_behind(key.fileobj), 0]
                if sys.argv[3] != "never":
                    key.fileobj.sendall(b"run\\t1\\n")
            elif fields[0] == "memory":
                launchers[key.fd][1] += 1
            elif fields[0] == "done":
                if sys.argv[3] == "note":
                    note(fields, *launchers[key.fd])
                if fields[1:3] != ["0", "0"]:
                    key.fileobj.sendall(b"release\\n")
"""

PROGRAM = """
#include <array>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
template <int N> struct Part {
  std::map<int, std::array<char, N>> ordered;
  std::unordered_map<std::string, std::array<int, N>> hashed;
  int use(int x) { ordered[x][0] = N; hashed["a"][0] = N; return ordered.size() + hashed.size(); }
};
template <int... I> int all(std::integer_sequence<int, I...>) {
  return (Part<I + 1>{}.use(I) + ...) + std::regex_match("a", std::regex("a+"));
}
int main() { return all(std::make_integer_sequence<int, 4>{}); }
"""

KERNEL = """
template <int N> __global__ void kernel(float *a) {
  float x = a[threadIdx.x];
#pragma unroll
  for (int i = 0; i < 8 * N; i++) x = x * a[i] + sinf(x) * expf(a[i + 1]);
  a[threadIdx.x] = x;
}
template __global__ void kernel<2>(float *);
template __global__ void kernel<4>(float *);
"""


class Done(NamedTuple):
    """What the governor recorded for one step."""

    wall_us: int
    cpu_us: int
    peak: int
    byte_seconds: int
    launcher_ns: int
    naps: int
    reports: int


class Governed:
    """The environment of a governed command, and the governor's record."""

    def __init__(self, folder: Path):
        self._record = folder / "record"
        self.arguments = [str(folder / "socket"), str(self._record)]
        self.environment = os.environ | {
            "STOKER_SOCKET": self.arguments[0],
            "STOKER_RUN": "1",
            "STOKER_SCRATCH": str(folder),
        }

    def last(self) -> Done:
        return Done(*map(int, self._record.read_text().splitlines()[-1].split()))


@contextmanager
def governed(way: str) -> Iterator[Governed]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        under = Governed(Path(name))
        command = [sys.executable, "-I", "-S", "-c", GOVERNOR, *under.arguments, way]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
            assert daemon.stdout
            daemon.stdout.readline()
            try:
                yield under
            finally:
                daemon.kill()


def one_step(command: Sequence[str], environment: dict[str, str], steps: int) -> dict[str, float]:
    """Return the milliseconds per step. A burst of other load affects only some batches."""
    times = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(steps // BATCHES):
            os.waitpid(os.posix_spawn(command[0], command, environment), 0)
        times.append(1e3 * (time.perf_counter() - began) / (steps // BATCHES))
    return {"median_ms": round(statistics.median(times), 3), "best_ms": round(min(times), 3)}


def trivial_steps(launcher: str, steps: int) -> dict[str, dict[str, float]]:
    true = shutil.which("true") or "/bin/true"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    with governed("permit") as under:
        return {
            "plain": one_step([true], plain, steps),
            "passed through": one_step([launcher, true], plain, steps),
            "governed": one_step([launcher, true], under.environment, steps),
        }


def failing(words: Sequence[str]) -> list[str]:
    """The command with status 1: its launcher waits for an answer, and can be looked at."""
    return ["sh", "-c", '"$@"; exit 1', "sh", *words]


def sampling(launcher: str) -> dict[str, float]:
    tree = "sleep 5 & sleep 5 & sleep 5 & wait; exit 1"
    with governed("note") as under:
        subprocess.run([launcher, "sh", "-c", tree], env=under.environment, check=False)
        many = under.last()
        subprocess.run([launcher, *failing(["true"])], env=under.environment, check=False)
        none = under.last()
    samples = many.naps - none.naps
    cost = (many.launcher_ns - none.launcher_ns) / samples / 1e3
    return {
        "processes": 4,
        "samples_in_5_s": samples,
        "cpu_us_per_sample": round(cost, 1),
        "percent_of_one_cpu": round((many.launcher_ns - none.launcher_ns) / 5e9 * 100, 3),
        "fixed_cpu_us": round(none.launcher_ns / 1e3),
    }


def compiles(launcher: str) -> dict[str, dict[str, float]]:
    results = {}
    with governed("note") as under, tempfile.TemporaryDirectory() as name:
        Path(name, "a.cc").write_text(PROGRAM)
        Path(name, "a.cu").write_text(KERNEL)
        for words in (["g++", "-O1", "-std=c++17", "-c", "a.cc"], ["nvcc", "-c", "a.cu"]):
            if not shutil.which(words[0]):
                continue
            command = [launcher, *failing(words)]
            alone = _compile(under, command, name)
            witnessed, truth = _witnessed_compile(under, command, name)
            results[words[0]] = {
                "seconds": round(alone.wall_us / 1e6, 2),
                "cpu_seconds": round(alone.cpu_us / 1e6, 2),
                "launcher_percent": round(100 * alone.launcher_ns / alone.cpu_us / 1e3, 3),
                "reports": alone.reports,
                "peak_mb": round(witnessed.peak / 1e6, 1),
                "witnessed_peak_mb": round(truth / 1e6, 1),
            }
    return results


def _compile(under: Governed, command: list[str], folder: str) -> Done:
    subprocess.run(command, env=under.environment, cwd=folder, check=False)
    return under.last()


def _witnessed_compile(under: Governed, command: list[str], folder: str) -> tuple[Done, int]:
    process = subprocess.Popen(command, env=under.environment, cwd=folder)
    with Witness(process.pid) as witness:
        process.wait()
    return under.last(), witness.peak


def waiting(launcher: str) -> dict[str, float]:
    with governed("never") as under:
        processes = [
            subprocess.Popen([launcher, "/bin/true"], env=under.environment) for _ in range(100)
        ]
        time.sleep(1)
        sizes = [_private_kib(process.pid) for process in processes]
        for process in processes:
            process.kill()
            process.wait()
    return {"private_kib": statistics.median(sizes)}


def _private_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def machine() -> dict[str, object]:
    return {
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
        "real_time_priority": os.sched_getscheduler(0) != os.SCHED_OTHER,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--launcher", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    launcher = str((arguments.launcher or installed(LAUNCHER)).resolve())
    results = {
        "machine": machine(),
        "trivial steps": trivial_steps(launcher, arguments.steps),
        "sampling": sampling(launcher),
        "compiles": compiles(launcher),
        "waiting": waiting(launcher),
    }
    text = json.dumps(results, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
