"""A small project of C++ files, a redis server and the counters of ccache, for tests of caches."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from governed import Build, wait_until
from stoker.model.caching import CacheUse

FILES = ("one", "two", "three")
RULES = """
rule cxx
  command = g++ -O1 -I$root -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule nvcc
  command = nvcc -gencode=arch=compute_80,code=sm_80 -MD -MF $out.d -c $in -o $out
"""


class CachedProject:
    """A folder with sources and a build.ninja, and a cache in another folder."""

    def __init__(self, build: Build, cache: Path, name: str = "project"):
        self._build = build
        self.root = build.folder / name
        self.cache = cache
        self.environment = {"STOKER_CACHE": "ccache", "CCACHE_DIR": str(cache)}
        self.root.mkdir()
        (self.root / "stoker.toml").touch()
        (self.root / "common.h").write_text("#pragma once\nconst char *name();\n")
        for file in FILES:
            text = f"#include <common.h>\nint {file}() {{ return name()[0]; }}\n"
            (self.root / f"{file}.cpp").write_text(text)
        edges = (f"build {file}.o: cxx {self.root}/{file}.cpp\n" for file in FILES)
        self.write_rules("".join(edges))

    def write_rules(self, edges: str) -> None:
        out = self.root / "out"
        out.mkdir(exist_ok=True)
        (out / "build.ninja").write_text(f"root = {self.root}\n{RULES}{edges}")

    def build(self, *options: str, **environment: str) -> tuple[int, CacheUse]:
        """Compile everything again; return the governed steps and what the cache had."""
        for made in (self.root / "out").glob("*.o"):
            made.unlink()
        summary = self._build.summary(
            "ninja", "-C", str(self.root / "out"), options=options, **self.environment | environment
        )
        assert summary.cache is not None
        return summary.steps, summary.cache

    def counters(self) -> dict[str, int]:
        """Return ccache's own statistics."""
        printed = subprocess.check_output(
            ["ccache", "--print-stats"], env=os.environ | self.environment, text=True
        )
        return {name: int(value) for name, value in map(str.split, printed.splitlines())}

    def forget(self) -> None:
        shutil.rmtree(self.cache)


class Redis:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int):
        self.process = process
        self.url = f"redis://127.0.0.1:{port}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_redis(program: str, *options: str) -> Iterator[Redis]:
    port = free_port()
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", *options]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), "redis answers")
        yield Redis(process, port)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
