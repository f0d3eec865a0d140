"""The machines of farm.py: a generated project, jobs in namespaces of their own, and their sums."""

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

BIN = Path(sys.executable).parent
SHARDS = 4
ROLES = ("compile C", "compile C++", "compile CUDA")
SOURCE = """\
#include "kiln.h"
#include <string>
#include <vector>
int part_{n}(int x) {{ std::vector<int> v(SIZE, x); return static_cast<int>(v.size()) + {n}; }}
"""
HEAVY = """\
#include "kiln.h"
#include <map>
#include <regex>
int part_{n}(int x) {{
  std::map<std::string, int> seen{{{{"{n}", SIZE}}}};
  return std::regex_match(std::to_string(x), std::regex("[0-9]+")) + seen["{n}"];
}}
"""
LIGHT = '#include "kiln.h"\nint part_{n}(int x) {{ return x + SIZE + {n}; }}\n'
SOURCES = {"light": LIGHT, "usual": SOURCE, "heavy": HEAVY}
KERNEL = """\
#include "kiln.h"
__global__ void kernel_{n}(float* out) {{ out[threadIdx.x] = SIZE * {n}.0f; }}
void launch_{n}(float* out) {{ kernel_{n}<<<1, 32>>>(out); }}
"""
GENERATE = """\
import sys
number, path = sys.argv[1:]
with open(path, "w") as file:
    file.write('#include "kiln.h"\\n')
    file.write(f"int made_{number}(int x) {{ return x + SIZE + {number}; }}\\n")
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(kiln VERSION 1.0 LANGUAGES CXX {cuda})
set(CMAKE_CUDA_ARCHITECTURES 90-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(n RANGE 1 {generated})
  add_custom_command(OUTPUT made_${{n}}.cpp DEPENDS ${{PROJECT_SOURCE_DIR}}/generate.py
    COMMAND ${{Python3_EXECUTABLE}} ${{PROJECT_SOURCE_DIR}}/generate.py ${{n}} made_${{n}}.cpp)
  list(APPEND made ${{CMAKE_CURRENT_BINARY_DIR}}/made_${{n}}.cpp)
endforeach()
file(GLOB parts CONFIGURE_DEPENDS src/*.cpp src/*.cu)
add_library(kiln SHARED ${{parts}} ${{made}})
target_include_directories(kiln PRIVATE src)
install(TARGETS kiln LIBRARY DESTINATION kiln)
"""
PYPROJECT = """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "kiln"
version = "1.0"
[tool.scikit-build]
wheel.packages = ["kiln"]
"""


def write_project(folder: Path, sources: int, kernels: int, generated: int, *, work: str) -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "kiln").mkdir()
    (folder / "kiln" / "__init__.py").write_text("")
    (folder / "src" / "kiln.h").write_text("#define SIZE 1\n")
    for n in range(sources):
        (folder / "src" / f"part_{n:03}.cpp").write_text(SOURCES[work].format(n=n))
    for n in range(kernels):
        (folder / "src" / f"kernel_{n}.cu").write_text(KERNEL.format(n=n))
    (folder / "generate.py").write_text(GENERATE)
    cuda = "CUDA" if kernels else ""
    (folder / "CMakeLists.txt").write_text(CMAKE.format(cuda=cuda, generated=generated))
    (folder / "pyproject.toml").write_text(PYPROJECT)
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1_700_000_000, 1_700_000_000))


# Runs a command with the kernel's process accounting, which is one file for a PID namespace.
ACCOUNT = """\
import ctypes, os, sys
account = ctypes.CDLL(None).acct
open(sys.argv[1], "wb").close()
account(sys.argv[1].encode())
child = os.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
while (ended := os.wait())[0] != child:
    pass
account(None)
sys.exit(os.waitstatus_to_exitcode(ended[1]) % 256)
"""
RECORD = struct.Struct("<BBHIIIIIIf8H16s")  # struct acct_v3
COMPILERS = ("cc1", "cc1plus", "cicc", "cudafe++", "ptxas", "nvcc", "as", "ld", "collect2", "gcc")


def cpu_split(file: Path) -> Counter[str]:
    """Return the CPU seconds of a job by what they were spent on. A process that took less than
    10 ms counts as none, and the processes that were still running at the end are left out.
    """
    content = file.read_bytes()
    records = {}
    for fields in RECORD.iter_unpack(content[: len(content) // RECORD.size * RECORD.size]):
        pid, parent, name = fields[6], fields[7], fields[-1].split(b"\0")[0].decode()
        ticks = sum((part & 0x1FFF) << 3 * (part >> 13) for part in fields[10:12])
        records[pid] = (parent, name, ticks / 100)

    def above(pid: int) -> Iterator[str]:
        seen = set()
        while pid in records and pid not in seen:
            seen.add(pid)
            yield records[pid][1]
            pid = records[pid][0]

    split: Counter[str] = Counter()
    for pid, (_, name, seconds) in records.items():
        split[_purpose(name, list(above(pid)))] += seconds
    return split


def _purpose(name: str, above: Sequence[str]) -> str:
    if "cmake" in above:
        return "configure: compilers" if name in COMPILERS else "configure"
    if name in ("ccache", "sccache"):
        return "cache"
    if name.startswith("python") and "ninja" in above:
        return "generate"
    if name.startswith(("python", "stoker")):
        return "stoker and back end"
    return "compile and link"


class Job:
    """A machine that starts with nothing but the tree and the checkpoint."""

    def __init__(self, farm: "Farm", tree: Path):
        farm.jobs += 1
        self.folder = farm.folder / f"machine-{farm.jobs:03}"
        shutil.copytree(tree, self.folder / "tree")
        self._farm = farm
        self._place = farm.place or self.folder  # where the job itself sees its folder
        self._account = self.folder / "account"
        self._began = 0.0
        self.cpu_s = self.wall_s = 0.0
        self.output = ""

    def start(self, *options: str, **environment: str) -> "subprocess.Popen[str]":
        home = self._place / "home"
        variables = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(home),
            "STOKER_HOME": str(home / "stoker"),
            "CCACHE_DIR": str(home / "ccache"),
            "TMPDIR": str(home / "tmp"),
            **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
            **environment,
        }
        (self.folder / "home" / "tmp").mkdir(parents=True, exist_ok=True)
        words = ["stoker", "build", str(self._place / "tree"), "--variant", self._farm.variant]
        words += ["--isolation", "none", "--out", str(self._place / "out"), "--progress", "log"]
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        bind = 'mount --bind "$0" "$1"; cd "$1"; shift; exec "$@"'
        apart += ["sh", "-ec", bind, str(self.folder), str(self._place)]
        self._began = time.monotonic()
        return subprocess.Popen(
            [*apart, sys.executable, "-c", ACCOUNT, str(self._account), *words, *options],
            env=variables,
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self, process: "subprocess.Popen[str]") -> int:
        assert process.stdout is not None
        self.output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.wall_s = time.monotonic() - self._began
        return process.returncode

    def run(self, *options: str, status: int = 0, **environment: str) -> "Job":
        found = self.wait(self.start(*options, **environment))
        if found != status:
            raise SystemExit(f"{options}: status {found}, expected {status}\n{self.output}")
        return self

    def compiled(self) -> Counter[str]:
        """Return how often each source was really compiled here, as the governor saw it."""
        seen: Counter[str] = Counter()
        for file in self.folder.glob("home/stoker/state/runs/*/steps.json"):
            for step in json.loads(file.read_text())["steps"]:
                if step["role"] in ROLES:
                    seen[Path(step["source"]).name] += 1
        return seen

    @property
    def split(self) -> Counter[str]:
        return cpu_split(self._account)

    @property
    def wheel(self) -> str:
        (path,) = (self.folder / "out").glob("*.whl")
        return sha256(path.read_bytes()).hexdigest()


class Farm:
    """The tree, the single build that all others are compared with, and fresh checkpoints."""

    def __init__(self, folder: Path, options: argparse.Namespace):
        self.folder = folder
        self.place: Path | None = None  # if given, every job sees its folder there
        self.jobs = 0
        self.variant = "cu130-sm90" if options.kernels else "cpu"
        self.random = random.Random(options.seed)
        self.generated = 12
        self.steps = options.sources + options.kernels + self.generated
        self.tree = folder / "tree"
        self.work = options.work
        write_project(
            self.tree, options.sources, options.kernels, self.generated, work=options.work
        )
        self.single = self.job().run("--cache", "none")
        say(f"single build: {self.single.wall_s:.0f} s, {self.single.cpu_s:.1f} CPU seconds")

    def job(self, tree: Path | None = None) -> Job:
        return Job(self, tree or self.tree)

    def checkpoint(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self.folder))

    def shards(self, where: str, *options: str, tree: Path | None = None) -> list[Job]:
        made = []
        for number in range(1, SHARDS + 1):
            shard = f"{number}/{SHARDS}"
            job = self.job(tree).run("--checkpoint", where, "--shard", shard, *options)
            made.append(job)
        return made

    def finish(self, where: str, *options: str, tree: Path | None = None) -> Job:
        return self.job(tree).run("--checkpoint", where, "--finish", *options)


def summary(farm: Farm, jobs: Sequence[Job], single: Job | None = None) -> dict[str, object]:
    """Return what the jobs did, compared with the single build; the last one made the wheel."""
    single = single or farm.single
    counts: Counter[str] = sum((job.compiled() for job in jobs), Counter())
    return {
        "jobs": len(jobs),
        "compile_steps": len(single.compiled()),
        "compiled": counts.total(),
        "compiled_more_than_once": sum(count > 1 for count in counts.values()),
        "same_wheel": jobs[-1].wheel == single.wheel,
        "cpu_s": round(sum(job.cpu_s for job in jobs), 1),
        "cpu_of_single_build": round(sum(job.cpu_s for job in jobs) / single.cpu_s, 3),
        "longest_job_s": round(max(job.wall_s for job in jobs), 1),
        "single_s": round(single.wall_s, 1),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
