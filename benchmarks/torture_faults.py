"""The builds of torture.py: what is built, one round of it, and the faults that break it."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from governor import Group

from stoker.govern.history.store import History
from stoker.model.errors import StokerError

STOKER = str(Path(sys.executable).with_name("stoker"))
# A run that takes longer on an idle machine hangs: undisturbed it takes 10 to 20 seconds.
DEADLINE_S = 150.0
SECOND = 8  # steps of a second run beside the first
STARVED_S = 10.0  # a second run that has done no step in this time waits for the first


class Load(NamedTuple):
    """What is built, and in how much memory."""

    light: int  # files of 1 to 6 functions
    functions: tuple[int, int]  # of each heavy file, at least and at most
    limit: int  # two of the heavy files hardly fit at once
    edge: int  # one of them does
    tiny: int = 0  # C files that compile at once, so that most of them run by leases


LARGE = Load(light=12, functions=(55, 70), limit=600_000_000, edge=400_000_000)
# A third of the work, for a machine with few CPUs.
SMALL = Load(light=5, functions=(16, 20), limit=360_000_000, edge=240_000_000)
TINY = Load(light=2, functions=(16, 20), limit=3_000_000_000, edge=2_000_000_000, tiny=300)

SOURCE = """\
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
{functions}
"""
FUNCTION = """\
int f_{file}_{n}(std::vector<std::string>& words) {{
  std::map<std::string, std::function<int(int)>> actions;
  for (auto& word : words) actions[word] = [&](int x) {{ return x + {n}; }};
  auto shorter = [](auto& a, auto& b) {{ return a.size() + {n} < b.size(); }};
  std::sort(words.begin(), words.end(), shorter);
  return static_cast<int>(actions.size());
}}
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(torture LANGUAGES C CXX)
add_library(torture STATIC {sources})
add_executable(main main.cpp)
target_link_libraries(main torture)
"""


def generate(folder: Path, load: Load, chance: random.Random) -> None:
    """Write three heavy files (about 250 MB each in a large load), light ones, and a program."""
    folder.mkdir(parents=True)
    names = []
    for number in range(HEAVY + load.light):
        count = chance.randint(*load.functions) if number < HEAVY else chance.randint(1, 6)
        functions = "".join(FUNCTION.format(file=number, n=n) for n in range(count))
        names.append(f"part_{number}.cpp")
        (folder / names[-1]).write_text(SOURCE.format(functions=functions))
    for number in range(load.tiny):
        names.append(f"tiny_{number}.c")
        (folder / names[-1]).write_text(f"int tiny_{number}(void) {{ return {number}; }}\n")
    (folder / "main.cpp").write_text("int main() { return 0; }\n")
    (folder / "CMakeLists.txt").write_text(CMAKE.format(sources=" ".join(names)))


class Round:
    """One build, its processes, and what may remain of it."""

    def __init__(
        self, folder: Path, group: Group, load: Load, chance: random.Random, cache: str = "none"
    ):
        self.folder, self.group, self.load, self.chance = folder, group, load, chance
        self.cache = cache
        self.build, self.home, self.tmp = folder / "build", folder / "home", folder / "tmp"
        self.notes: list[str] = []
        self.wrong: list[str] = []
        self.interventions: Counter[str] = Counter()

    def environment(self) -> dict[str, str]:
        path = f"{Path(STOKER).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "STOKER_HOME": str(self.home),
            "STOKER_CACHE": self.cache,
            "CCACHE_DIR": str(self.home / "ccache"),
            "TMPDIR": str(self.tmp),
        }

    def start(self, name: str) -> subprocess.Popen[bytes]:
        tmp = self.chance.choice(("auto", "disk", "ram"))
        ninja = ["ninja", "-C", str(self.build), "-k", "0"]
        return self.govern(name, "--tmp", tmp, *self.summary, "--", *ninja)

    def govern(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start `stoker run` with these words; its output goes to a log of this name."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                self.inside([STOKER, "run", "--progress", "log", *words]),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def summary(self) -> list[str]:
        return ["--summary", str(self.folder / "summary.json")]

    def wait(self, run: subprocess.Popen[bytes], deadline_s: float = DEADLINE_S) -> int | None:
        """Wait for a run; return its status, or None if it hangs. A machine that others keep busy
        has more time.
        """
        deadline_s *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        try:
            status = run.wait(deadline_s)
        except subprocess.TimeoutExpired:
            run.kill()
            return None
        summary = self.folder / "summary.json"
        with suppress(OSError, ValueError):  # a run that was killed has none, or half of one
            said = json.loads(summary.read_text())
            self.interventions.update({name: said[name] for name in INTERVENTIONS})
        summary.unlink(missing_ok=True)
        return status

    def inside(self, command: list[str]) -> list[str]:
        """Return the command that runs ``command`` in the memory cgroup."""
        procs = str(self.group.path / "cgroup.procs")
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', procs, *command]

    def longest_wait_s(self) -> float:
        """Return the longest time that a step waited for its start, if the history can be read."""
        file = self.home / "state" / "history.sqlite"
        if not file.exists():
            return 0.0
        with suppress(StokerError), History(file) as history:
            attempts = [one for run in history.attempts_by_run() for one in history.attempts(run)]
            waits = [sum(one.explanation.waits.values()) for one in attempts if one.explanation]
            return max(waits, default=0.0)
        return 0.0

    def processes(self, wanted: str = "") -> list[int]:
        """Return the live processes of this round whose command line, behind a NUL that marks its
        start, contains ``wanted``.
        """
        mark = f"STOKER_HOME={self.home}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
                if words and wanted in f"\0{words}":
                    found.append(int(folder.name))
        return sorted(found)

    def pick(self, wanted: str) -> int | None:
        """Wait a moment for such a process; return one of them."""
        for _ in range(100):
            if found := self.processes(wanted):
                return self.chance.choice(found)
            time.sleep(0.02)
        self.notes.append(f"no process {wanted!r}")
        return None


# Each fault returns the statuses that are right after it; None allows any.

Statuses = set[int] | None
Fault = Callable[[Round, subprocess.Popen[bytes]], Statuses]


def _signal(wanted: str, number: int, right: Statuses) -> Fault:
    def fault(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
        del run
        if pid := case.pick(wanted):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return right

    return fault


def _run_signal(number: int) -> Fault:
    def fault(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
        del case
        if run.poll() is None:
            run.send_signal(number)
        return None

    return fault


def _full(place: str, right: Statuses) -> Fault:
    def fault(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
        del run
        filler = case.folder / place / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))
        return right

    return fault


def _lower_limit(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    del run
    with suppress(OSError):  # version 1 refuses a limit below what is in use
        case.group.set_limit(case.load.edge)
    return None


def _memory_eater(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    del run
    amount = case.chance.randint(case.load.limit // 6, case.load.limit // 2)
    seconds = case.chance.uniform(1, 5)
    code = f"import time; data = b'x' * {amount}; time.sleep({seconds})"
    subprocess.Popen(case.inside([sys.executable, "-c", code]), env=case.environment())
    return None


def _corrupt_history(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    del run
    for file in (case.home / "state").glob("history.sqlite*"):
        with suppress(OSError), file.open("r+b") as stream:
            stream.seek(case.chance.randrange(max(1, file.stat().st_size)))
            stream.write(case.chance.randbytes(4096))
    return {0}


def _lock_history(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    del run
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(case.home / "state" / "history.sqlite", timeout=0.1)
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(case.chance.uniform(1, 6))
        connection.close()
    return {0}


def _skew_clock(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    del run
    for file in case.build.rglob("*.o"):
        shift = case.chance.uniform(-86_400, 86_400)
        with suppress(OSError):
            os.utime(file, (time.time() + shift,) * 2)
    return None


def _second_run(case: Round, run: subprocess.Popen[bytes]) -> Statuses:
    folder = case.folder / "second"
    folder.mkdir()
    for number in range(SECOND):
        text = SOURCE.format(functions=FUNCTION.format(file="second", n=number))
        (folder / f"{number}.cpp").write_text(text)
    script = f'cd "$0" && seq 0 {SECOND - 1} | xargs -P 2 -I N g++ -O1 -c N.cpp -o N.o'
    began = time.monotonic()
    second = case.govern("second", "--", "sh", "-c", script, str(folder))
    while run.poll() is None and second.poll() is None and not list(folder.glob("*.o")):
        time.sleep(0.05)
    waited_s = time.monotonic() - began
    if not list(folder.glob("*.o")) and waited_s > STARVED_S:
        case.wrong.append(f"the second run has done no step in {waited_s:.0f} s")
    if status := case.wait(second):
        case.wrong.append(f"the second run ended with {status}")
    return {0}


ODD = "odd-compiles"
FAULTS: dict[str, Fault] = {
    "none": lambda *_: {0},
    "kill-governor": _signal("stoker.govern.server.daemon", signal.SIGKILL, {0}),
    "stop-governor": _signal("stoker.govern.server.daemon", signal.SIGSTOP, {0}),
    "kill-launcher": _signal("stoker-launcher", signal.SIGKILL, None),
    "kill-compiler": _signal("cc1plus", signal.SIGKILL, None),
    "stop-compiler": _signal("cc1plus", signal.SIGTERM, None),
    "kill-ninja": _signal("\0ninja -C", signal.SIGKILL, None),
    "kill-stoker": _run_signal(signal.SIGKILL),
    "term-stoker": _run_signal(signal.SIGTERM),
    "int-stoker": _run_signal(signal.SIGINT),
    "hup-stoker": _run_signal(signal.SIGHUP),
    "full-build": _full("build", None),
    "full-state": _full("home", {0}),
    "full-tmp": _full("tmp", None),
    "lower-limit": _lower_limit,
    "memory-eater": _memory_eater,
    "corrupt-history": _corrupt_history,
    "lock-history": _lock_history,
    "skew-clock": _skew_clock,
    "second-run": _second_run,
    ODD: lambda *_: {0},
}
INTERVENTIONS = ("pauses", "preemptions", "oom_kills", "retries")  # of a run's summary
HEAVY = 3  # files of which two hardly fit into the limit
SMALL_DISKS = {
    "full-build": ("build", "40m"),
    "full-state": ("home", "20m"),
    "full-tmp": ("tmp", "40m"),
}


@contextmanager
def small_disk(folder: Path, megabytes: str) -> Iterator[None]:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
