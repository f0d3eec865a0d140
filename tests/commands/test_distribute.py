"""Compiles on other machines with real distcc: workers that work, die, or were never there."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from compiler_caches import free_port
from conftest import Need, Stoker
from governed import Build, finished, wait_until
from memory_groups import MakeGroup
from stoker.model.runs import RunSummary
from unit.launcher.preloaded import build as built

FILES = 8
MIB = 1 << 20
FAKED = ("LD_PRELOAD=", "FAKETIME=")
# libfaketime leaves files in /dev/shm that are named by the number of a process which was killed or
# replaced itself. Another process with that number fails, and distcc then compiles here.
_PRIVATE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "")
OWN_SHARED_MEMORY = () if os.getuid() else _PRIVATE

# Stands for a large compile: it needs 60 MiB for a moment. The preprocessor needs nothing.
STAND_IN = r"""
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(words[i], "-o") == 0)
            return fclose(fopen(words[i + 1], "w"));
    return 1;
}
"""
LARGE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    const char *output = NULL;
    int preprocess = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "-o") == 0)
            output = words[i + 1];
        preprocess |= strcmp(words[i], "-E") == 0;
    }
    if (!preprocess) {
        char *memory = malloc(60 << 20);
        memset(memory, 1, 60 << 20);
        usleep(30000);
    }
    FILE *file = output ? fopen(output, "w") : stdout;
    return fputs("int made;\n", file) < 0;
}
"""


class Worker:
    """A distccd on this machine, at a port of its own."""

    def __init__(self, distccd: str, folder: Path, slots: int, **variables: str):
        self.port = free_port()
        self.log = folder / f"distccd-{self.port}.log"
        words = [distccd, "--no-detach", "--daemon", "--jobs", str(slots), "--log-level", "info"]
        words += ["--listen", "127.0.0.1", "--port", str(self.port), "--allow", "127.0.0.1"]
        words += ["--log-stderr", *(["--user", "distccd"] if not os.getuid() else [])]
        set_here = [f"{name}={value}" for name, value in variables.items()]
        words = [*OWN_SHARED_MEMORY, "env", *set_here, *words]
        self.host = f"127.0.0.1:{self.port}/{slots}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(words, start_new_session=True, stderr=log)
        wait_until(lambda: "daemon started" in self.log.read_text(), "the worker runs")

    def compiled(self) -> int:
        """Return how many files of the build it has compiled."""
        lines = self.log.read_text().splitlines()
        return sum("COMPILE_OK" in line and "probe.cpp" not in line for line in lines)

    def stop(self) -> None:
        """Kill it with the processes that it has forked."""
        with ExitStack() as stack:
            stack.callback(self._process.wait)
            if self._process.poll() is None:
                os.killpg(self._process.pid, 9)


@contextmanager
def workers(distccd: str, folder: Path, count: int) -> Iterator[list[Worker]]:
    found = [Worker(distccd, folder, 2) for _ in range(count)]
    try:
        yield found
    finally:
        for worker in found:
            worker.stop()


@pytest.fixture
def sources(build: Build, need: Need, tmp_path: Path) -> Build:
    """A build of several C++ files; what distcc remembers of its hosts is the test's own."""
    need("distcc")
    need("g++")
    state = tmp_path / "distcc"
    state.mkdir()
    build.environment["DISTCC_DIR"] = str(state)
    write_rules(build, FILES)
    return build


def write_rules(build: Build, files: int) -> None:
    edges = []
    for number in range(files):
        (build.folder / f"s{number}.cpp").write_text(f"int f{number}() {{ return {number}; }}\n")
        edges.append(f"build s{number}.o: cxx s{number}.cpp\n")
    rule = "rule cxx\n  command = g++ -MD -MF $out.d -c $in -o $out\n"
    (build.folder / "build.ninja").write_text(rule + "".join(edges))


def hosts(found: list[Worker]) -> str:
    return "distcc:" + " ".join(worker.host for worker in found)


def test_workers_compile_everything_and_nothing_runs_here(
    sources: Build, need: Need, tmp_path: Path
) -> None:
    with workers(need("distccd"), tmp_path, 2) as found:
        options = ["--distribute", hosts(found)]
        summary = sources.summary(options=options, DISTCC_FALLBACK="0")
        assert (summary.steps, summary.remote_steps) == (FILES, FILES)
        assert sum(worker.compiled() for worker in found) == FILES
        assert all(worker.compiled() for worker in found)


def test_a_cache_sends_only_what_it_lacks(sources: Build, need: Need, tmp_path: Path) -> None:
    need("ccache")
    with workers(need("distccd"), tmp_path, 1) as found:
        options = ["--distribute", hosts(found), "--cache", "ccache"]
        for hits in (0, FILES):
            for made in sources.folder.glob("*.o"):
                made.unlink()
            summary = sources.summary(options=options, DISTCC_FALLBACK="0")
            sent = FILES - hits
            assert (summary.steps, summary.remote_steps, summary.cache_hits) == (sent, sent, hits)
        assert found[0].compiled() == FILES


def test_a_worker_that_dies_in_the_build_loses_no_step(
    sources: Build, need: Need, tmp_path: Path
) -> None:
    write_rules(sources, 24)
    with workers(need("distccd"), tmp_path, 2) as found:
        run = sources.start(options=["--distribute", hosts(found)])
        wait_until(lambda: found[0].compiled() > 0, "the first worker has compiled something")
        found[0].stop()
        done = finished(run)
        assert done.status == 0, done
        assert len(list(sources.folder.glob("*.o"))) == 24


@pytest.mark.slow
def test_without_workers_compiles_run_here_under_the_governor(sources: Build) -> None:
    options = ["--distribute", f"distcc:127.0.0.1:{free_port()}/50"]
    refused = sources.run(options=options, DISTCC_FALLBACK="0")
    assert refused.status != 0, refused
    done = sources.run(options=options)
    assert done.status == 0, done
    assert f"{FILES} C and C++ compiles ran here: distcc found no worker" in done.err
    assert f"{FILES} steps" in done.err


def test_a_worker_with_another_compiler_or_none_is_left_out(
    sources: Build, need: Need, tmp_path: Path
) -> None:
    """distcc itself would return the other compiler's objects."""
    need("clang++")
    with TemporaryDirectory() as folder, ExitStack() as stack:  # pytest's is closed to workers
        # distcc may ask for the compiler by its full name, where this machine has it.
        for name in ("g++", f"{platform.machine()}-linux-gnu-g++"):
            other = Path(folder, name)
            other.write_text('#!/bin/sh\nexec clang++ "$@"\n')
            other.chmod(0o755)
        Path(folder).chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        distccd = need("distccd")
        right, wrong = Worker(distccd, tmp_path, 2), Worker(distccd, tmp_path, 2, PATH=path)
        stack.callback(right.stop)
        stack.callback(wrong.stop)
        gone = f"127.0.0.1:{free_port()}"
        options = ["--distribute", f"distcc:{right.host} {wrong.host} {gone}"]
        done = sources.run(options=options, CXX="g++", DISTCC_FALLBACK="0")
        assert done.status == 0, done
        assert (right.compiled(), wrong.compiled()) == (FILES, 0)
        assert done.err.count(f"{wrong.host} is not used: its compiler makes another") == 1, done
        assert done.err.count(f"{gone} is not used: it does not compile") == 1, done
        right.stop()
        alone = sources.run("true", options=["--distribute", f"distcc:{wrong.host}"], CXX="g++")
        assert "distcc is not used: no worker has the compiler of this machine" in alone.err


def test_a_worker_whose_clock_is_wrong_makes_the_same_objects(
    sources: Build, need: Need, tmp_path: Path
) -> None:
    done = sources.run()
    assert done.status == 0, done
    ours = {file.name: file.read_bytes() for file in sources.folder.glob("*.o")}
    shows = [*OWN_SHARED_MEMORY, need("faketime"), "-f", "-2d", "env"]
    shown = subprocess.check_output(shows, text=True)
    faked = dict(line.split("=", 1) for line in shown.splitlines() if line.startswith(FAKED))
    assert len(faked) == len(FAKED)
    worker = Worker(need("distccd"), tmp_path, 2, **faked)
    with ExitStack() as stack:
        stack.callback(worker.stop)
        for name in ours:
            (sources.folder / name).unlink()
        summary = sources.summary(options=["--distribute", hosts([worker])])
    assert summary.remote_steps == FILES, worker.log.read_text()
    assert {file.name: file.read_bytes() for file in sources.folder.glob("*.o")} == ours
    assert b"no work to do" in sources.run().out


def test_cuda_compiles_run_here_and_it_is_said(sources: Build, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin/nvcc"
    nvcc.parent.mkdir()
    built(nvcc.parent, "nvcc", STAND_IN)
    (sources.folder / "kernel.cu").touch()
    (sources.folder / "build.ninja").write_text(
        "rule cu\n  command = nvcc -MD -MF $out.d -c $in -o $out\nbuild kernel.o: cu kernel.cu\n"
    )
    path = f"{nvcc.parent}{os.pathsep}{os.environ['PATH']}"
    done = sources.run(options=["--distribute", "distcc:127.0.0.1:9/4"], PATH=path)
    assert done.status == 0, done
    assert "1 CUDA compiles ran here: distcc distributes C and C++ only" in done.err


def test_public_addresses_need_trust(sources: Build, stoker: Stoker) -> None:
    refused = sources.run("true", options=["--distribute", "distcc:8.8.8.8"])
    assert refused.status == 2, refused
    assert "--trust-network" in refused.err
    trusted = stoker("plan", "cpu", "--distribute", "distcc:8.8.8.8", "--trust-network")
    assert trusted.returncode == 0, trusted


@pytest.mark.slow
def test_many_compiles_that_fall_back_at_once_stay_within_memory(
    sources: Build, make_group: MakeGroup, tmp_path: Path
) -> None:
    """Together they need 4 GB, and the kernel enforces 1 GB."""
    write_rules(sources, 60)
    programs = tmp_path / "bin"
    programs.mkdir()
    built(programs, "g++", LARGE)
    group = make_group("distributed")
    group.set_limit(1024 * MIB)
    file = tmp_path / "summary.json"
    run = sources.start(
        options=["--distribute", f"distcc:127.0.0.1:{free_port()}/60", "--summary", str(file)],
        prefix=group.enter,
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
    )
    done = finished(run)
    assert done.status == 0, done
    summary = msgspec.json.decode(file.read_bytes(), type=RunSummary)
    assert (summary.steps, summary.remote_steps, summary.oom_kills) == (60, 0, 0)
    assert summary.limit_bytes <= 1024 * MIB
