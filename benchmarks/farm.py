"""Proves that a build in many small jobs gives the same wheel as a single build.

    python benchmarks/farm.py [CASE]... [--sources 104] [--kernels 6] [--work usual] [--seed 1]
    python benchmarks/farm.py --records FOLDER --title TEXT [--single record.json]

Every job runs in namespaces of its own (mounts and processes), with its own home, cache and copy of
the tree at another path, and shares only the checkpoint with the others. A job that another one
follows never finds its folders again. Compiles are counted by the governor's own records. Needs
root, ccache, scikit-build-core beside stoker, and nvcc for --kernels; s3 needs sccache and
moto's server beside stoker. Results are added to results/farm.json. The cases:

    shards     four shards and a finisher: every compile once, the same bytes, CPU time and where it
               went; with --work heavy it is stored as "shards-heavy"
    redis      the same, with objects in a redis server instead of a folder
    s3         the same, with objects in an S3 server, which sccache uses; all jobs have the same
               paths, as on runners of a CI system: sccache's keys depend on them
    deadline   jobs with --stop-after, each on a fresh machine, until the wheel is there. A build of
               150 s has jobs of 40 s: the ratio is kept for whatever a single build takes here
    killed     kill -9 of a shard at ten random times, then the finisher
    storage    shards with storage of their own, and that of one of them is lost
    lost       half of all objects are deleted
    damaged    every file of the checkpoint is damaged
    twice      two jobs with the same shard at once
    header     a header changes between the shards and the finisher
    full       the disk of the checkpoint is full
    other      a finisher with other flags is refused

The second form adds up jobs that ran elsewhere: FOLDER has JOB-record.json.xz and JOB-steps.json.xz
of each run folder, and figures-JOB with lines such as "start 12.5" and the counters of its cgroup.
"""

import argparse
import json
import lzma
import os
import platform
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "farm.json"
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


# -- cases -----------------------------------------------------------------------------------------


def shards(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    made = farm.shards(where)
    finisher = farm.finish(where)
    return {
        **summary(farm, [*made, finisher]),
        "compiled_by_shard": [job.compiled().total() for job in made],
        "compiled_by_finisher": finisher.compiled().total(),
        "cpu_split_of_single_build": _rounded(farm.single.split),
        "cpu_split": _rounded(sum((job.split for job in (*made, finisher)), Counter())),
    }


def _rounded(split: Counter[str]) -> dict[str, float]:
    return {name: round(seconds, 1) for name, seconds in sorted(split.items())}


def s3(farm: Farm) -> dict[str, object]:
    port = "6397"
    server = subprocess.Popen([BIN / "moto_server", "-p", port], stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(f"{endpoint}/farm")
        where = f"s3://farm/checkpoint?endpoint={endpoint}&region=us-east-1"
        options = ("--cache", "sccache")
        login = {"AWS_ACCESS_KEY_ID": "farm", "AWS_SECRET_ACCESS_KEY": "farm"}
        os.environ |= login
        farm.place = farm.folder / "runner"
        farm.place.mkdir()
        made = farm.shards(where, *options)
        finisher = farm.finish(where, *options)
    finally:
        farm.place = None
        server.terminate()
        server.wait()
    found = summary(farm, [*made, finisher])
    return {**found, "compiled_by_finisher": finisher.compiled().total()}


def _make_bucket(url: str) -> None:
    """Wait for the server, and make a bucket."""
    for _ in range(100):
        with suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
            return
        time.sleep(0.3)
    raise SystemExit("the S3 server did not start")


def redis(farm: Farm) -> dict[str, object]:
    port = "6398"
    words = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        time.sleep(2)
        where = f"redis://127.0.0.1:{port}"
        made = farm.shards(where)
        finisher = farm.finish(where)
    finally:
        server.terminate()
        server.wait()
    found = summary(farm, [*made, finisher])
    return {**found, "compiled_by_finisher": finisher.compiled().total()}


def deadline(farm: Farm) -> dict[str, object]:
    where, jobs, status = str(farm.checkpoint()), [], 75
    limit = round(farm.single.wall_s * 40 / 150)
    while status == 75 and len(jobs) < 20:
        job = farm.job()
        status = job.wait(job.start("--checkpoint", where, "--stop-after", f"{limit}s"))
        jobs.append(job)
        say(f"job {len(jobs)}: status {status}, {job.wall_s:.0f} s, {job.compiled().total()} steps")
    if status:
        raise SystemExit(jobs[-1].output)
    late = max(job.wall_s - limit for job in jobs[:-1]) if jobs[1:] else 0.0
    return {**summary(farm, jobs), "limit_s": limit, "latest_end_after_limit_s": round(late, 1)}


def killed(farm: Farm) -> dict[str, object]:
    where, moments = str(farm.checkpoint()), []
    for number in range(10):
        job = farm.job()
        shard = f"{number % SHARDS + 1}/{SHARDS}"
        process = job.start("--checkpoint", where, "--shard", shard)
        moments.append(round(farm.random.uniform(0.5, 0.5 * farm.single.wall_s), 1))
        time.sleep(moments[-1])
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the namespace dies with its first process
        job.wait(process)
    finisher = farm.finish(where) if list(Path(where).glob("builds/*")) else farm.job().run()
    return {
        "killed_after_s": moments,
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
    }


def _after(farm: Farm, harm: Callable[[list[Path]], None]) -> dict[str, object]:
    """Finish a build after something was done to the files of its checkpoint."""
    where = farm.checkpoint()
    farm.shards(str(where))
    harm(sorted(path for path in where.rglob("*") if path.is_file()))
    options = ("--checkpoint", str(where))
    finisher = farm.job().run(*options)
    again = farm.job().run(*options)
    return {
        "same_wheel": finisher.wheel == farm.single.wheel == again.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
        "compiled_by_the_next_job": again.compiled().total(),
    }


def storage(farm: Farm) -> dict[str, object]:
    places, made = [], []
    for number in range(1, SHARDS + 1):
        places.append(farm.checkpoint())
        shard = f"{number}/{SHARDS}"
        made.append(farm.job().run("--checkpoint", str(places[-1]), "--shard", shard))
    where = farm.checkpoint()
    for place in places[1:]:
        shutil.copytree(place, where, dirs_exist_ok=True)
    finisher = farm.finish(str(where))
    return {
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_the_lost_shard": made[0].compiled().total(),
        "compiled_by_finisher": finisher.compiled().total(),
        "compiled_only_what_was_lost": finisher.compiled() == made[0].compiled(),
    }


def lost(farm: Farm) -> dict[str, object]:
    def harm(files: list[Path]) -> None:
        objects = [path for path in files if "objects" in path.parts]
        for path in farm.random.sample(objects, len(objects) // 2):
            path.unlink()

    return _after(farm, harm)


def damaged(farm: Farm) -> dict[str, object]:
    def harm(files: list[Path]) -> None:
        for path in files:
            content = bytearray(path.read_bytes())
            position = farm.random.randrange(len(content))
            content[position] ^= 0xFF
            cut = farm.random.random() < 0.3
            path.write_bytes(content[:position] if cut else content)

    return _after(farm, harm)


def twice(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    jobs = [farm.job(), farm.job()]
    running = [job.start("--checkpoint", where, "--shard", f"1/{SHARDS}") for job in jobs]
    states = [job.wait(process) for job, process in zip(jobs, running, strict=True)]
    finisher = farm.finish(where)
    return {"states": states, "same_wheel": finisher.wheel == farm.single.wheel}


def header(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    farm.shards(where)
    changed = farm.folder / "changed"
    shutil.copytree(farm.tree, changed)
    file = changed / "src" / "kiln.h"
    file.write_text("#define SIZE 2\n")  # of the same length and time
    os.utime(file, (1_700_000_000, 1_700_000_000))
    single = farm.job(changed).run("--cache", "none")
    finisher = farm.finish(where, tree=changed)
    return {
        "same_wheel_as_a_single_build_of_the_changed_tree": finisher.wheel == single.wheel,
        "differs_from_the_old_wheel": finisher.wheel != farm.single.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
    }


def full(farm: Farm) -> dict[str, object]:
    where = farm.checkpoint()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "farm", where], check=True)
    try:
        made, states = [], []
        for number in range(1, SHARDS + 1):
            made.append(farm.job())
            shard = f"{number}/{SHARDS}"
            process = made[-1].start("--checkpoint", str(where), "--shard", shard)
            states.append(made[-1].wait(process))
        finisher = farm.job().run("--checkpoint", str(where))
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)
    return {
        "states_of_shards": states,
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_shards": sum(job.compiled().total() for job in made),
        "compiled_by_finisher": finisher.compiled().total(),
    }


def other(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    farm.job().run("--checkpoint", where, "--shard", f"1/{SHARDS}")
    job = farm.job().run("--checkpoint", where, "--finish", status=2, CXXFLAGS="-O0")
    line = next(line for line in job.output.splitlines() if "another build" in line)
    return {"status": 2, "message": line.split(": ", 1)[1].partition(" is of ")[2]}


def records(folder: Path, single: Path | None) -> dict[str, object]:
    """Return what jobs did that ran elsewhere; the last one by its start made the wheel."""
    jobs = [_recorded(path) for path in folder.glob("figures-*")]
    jobs.sort(key=lambda job: (job["start"], job["job"]))
    last = jobs[-1]
    found: dict[str, object] = {
        "wall_s": round(max(job["end"] for job in jobs) - jobs[0]["start"], 1),
        "cpu_s": round(sum(job["cpu_s"] for job in jobs), 1),
        "cpu_of_steps_s": round(sum(job["cpu_of_steps_s"] for job in jobs), 1),
        "cache_hits_of_the_last": last["cache_hits"],
        "verified": last["last_stage"] == "verify" and last["status"] == 0,
        "oom_kills": sum(job["oom_kills"] for job in jobs),
    }
    if single:
        summary = json.loads(single.read_text())["summary"]
        found |= {"single_s": round(summary["wall_s"], 1)}
        found |= {"single_cpu_of_steps_s": round(summary["cpu_s"], 1)}
    hidden = ("start", "end")
    return found | {"jobs": [{k: v for k, v in job.items() if k not in hidden} for job in jobs]}


def _recorded(figures: Path) -> dict[str, Any]:
    name = figures.name.removeprefix("figures-")
    lines = dict(line.split(" ", 1) for line in figures.read_text().splitlines() if " " in line)
    record, steps = (
        json.loads(lzma.decompress((figures.parent / f"{name}-{part}.json.xz").read_bytes()))
        for part in ("record", "steps")
    )
    summary = record["summary"]
    return {
        "job": name,
        "options": lines["options"],
        "status": int(lines["status"]),
        "cpus": lines["cpus"],
        "memory_bytes": int(lines["memory"]),
        "start": float(lines["start"]),
        "end": float(lines["end"]),
        "wall_s": round(float(lines["end"]) - float(lines["start"]), 1),
        "cpu_s": round(int(lines["usage_usec"]) / 1e6, 1),
        "cpu_of_steps_s": round(summary["cpu_s"], 1),
        "compiles": sum(step["role"] in ROLES for step in steps["steps"]),
        "cache_hits": summary["cache_hits"],
        "repeated": summary["retries"],
        "peak_bytes": summary["peak_bytes"],
        "oom_kills": int(lines["events.oom_kill"]),
        "stages_s": {stage["stage"]: round(stage["wall_s"], 1) for stage in record["stages"]},
        "last_stage": record["stages"][-1]["stage"],
    }


CASES = {
    case.__name__: case
    for case in (
        *(shards, redis, s3, deadline, killed, storage, lost, damaged, twice, header, full, other),
    )
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all of them")
    parser.add_argument("--sources", type=int, default=104)
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", choices=SOURCES, default="usual", help="of one source")
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="of jobs that ran elsewhere")
    parser.add_argument("--title", help="of these jobs, for the results")
    parser.add_argument("--single", type=Path, help="record of a single build of the same project")
    options = parser.parse_args()
    if options.records:
        found = records(options.records, options.single)
        print(json.dumps(found, indent=1))
        keep(options.title, {}, found, where={})
        return
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        farm = Farm(Path(name), options)
        for case in options.cases or CASES:
            found = CASES[case](farm)
            print(case, json.dumps(found))
            size = {"steps": farm.steps, "work": farm.work, "variant": farm.variant}
            keep("shards-heavy" if (case, farm.work) == ("shards", "heavy") else case, size, found)


def keep(
    case: str,
    size: Mapping[str, object],
    found: Mapping[str, object],
    where: Mapping[str, object] | None = None,
) -> None:
    """Add what a case has shown to the results. ``where`` is the machine, if not this one."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if where is None:
        where = {"machine": platform.machine(), "cpus": os.cpu_count()}
    known[case] = {**size, **where, **found}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
