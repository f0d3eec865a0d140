"""Compiles on other machines with real icecc: a scheduler, two workers, and their faults."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from commands.test_distribute import write_rules
from compiler_caches import free_port
from conftest import Need, missing
from governed import Build, finished, wait_until

pytestmark = pytest.mark.heavy
FILES = 8
NETWORK = "stoker-test"


class Cluster:
    """A scheduler, the daemon of this machine, which takes no jobs itself, and two workers.

    All have the same address, which icecc allows in its own test mode. A daemon takes no jobs while
    the CPUs are busy, so it reads a /proc/stat that never changes.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self.port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "stat").write_bytes(Path("/proc/stat").read_bytes())
        shutil.chown(folder, "icecc")

    def start(self) -> None:
        self._start("scheduler", "icecc-scheduler", "-p", str(self.port), "-n", NETWORK)
        for name in ("here", "one", "two"):
            self._start_daemon(name)
        wait_until(lambda: self.log("scheduler").count("login ") == 3, "the scheduler knows all")

    def _start(self, name: str, *words: str) -> None:
        log = ("-l", str(self._folder / f"{name}.log"), "-vvv")
        environment = os.environ | {"ICECC_TESTS": "1", "ICECC_TEST_SOCKET": self.socket(name)}
        self._processes[name] = subprocess.Popen([*words, *log], env=environment)

    def _start_daemon(self, name: str) -> None:
        base = self._folder / name
        base.mkdir()
        shutil.chown(base, "icecc")
        mount = f'mount --bind {self._folder}/stat /proc/stat && exec iceccd "$@"'
        words = ["unshare", "--mount", "sh", "-c", mount, "sh", "-N", name, "-n", NETWORK]
        words += ["-s", f"127.0.0.1:{self.port}", "-b", str(base), "-p", str(free_port())]
        self._start(name, *words, *(["--no-remote", "-m", "0"] if name == "here" else ["-m", "2"]))

    def socket(self, name: str) -> str:
        return str(self._folder / f"{name}.sock")

    def log(self, name: str) -> str:
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def compiled(self) -> dict[str, int]:
        """Return how many compiles the scheduler knows to have succeeded, by worker."""
        ends = [line for line in self.log("scheduler").splitlines() if " status=0 " in line]
        names = [line.rpartition("server=")[2] for line in ends]
        return {name: names.count(name) for name in set(names)}

    def stop(self, *names: str) -> None:
        """Kill processes of the cluster; all of them if none is named."""
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiler that workers are sent."""
    if not shutil.which("icecc-create-env"):
        missing("icecc-create-env is not on the PATH")
    folder = tmp_path_factory.mktemp("toolchain")
    words = ["icecc-create-env", "--gcc", "/usr/bin/gcc", "/usr/bin/g++"]
    fast = os.environ | {"GZIP": "-1"}
    quiet = subprocess.DEVNULL
    subprocess.run(words, cwd=folder, env=fast, check=True, stdout=quiet, stderr=quiet)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture
def cluster(need: Need) -> Iterator[Cluster]:
    for program in ("iceccd", "icecc-scheduler", "unshare"):
        need(program)
    if os.getuid() != 0:
        missing("only root can start workers, which change their root folder")
    with TemporaryDirectory() as folder:  # pytest's own is closed to the user that workers run as
        found = Cluster(Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.stop()


@pytest.fixture
def sources(build: Build, cluster: Cluster, toolchain: Path) -> Build:
    build.environment |= {
        "ICECC_TEST_SOCKET": cluster.socket("here"),
        "ICECC_TEST_REMOTEBUILD": "1",  # a worker at the address of this machine is used as well
        "ICECC_VERSION": str(toolchain),
    }
    write_rules(build, FILES)
    return build


def test_workers_compile_everything_but_cuda(sources: Build, cluster: Cluster, need: Need) -> None:
    """icecc cannot be told not to compile here, but what it compiles here is a step here."""
    options = ["--distribute", f"icecc:127.0.0.1:{cluster.port}"]
    summary = sources.summary(options=options)
    assert (summary.steps, summary.remote_steps) == (FILES, FILES)
    assert sum(cluster.compiled().values()) == FILES
    assert set(cluster.compiled()) == {"one", "two"}
    need("nvcc")
    (sources.folder / "kernel.cu").write_text("__global__ void kernel(int *p) { *p = 1; }\n")
    with (sources.folder / "build.ninja").open("a") as rules:
        rules.write("rule cu\n  command = nvcc -MD -MF $out.d -c $in -o $out\n")
        rules.write("build kernel.o: cu kernel.cu\n")
    done = sources.run(options=options)
    assert done.status == 0, done
    assert "1 CUDA compiles ran here: icecc distributes C and C++ only" in done.err
    assert sum(cluster.compiled().values()) == FILES


def test_workers_that_die_the_scheduler_and_the_daemon_cost_no_step(
    sources: Build, cluster: Cluster
) -> None:
    options = ["--distribute", f"icecc:127.0.0.1:{cluster.port}"]
    write_rules(sources, 24)
    run = sources.start(options=options)
    wait_until(lambda: "one" in cluster.compiled(), "the first worker has compiled something")
    cluster.stop("one")
    done = finished(run)
    assert done.status == 0, done
    assert "of them compiled by workers" in done.err
    assert len(list(sources.folder.glob("*.o"))) == 24

    cluster.stop("two")
    for answers in (True, False):  # the scheduler has no worker left, then it is gone as well
        for made in sources.folder.glob("*.o"):
            made.unlink()
        done = sources.run(options=["--distribute", "icecc"])
        assert done.status == 0, done
        assert "24 C and C++ compiles ran here: icecc chose this machine or found no" in done.err
        assert "24 steps" in done.err
        named = sources.run("true", options=options)
        text = "has no workers" if answers else "does not answer"
        assert f"icecc is not used: its scheduler 127.0.0.1 {text}" in named.err
        if answers:
            cluster.stop("scheduler")

    cluster.stop("here")
    gone = sources.run("true", options=options)
    assert gone.err.count("icecc is not used: its daemon, iceccd, does not run") == 1, gone
