"""Breaks governed builds at random and checks what remains.

    python benchmarks/torture.py --minutes 10 --seed 1 [--workers N] [--cuda | --cache ccache]
    python benchmarks/torture.py --seed 1 --only FAULT --round SEED

Each round starts `stoker run -- ninja` on a generated project inside a memory cgroup, injects one
fault at a random time, and then checks: the run ended with a status that fits the fault, a second
run completes the build, every object is byte-identical to that of an undisturbed build, and no
process, socket, run folder or temporary file is left. With --cache ccache, the objects that the
cache then has must be identical too. The faults take turns, in a random order. A failed round
prints its seed, keeps its output, and can be repeated with --round. Needs root, a memory cgroup and
tmpfs mounts. Rounds named "odd-compiles" run the compiles of odd_compiles.py with or without ccache
instead of ninja; with --cuda there are none. "second-run" starts a small run beside the large one,
which must not wait for its end. The longest wait of a step is stored. N copies (--workers) run at
the same time, each with its own seed, memory cgroup, process namespace and temporary folders, so
that other runs on the machine do not count.

Each run with all faults adds itself, with its failures, to results/torture-<kind>-<machine>.json,
which holds the sums too; another seed continues with the faults that the stored runs cover least.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import odd_compiles
from governor import TEMPORARY, Group
from torture_faults import (
    FAULTS,
    HEAVY,
    INTERVENTIONS,
    LARGE,
    ODD,
    SMALL,
    SMALL_DISKS,
    STOKER,
    TINY,
    Load,
    Round,
    generate,
    small_disk,
)
from workload import generate_cuda

from stoker.machine.system import read_machine
from stoker.model.value import size

RESULTS = Path(__file__).parent / "results"
ODD_DEADLINE_S = 300.0  # of all odd compiles together
GRACE_S = 15.0  # for the governor and killed commands to disappear
ATTEMPTS = 3  # runs to complete a build after its fault


class Torture:
    def __init__(self, folder: Path, seed: int, load: Load, *, cuda: bool, cache: str):
        self.folder, self.load, self.cache = folder, load, cache
        self.group = Group(load.limit, f"stoker-torture-{seed}")
        self.source = folder / "source"
        chance = random.Random(seed)
        if cuda:
            generate_cuda(self.source, heavy=0, light=8, seed=seed)
        else:
            generate(self.source, load, chance)
        self.template = folder / "template"
        configure = ["cmake", "-S", str(self.source), "-G", "Ninja"]
        if cuda:
            # What a script starts is never started twice, and leaves its files when it is killed.
            configure += [f"-DCMAKE_CUDA_COMPILER={_program('nvcc')}"]
            configure += [f"-DCMAKE_CUDA_HOST_COMPILER={_program('g++')}"]
        # Every round uses the same path, because objects may contain it.
        self.place = folder / "place"
        self.place.mkdir()
        subprocess.run(
            [*configure, "-B", str(self.place / "build")], check=True, stdout=subprocess.DEVNULL
        )
        shutil.copytree(self.place / "build", self.template)
        subprocess.run(["ninja", "-C", str(self.place / "build")], check=True, capture_output=True)
        self.reference = _objects(self.place / "build")
        shutil.rmtree(self.place)
        self.odd: dict[str, dict[str, str]] = {}
        self.interventions: Counter[str] = Counter()
        self.longest_wait_s = 0.0

    def round(self, seed: int, name: str) -> list[str]:
        """Run one round; return what was wrong."""
        chance = random.Random(seed)
        shutil.rmtree(self.place, ignore_errors=True)
        self.group.set_limit(self.load.limit)
        case = Round(self.place, self.group, self.load, chance, self.cache)
        for folder in (case.build, case.home, case.tmp):
            folder.mkdir(parents=True)
        try:
            if name == ODD:
                return self._odd(case)
            if name in SMALL_DISKS:
                place, megabytes = SMALL_DISKS[name]
                with small_disk(self.place / place, megabytes):
                    return self._try(case, name)
            return self._try(case, name)
        finally:
            self.interventions += case.interventions
            self.longest_wait_s = max(self.longest_wait_s, case.longest_wait_s())

    def _odd(self, case: Round) -> list[str]:
        """Compile in odd ways, where the same was compiled plainly before. Two of the large
        compiles do not fit at once.
        """
        self.group.set_limit(self.load.edge)
        place, sources = self.folder / "odd", self.source
        self.folder.chmod(0o755)  # one of the ways is another user's
        if not self.odd:
            self.odd = odd_compiles.references(place, sources, HEAVY, self.load.light)
        shutil.rmtree(place)
        cache = case.chance.choice(("none", "ccache"))

        def run(command: list[str], variables: Mapping[str, str]) -> int | None:
            words = [STOKER, "run", "--progress", "log", "--cache", cache, *case.summary]
            words += ["--", *command]
            with (case.folder / "odd.log").open("ab") as log:
                started = subprocess.Popen(
                    case.inside(words),
                    env={
                        **case.environment(),
                        **variables,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            return case.wait(started, ODD_DEADLINE_S)

        wrong = odd_compiles.check(
            place, sources, HEAVY, self.load.light, expected=self.odd, run=run
        )
        return [*wrong, *self._remains(case)]

    def _try(self, case: Round, name: str) -> list[str]:
        shutil.copytree(self.template, case.build, dirs_exist_ok=True)
        wrong = []
        run = case.start("faulty")
        time.sleep(case.chance.uniform(0.3, 8.0))
        right = FAULTS[name](case, run)
        status = case.wait(run)
        if status is None:
            wrong.append("the faulty run hangs")
        elif right is not None and status not in right:
            wrong.append(f"status {status}, expected one of {sorted(right)}")
        for folder in (case.build, case.home, case.tmp):
            (folder / "filler").unlink(missing_ok=True)
        for pid in case.processes("stoker.govern.server.daemon"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.group.set_limit(self.load.limit)
        wrong += self._complete(case, "resumed")
        if self.cache != "none" and not wrong:
            for path in case.build.rglob("*.o"):
                path.unlink()
            wrong += self._complete(case, "from-the-cache")
        wrong += self._remains(case)
        return wrong + case.wrong

    def _complete(self, case: Round, name: str) -> list[str]:
        """The next runs work and end in the reference's objects."""
        for attempt in range(ATTEMPTS):
            status = case.wait(case.start(f"{name}-{attempt}"))
            if status is None:
                return [f"a run hangs: {name}"]
            if status == 0:
                break
        else:
            return [f"no run succeeds: {name}, status {status}"]
        made = _objects(case.build)
        differing = sorted(
            name for name in self.reference if made.get(name) != self.reference[name]
        )
        return [f"objects differ: {name}, {', '.join(differing)}"] if differing else []

    def _remains(self, case: Round) -> list[str]:
        deadline = time.monotonic() + GRACE_S
        while (left := self._left(case)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in case.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _left(self, case: Round) -> list[str]:
        left = [f"process left: {pid} {_command(pid)}" for pid in case.processes()]
        for kind in ("sock", "page", "reports"):
            left += [f"{kind} left: {path.name}" for path in (case.home / "run").rglob(f"*.{kind}")]
        for base in (case.tmp, Path("/dev/shm"), Path("/tmp")):
            for folder in base.glob(f"stoker-{os.getuid()}-steps*/*"):
                left.append(f"temporary files left: {folder}")
        own = (f"stoker-{os.getuid()}",)
        left += [
            f"temporary file left: {path}"
            for path in case.tmp.iterdir()
            if not path.name.startswith(own)
        ]
        groups = [path for path in self.group.path.iterdir() if path.is_dir()]
        return left + [f"cgroup left: {path.name}" for path in groups]

    def close(self) -> None:
        with suppress(OSError):
            self.group.drop()


def _program(name: str) -> Path:
    """Return the first compiler of that name that is no script."""
    folders = [*os.get_exec_path(), *map(str, Path("/usr/local").glob("cuda*/bin"))]
    paths = [Path(folder, name).resolve() for folder in folders]
    return next(path for path in paths if path.is_file() and not _is_script(path))


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _command(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace")[:200]
    return "(gone)"


def _objects(build: Path) -> dict[str, str]:
    return {
        str(path.relative_to(build)): hashlib.sha256(
            TEMPORARY.sub(b"tmpxft", path.read_bytes())
        ).hexdigest()
        for path in sorted(build.rglob("*.o"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="copies to run at the same time")
    parser.add_argument("--cuda", action="store_true", help="compile kernels with nvcc")
    parser.add_argument("--cache", choices=("none", "ccache"), default="none")
    parser.add_argument("--small", action="store_true", help="build less, with less memory")
    parser.add_argument("--tiny", action="store_true", help="build many small files in C")
    parser.add_argument("--only", choices=list(FAULTS), help="inject only this fault")
    parser.add_argument("--round", type=int, help="repeat one round by its seed")
    parser.add_argument("--json", type=Path, help="write the counts here instead of results/")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # a worker
    arguments = parser.parse_args()
    if arguments.round is not None and not arguments.only:
        parser.error("--round needs --only FAULT, as the failed round has printed it")
    commit = _commit()
    done = _run_rounds(arguments) if arguments.alone else _run_workers(arguments)
    machine = read_machine()
    result = {
        "machine": f"{platform.machine()}, {machine.cpu.usable} CPUs, "
        f"memory cgroup of {size(_load(arguments).limit)}",
        "commit": commit,
        "minutes": round(done.minutes, 1),
        "seed": arguments.seed,
        "workers": arguments.workers,
        "cuda": arguments.cuda,
        "cache": arguments.cache,
        "faults": dict(sorted(done.faults.items())),
        "interventions": {name: done.interventions[name] for name in INTERVENTIONS},
        "longest_wait_s": round(done.longest_wait_s, 1),
        "failures": done.failures,
    }
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    elif not arguments.only:
        _store(result, _stored_file(arguments))
    return 1 if done.failures else 0


def _commit() -> str:
    """Return the commit that is tested; "+" marks changes of what is tested that it lacks."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    changed = subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "src", "launcher"])
    return f"{head}+" if changed else head


def _load(arguments: argparse.Namespace) -> Load:
    return TINY if arguments.tiny else SMALL if arguments.small else LARGE


def _stored_file(arguments: argparse.Namespace) -> Path:
    kind = ("cuda" if arguments.cuda else "cxx") + ("-small" if arguments.small else "")
    kind += "-tiny" if arguments.tiny else ""
    kind += "-ccache" if arguments.cache == "ccache" else ""
    return RESULTS / f"torture-{kind}-{platform.machine()}.json"


def _stored_runs(file: Path) -> list[dict[str, Any]]:
    stored = json.loads(file.read_text()) if file.exists() else {"runs": []}
    return list(stored.get("runs", [stored]))  # one run alone before there was a list


def _store(result: dict[str, Any], file: Path) -> None:
    """Add a run to the stored ones, with the sums over all."""
    runs = [*_stored_runs(file), result]
    minutes = round(sum(run["minutes"] for run in runs), 1)
    faults = dict(sorted(_rounds(runs).items()))
    sums = {"minutes": minutes, "rounds": sum(faults.values()), "faults": faults}
    never = sorted(set(_faults(cuda=result["cuda"])) - faults.keys())
    sums |= {"never": never, "runs": runs}
    file.write_text(json.dumps(sums, indent=2) + "\n")


def _faults(*, cuda: bool) -> list[str]:
    """Return the faults of a kind of build; odd compiles are of C++."""
    return [name for name in FAULTS if not (cuda and name == ODD)]


def _rounds(runs: list[dict[str, Any]]) -> Counter[str]:
    """Return how many rounds each fault had."""
    return sum((Counter(run["faults"]) for run in runs), Counter[str]())


class Done(NamedTuple):
    minutes: float
    faults: Counter[str]
    interventions: Counter[str]
    longest_wait_s: float
    failures: list[dict[str, object]]


def _turns(chance: random.Random, before: Counter[str], *, cuda: bool) -> Iterator[str]:
    """Yield faults in a random order, those with the fewest rounds first."""
    rounds = before.copy()
    faults = _faults(cuda=cuda)
    while True:
        names = chance.sample(faults, len(faults))
        yield (name := min(names, key=rounds.__getitem__))
        rounds[name] += 1


def _run_rounds(arguments: argparse.Namespace) -> Done:
    """Torture until the time is over."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-torture-"))
    load = _load(arguments)
    torture = Torture(folder, arguments.seed, load, cuda=arguments.cuda, cache=arguments.cache)
    counts: Counter[str] = Counter()
    failures: list[dict[str, object]] = []
    began = time.monotonic()
    seeds = random.Random(arguments.seed)
    before = _rounds(_stored_runs(_stored_file(arguments)))
    turns = _turns(random.Random(arguments.seed), before, cuda=arguments.cuda)
    while time.monotonic() - began < arguments.minutes * 60:
        seed = seeds.randrange(1 << 32) if arguments.round is None else arguments.round
        started = time.monotonic()
        name = arguments.only or next(turns)
        wrong = torture.round(seed, name)
        counts[name] += 1
        seconds = time.monotonic() - started
        print(
            f"{name:16} round {seed:10}  {seconds:5.1f} s  {'; '.join(wrong) or 'ok'}", flush=True
        )
        if wrong:
            failures.append({"fault": name, "seed": arguments.seed, "round": seed, "wrong": wrong})
            kept = folder / f"failed-{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(torture.place, kept, symlinks=True, ignore=_sockets)
        if arguments.round is not None:
            break
    torture.close()
    if not failures:
        shutil.rmtree(folder)
    minutes = (time.monotonic() - began) / 60
    return Done(minutes, counts, torture.interventions, torture.longest_wait_s, failures)


def _sockets(folder: str, names: list[str]) -> list[str]:
    """Return the files of a folder that cannot be copied."""
    return [name for name in names if Path(folder, name).is_socket()]


# Each worker sees only its own processes and temporary folders, so it can tell what it left. It
# ends with this program, though unshare ignores SIGTERM.
ALONE = ["setpriv", "--pdeathsig", "KILL", "unshare"]
ALONE += ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
ALONE += ['mount -t tmpfs tmpfs /dev/shm && mount --bind "$0" /tmp && exec "$@"']


def _run_workers(arguments: argparse.Namespace) -> Done:
    """Run one process for each worker; return the sums of what they report."""
    folder = Path(tempfile.mkdtemp(prefix="stoker-torture-", dir="/var/tmp"))
    workers = []
    for number in range(arguments.workers):
        place, file = folder / str(number), folder / f"{number}.json"
        place.mkdir()
        command = [*ALONE, str(place), sys.executable, __file__, "--alone"]
        command += ["--json", str(file)]
        command += ["--minutes", str(arguments.minutes), "--seed", str(arguments.seed + number)]
        command += ["--cache", arguments.cache]
        command += ["--cuda"] if arguments.cuda else []
        command += ["--small"] if arguments.small else []
        command += ["--tiny"] if arguments.tiny else []
        command += ["--only", arguments.only] if arguments.only else []
        command += ["--round", str(arguments.round)] if arguments.round is not None else []
        workers.append(subprocess.Popen(command))
    for worker in workers:
        worker.wait()
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    failures = [failure for result in results for failure in result["failures"]]
    if len(results) < arguments.workers:
        failures.append({"wrong": [f"{arguments.workers - len(results)} workers died"]})
    if failures:
        print(f"logs of failed rounds: {folder}")
    else:
        shutil.rmtree(folder)
    faults, interventions = Counter[str](), Counter[str]()
    for result in results:
        faults.update(result["faults"])
        interventions.update(result["interventions"])
    minutes = sum(result["minutes"] for result in results)
    longest_wait_s = max((result["longest_wait_s"] for result in results), default=0.0)
    return Done(minutes, faults, interventions, longest_wait_s, failures)


if __name__ == "__main__":
    sys.exit(main())
