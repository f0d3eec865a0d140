"""Mutation fuzzing of every reader of untrusted input, with limits on time and memory.

    python benchmarks/fuzz.py --inputs N [--minutes M] [--seed S] [--reader NAME]... [--keep FOLDER]
                              [--json FILE]

Each input is a valid one (a library built here, a wheel, a log, ...) with a few mutations.
The same seed gives the same inputs, however often a worker has to be replaced. The readers and what
is called of them are in tests/fuzz_targets.py. A failure is

    crash   an exception other than those that tell the user what is wrong with the input
    hang    more CPU time than the size of the input explains, or a worker that never finishes
    memory  a worker that has grown far beyond the size of its inputs
    write   a file made, changed or deleted outside the folder that the reader was given
    killed  a worker that died by a signal

Every failing input is kept in FOLDER (default: fuzz-failures) under a name that says reader, kind,
seed and number; in tests/fuzzed it becomes a regression test. Any failure gives exit status 1.
The result goes to FILE after each round over all readers, so that a run may be ended early.
"""

import argparse
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# Replaces this folder, whose inspect.py would shadow the module of the standard library.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from fuzz_seeds import SEEDS, WORDS  # noqa: E402
from fuzz_targets import REFUSED, TARGETS  # noqa: E402

ROUND = 500  # inputs of one reader before the next reader starts in a new worker
SECONDS = 4.0  # of CPU time for any input
SECONDS_PER_BYTE = 10e-6  # more for a large one
TIMEOUT_S = 300.0  # wall time for one input
ADDRESS_SPACE = 2 << 30  # bytes beyond those of the worker at its start
MEMORY = 400 << 20  # bytes a worker may grow by at its peak
LARGEST = 1 << 20  # bytes of an input
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 2**31 - 1, 2**31)
NUMBERS += (2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3\xa9", "\u202e\u2028".encode(), b"-1", b"1e999")
TEXTS += (b"9" * 5000, b"../", b"/", b"//", b"\n\n", b"\r", b"\x1b[31m", b"[bold]", b"[/x]", b"%s")
TEXTS += (b"{", b"}", b"[", b"]", b"(", b")", b'"', b"'", b"\\", b"$", b"#", b"=", b":", b",", b";")


class Failure(NamedTuple):
    reader: str
    kind: str
    number: int
    what: str  # one line that is the same for failures of one cause


# -- inputs --------------------------------------------------------------------------------------


def make_input(reader: str, seed: int, number: int) -> bytes:
    """Return input ``number`` of a reader: the same for the same seed."""
    chance = random.Random(f"{seed}/{reader}/{number}")
    content = bytearray(chance.choice(seeds(reader)))
    for _ in range(min(int(chance.expovariate(0.35)) + 1, 12)):
        chance.choice(MUTATIONS)(content, chance, reader)
    return bytes(content[:LARGEST])


@cache
def seeds(reader: str) -> tuple[bytes, ...]:
    return tuple(SEEDS[reader]())


@cache
def _places(content: bytes) -> tuple[int, ...]:
    """Return the offsets of a valid input that are not padding."""
    return tuple(place for place, byte in enumerate(content) if byte) or (0,)


def _place(content: bytearray, chance: random.Random, reader: str) -> int:
    if not content:
        return 0
    if chance.random() < 0.7:
        place = chance.choice(_places(chance.choice(seeds(reader))))
        if place < len(content):
            return place
    return chance.randrange(len(content))


def _flip(content: bytearray, chance: random.Random, reader: str) -> None:
    if content:
        content[_place(content, chance, reader)] ^= 1 << chance.randrange(8)


def _number(content: bytearray, chance: random.Random, reader: str) -> None:
    """Overwrite bytes with a boundary value, or with an offset within the input."""
    place, width = _place(content, chance, reader), chance.choice((1, 2, 4, 8))
    number = chance.choice((*NUMBERS, len(content), chance.randrange(2 * len(content) + 2)))
    form = chance.choice("<>") + {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
    raw = struct.pack(form, (number + chance.choice((0, 0, 0, 1, -1))) % 256**width)
    content[place : place + width] = raw


def _insert(content: bytearray, chance: random.Random, reader: str) -> None:
    place = _place(content, chance, reader)
    content[place:place] = chance.choice((*TEXTS, *WORDS[reader]))


def _overwrite(content: bytearray, chance: random.Random, reader: str) -> None:
    place, text = _place(content, chance, reader), chance.choice((*TEXTS, *WORDS[reader]))
    content[place : place + len(text)] = text


def _delete(content: bytearray, chance: random.Random, reader: str) -> None:
    place = _place(content, chance, reader)
    del content[place : place + int(chance.paretovariate(0.7))]


def _repeat(content: bytearray, chance: random.Random, reader: str) -> None:
    """Repeat a range; in rare cases often enough to reveal superlinear work."""
    place = _place(content, chance, reader)
    stretch = content[place : place + chance.choice((1, 2, 3, 8, 32, 200))]
    most = LARGEST // (4 * max(1, len(stretch)))
    times = most if chance.random() < 0.004 else min(most, int(chance.paretovariate(0.8)))
    content[place:place] = stretch * times


def _splice(content: bytearray, chance: random.Random, reader: str) -> None:
    """Insert the end or a range of another valid input."""
    other = chance.choice(seeds(reader))
    start = chance.randrange(len(other) + 1)
    end = start + chance.choice((8, 64, 512, len(other)))
    place = _place(content, chance, reader)
    content[place : place + chance.choice((0, end - start))] = other[start:end]


def _cut(content: bytearray, chance: random.Random, reader: str) -> None:
    if chance.random() < 0.3:
        del content[_place(content, chance, reader) :]


Mutation = Callable[[bytearray, random.Random, str], None]
MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _number, _number, _insert, _insert, _overwrite, _delete, _repeat, _splice, _cut),
)


# -- the worker ----------------------------------------------------------------------------------


class Worker:
    """Reads inputs one after another; reports its position to the parent in shared memory."""

    def __init__(self, reader: str, seed: int, folder: Path, shared: mmap.mmap, tell: int):
        self._reader, self._seed, self._folder = reader, seed, folder
        self._shared, self._tell = shared, tell
        self._outside: str | None = None
        self._watching = False

    def run(self, numbers: range) -> None:
        self._limit()
        sys.addaudithook(self._audit)
        grown = _peak()
        for number in numbers:
            struct.pack_into("<Q", self._shared, 0, number)
            data = make_input(self._reader, self._seed, number)
            kind, what = self._one(data)
            if _peak() - grown > MEMORY:
                kind, what = "memory", f"grew by {(_peak() - grown) >> 20} MiB"
                grown = _peak()
            self._count(accepted=kind == "accepted")
            if kind not in ("accepted", "refused"):
                failure = Failure(self._reader, kind, number, what)
                os.write(self._tell, json.dumps(failure).encode() + b"\n")

    def _limit(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def _one(self, data: bytes) -> tuple[str, str]:
        target = self._folder / "input"
        target.mkdir()
        self._outside = None
        signal.setitimer(signal.ITIMER_PROF, SECONDS + SECONDS_PER_BYTE * len(data))
        self._watching = True
        try:
            TARGETS[self._reader](data, target)
            result = "accepted", ""
        except REFUSED as error:
            str(error)  # which is what the user sees
            result = "refused", ""
        except Exception as error:
            result = "crash", _told(error)
        finally:
            self._watching = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        if any(entry.name != "input" for entry in self._folder.iterdir()):
            result = "write", "beside its folder"
        if self._outside:
            result = "write", self._outside
        shutil.rmtree(target)
        return result

    def _count(self, *, accepted: bool) -> None:
        done, good = struct.unpack_from("<QQ", self._shared, 8)
        struct.pack_into("<QQ", self._shared, 8, done + 1, good + accepted)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Audit hook: Python reports every file before it is opened, created or deleted."""
        if not self._watching or event not in CHANGES:
            return
        if event == "open" and not arguments[2] & WRITING:
            return
        for path in CHANGES[event](arguments):
            if isinstance(path, int) or path is None:
                continue
            path = Path(os.fsdecode(path))
            real = f"{path.parent.resolve()}/{path.name}"
            if not real.startswith(f"{self._folder}/input") and real != "/dev/null":
                self._outside = f"{event} {real}"


CHANGES: dict[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]] = {
    "open": lambda arguments: arguments[:1],
    "os.chmod": lambda arguments: arguments[:1],
    "os.link": lambda arguments: arguments[:2],
    "os.mkdir": lambda arguments: arguments[:1],
    "os.remove": lambda arguments: arguments[:1] if arguments[1] == -1 else (),
    "os.rename": lambda arguments: arguments[:2],
    "os.rmdir": lambda arguments: arguments[:1] if arguments[1] == -1 else (),
    "os.symlink": lambda arguments: arguments[1:2],
    "os.truncate": lambda arguments: arguments[:1],
    "os.utime": lambda arguments: arguments[:1],
}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _told(error: Exception) -> str:
    """Return the kind and the location of an exception, which identify a defect."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/stoker/" in f.filename]
    frames = frames or traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} at {place}: {str(error)[:120]}"


# -- the parent ----------------------------------------------------------------------------------


class Fuzzing:
    """Runs workers, one at a time, and collects their failures."""

    def __init__(self, seed: int, keep: Path):
        self.seed, self._keep = seed, keep
        self.done: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self._shared = mmap.mmap(-1, 24)

    def read(self, reader: str, numbers: range) -> None:
        """Read all these inputs; if one ends the worker, a new worker continues with the next."""
        start = time.monotonic()
        while numbers:
            self._shared[:] = bytes(24)
            struct.pack_into("<Q", self._shared, 0, numbers.start)
            ended = self._work(reader, numbers)
            at, done, accepted = struct.unpack("<QQQ", self._shared)
            self.done[reader] += done
            self.accepted[reader] += accepted
            if not ended:
                break
            self.done[reader] += 1
            self._found(ended)
            numbers = range(at + 1, numbers.stop)
        self.seconds[reader] += time.monotonic() - start

    def _work(self, reader: str, numbers: range) -> Failure | None:
        """Run one worker; return the failure that ended it, if any."""
        with tempfile.TemporaryDirectory(prefix="stoker-fuzz-", dir=_in_memory()) as folder:
            heard, tell = os.pipe()
            child = os.fork()
            if not child:
                os.close(heard)
                _be_worker(reader, self.seed, Path(folder), self._shared, tell, numbers)
            os.close(tell)
            status = self._wait(child)
            with os.fdopen(heard) as lines:
                for line in lines:
                    self._found(Failure(*json.loads(line)))
        at = struct.unpack_from("<Q", self._shared, 0)[0]
        if status == 0:
            return None
        number = os.waitstatus_to_exitcode(status)
        if number in (-signal.SIGPROF, -signal.SIGALRM):
            return Failure(reader, "hang", at, "CPU time" if number == -signal.SIGPROF else "waits")
        return Failure(reader, "killed", at, f"status {number}")

    def _wait(self, child: int) -> int:
        """Wait for a worker; return its status. SIGALRM ends one that exceeds the timeout."""
        at, since = -1, time.monotonic()
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return status
            now = struct.unpack_from("<Q", self._shared, 0)[0]
            if now != at:
                at, since = now, time.monotonic()
            elif time.monotonic() - since > TIMEOUT_S:
                os.kill(child, signal.SIGALRM)
            time.sleep(0.02)

    def _found(self, failure: Failure) -> None:
        self.failures.append(failure)
        self._keep.mkdir(parents=True, exist_ok=True)
        name = f"{failure.reader}-{failure.kind}-{self.seed}-{failure.number}"
        (self._keep / name).write_bytes(make_input(failure.reader, self.seed, failure.number))
        print(f"FAILED {name}: {failure.what}", flush=True)

    def table(self) -> str:
        failed = Counter(failure.reader for failure in self.failures)
        lines = [f"{'reader':8} {'inputs':>9} {'accepted':>9} {'failures':>9} {'ms each':>8}"]
        for reader in self.done:
            done = self.done[reader]
            each = 1000 * self.seconds[reader] / max(1, done)
            row = f"{reader:8} {done:9,} {self.accepted[reader]:9,} {failed[reader]:9,} {each:8.2f}"
            lines.append(row)
        good = sum(self.accepted.values())
        total = f"{sum(self.done.values()):9,} {good:9,} {len(self.failures):9,}"
        return "\n".join([*lines, f"{'all':8} {total}"])


def _be_worker(
    reader: str, seed: int, folder: Path, shared: mmap.mmap, tell: int, numbers: range
) -> None:
    """Run the worker in the forked process; never return."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    status = 3
    try:
        os.environ["STOKER_HOME"] = str(folder / "input" / "home")
        Worker(reader, seed, Path(os.path.realpath(folder)), shared, tell).run(numbers)
        status = 0
    except BaseException:  # of the worker itself
        traceback.print_exc()
    finally:
        os._exit(status)


def _in_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=13_000, help="in all, over all readers")
    parser.add_argument("--minutes", type=float, help="start no round after this time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", action="append", choices=list(TARGETS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    readers = arguments.reader or list(TARGETS)
    each = -(-arguments.inputs // len(readers))
    fuzzing = Fuzzing(arguments.seed, arguments.keep)
    for reader in readers:
        _read_seeds(reader)
    end = time.monotonic() + 60 * (arguments.minutes or float("inf"))
    for start in range(0, each, ROUND):
        if time.monotonic() > end:
            break
        for reader in readers:
            fuzzing.read(reader, range(start, min(start + ROUND, each)))
        print(f"{fuzzing.table()}\n", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(_result(fuzzing), indent=1) + "\n")
    return 1 if fuzzing.failures else 0


def _read_seeds(reader: str) -> None:
    """Create the seeds and read each once, so that workers import nothing later."""
    for seed in seeds(reader):
        with tempfile.TemporaryDirectory() as folder, suppress(*REFUSED):
            TARGETS[reader](seed, Path(folder))


def _result(fuzzing: Fuzzing) -> dict[str, Any]:
    return {
        "seed": fuzzing.seed,
        "all_inputs": sum(fuzzing.done.values()),
        "inputs": dict(fuzzing.done),
        "accepted": dict(fuzzing.accepted),
        "failures": [failure._asdict() for failure in fuzzing.failures],
    }


if __name__ == "__main__":
    sys.exit(main())
