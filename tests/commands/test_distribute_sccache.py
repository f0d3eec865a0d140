"""Compiles on real workers of sccache-dist: that work, die, start no compiler or are not ours."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from compiler_caches import free_port
from conftest import Need
from governed import Build, finished, wait_until

FILES = 8
SCHEDULER = """\
public_addr = "127.0.0.1:{port}"
client_auth = {{ type = "token", token = "client" }}
server_auth = {{ type = "token", token = "server" }}
"""
WORKER = """\
cache_dir = "{folder}/toolchains"
public_addr = "127.0.0.1:{port}"
scheduler_url = "{url}"
builder = {{ type = "overlay", build_dir = "{folder}/build", bwrap_path = "{bwrap}" }}
scheduler_auth = {{ type = "token", token = "server" }}
"""
# It passes the check of its version, and starts nothing.
BROKEN = '#!/bin/sh\ntest "$1" = --version && exec {bwrap} --version\nexit 1\n'


class Cluster:
    """A scheduler and workers on this machine. Each worker is root in a namespace of its own."""

    def __init__(self, need: Need, folder: Path):
        self._program, self._folder = need("sccache-dist"), folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bwrap = need("bwrap")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = self._start("scheduler", SCHEDULER.format(port=port))
        wait_until(lambda: "listening" in self.log.read_text(), "the scheduler runs")

    def add_worker(self, bwrap: str | None = None) -> subprocess.Popen[bytes]:
        port = free_port()
        folder = self._folder / f"worker-{port}"
        folder.mkdir()
        text = WORKER.format(folder=folder, port=port, url=self.url, bwrap=bwrap or self.bwrap)
        alone = ("unshare", "--user", "--map-root-user", "--mount")
        log = self._start("server", text, *alone)
        wait_until(lambda: "connected to scheduler" in log.read_text(), "the worker runs")
        return self._processes[-1]

    def _start(self, kind: str, text: str, *prefix: str) -> Path:
        file = self._folder / f"{kind}-{len(self._processes)}.conf"
        file.write_text(text)
        log = file.with_suffix(".log")
        environment = {**os.environ, "SCCACHE_NO_DAEMON": "1", "SCCACHE_LOG": "info"}
        environment.pop("STOKER_HOME", None)  # it is no part of a build
        words = [*prefix, self._program, kind, "--config", str(file)]
        with log.open("wb") as stream:
            process = subprocess.Popen(
                words, env=environment, stdout=stream, stderr=stream, start_new_session=True
            )
        self._processes.append(process)
        return log

    def stop(self) -> None:
        for process in self._processes:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    with ExitStack() as stack:
        stack.callback(process.wait)
        if process.poll() is None:
            os.killpg(process.pid, 9)


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(need: Need, tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running(Cluster(need, folder)) as found:
        yield found


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which sccache keeps the compiler that it has packed, for all tests."""
    return tmp_path_factory.mktemp("packed")


@pytest.fixture
def sources(build: Build, need: Need, tmp_path: Path, packed: Path) -> Build:
    need("sccache")
    need("g++")
    build.environment |= {
        "XDG_CACHE_HOME": str(packed),
        "SCCACHE_DIR": str(tmp_path / "cache"),
        "SCCACHE_DIST_TOKEN": "client",
        "STOKER_CACHE": "auto",
    }
    write_rules(build, FILES)
    return build


def write_rules(build: Build, files: int) -> None:
    edges = []
    for number in range(files):
        (build.folder / f"s{number}.cpp").write_text(f"int f{number}() {{ return {number}; }}\n")
        edges.append(f"build s{number}.o: cxx s{number}.cpp\n")
    rule = "rule cxx\n  command = g++ -MD -MF $out.d -c $in -o $out\n"
    (build.folder / "build.ninja").write_text(rule + "".join(edges))


def objects(build: Build) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in build.folder.glob("*.o")}


def clean(build: Build) -> None:
    for file in build.folder.glob("*.o"):
        file.unlink()


def test_workers_compile_everything_and_are_counted(sources: Build, cluster: Cluster) -> None:
    assert sources.run(options=["--cache", "none"]).status == 0
    ours = objects(sources)
    clean(sources)
    cluster.add_worker()
    cluster.add_worker()
    options = ["--distribute", f"sccache-dist:{cluster.url}"]
    summary = sources.summary(options=options)
    assert (summary.steps, summary.remote_steps) == (FILES, FILES)
    assert summary.cache
    assert (sum(summary.cache.workers.values()), summary.cache.fell_back) == (FILES, 0)
    assert objects(sources) == ours
    clean(sources)
    again = sources.summary(options=options)
    assert (again.steps, again.remote_steps, again.cache_hits) == (0, 0, FILES)
    assert objects(sources) == ours


def test_a_wrong_token_is_found_before_the_build_which_runs_here(
    sources: Build, cluster: Cluster
) -> None:
    cluster.add_worker()
    options = ["--distribute", f"sccache-dist:{cluster.url}"]
    done = sources.run(options=options, SCCACHE_DIST_TOKEN="other")
    assert done.status == 0, done
    assert "sccache-dist is not used" in done.err
    assert "401" in done.err
    assert len(objects(sources)) == FILES


def test_a_sandbox_that_does_not_start_is_found_before_the_build_which_runs_here(
    sources: Build, cluster: Cluster, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(BROKEN.format(bwrap=cluster.bwrap))
    broken.chmod(0o755)
    cluster.add_worker(str(broken))
    done = sources.run(options=["--distribute", f"sccache-dist:{cluster.url}"])
    assert done.status == 0, done
    assert "sccache-dist is not used" in done.err
    assert len(objects(sources)) == FILES


@pytest.mark.parametrize("listens", [True, False])
def test_without_workers_or_scheduler_the_build_runs_here(
    sources: Build, cluster: Cluster, listens: bool
) -> None:
    url = cluster.url if listens else f"http://127.0.0.1:{free_port()}"
    done = sources.run(options=["--distribute", f"sccache-dist:{url}"])
    assert done.status == 0, done
    assert "sccache-dist is not used" in done.err
    assert f"{FILES} steps" in done.err
    assert len(objects(sources)) == FILES


def test_workers_that_die_in_the_build_lose_no_step(sources: Build, cluster: Cluster) -> None:
    write_rules(sources, 24)
    workers = [cluster.add_worker(), cluster.add_worker()]
    run = sources.start(options=["--distribute", f"sccache-dist:{cluster.url}"])
    wait_until(lambda: len(objects(sources)) > 2, "workers have compiled something")
    for worker in workers:
        kill(worker)
    done = finished(run)
    assert done.status == 0, done
    assert len(objects(sources)) == 24


def test_an_error_in_a_source_is_that_of_the_compiler_here(
    sources: Build, cluster: Cluster
) -> None:
    cluster.add_worker()
    (sources.folder / "s0.cpp").write_text("int f( {\n")
    done = sources.run("ninja", "-k0", options=["--distribute", f"sccache-dist:{cluster.url}"])
    assert done.status == 1, done
    assert done.out.count(b"error: expected") == 3, done
    assert b"Job failed" not in done.out
    assert len(objects(sources)) == FILES - 1
