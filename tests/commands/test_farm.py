"""A build in several jobs that share a checkpoint: the same objects, each compiled once."""

import shutil
from pathlib import Path

import pytest

from builds import Project
from conftest import Need, Stoker

pytestmark = pytest.mark.slow


class Machines:
    """Machines that share a checkpoint and nothing else; each builds a copy of one tree."""

    def __init__(self, stoker: Stoker, folder: Path):
        self._stoker = stoker
        self._folder = folder
        self._count = 0
        self.checkpoint = folder / "checkpoint"

    def new(self) -> tuple[Project, dict[str, str]]:
        self._count += 1
        folder = self._folder / f"machine{self._count}"
        project = Project(self._stoker, folder, "mini-cmake")
        home = str(folder / "home")
        return project, {
            "STOKER_HOME": home,
            "CCACHE_DIR": f"{home}/ccache",
            "STOKER_CACHE": "ccache",
        }

    def compiled(self, *options: str, change: tuple[str, str, str] | None = None) -> list[str]:
        """Return the sources that a new machine has compiled itself."""
        project, environment = self.new()
        if change:
            project.change(*change)
        words = ("--checkpoint", str(self.checkpoint), *options)
        return project.built(*words, **environment).compiled()


@pytest.fixture
def machines(stoker: Stoker, tmp_path: Path, need: Need) -> Machines:
    need("ccache")
    return Machines(stoker, tmp_path)


def test_two_shards_and_a_finisher_compile_every_source_once(machines: Machines) -> None:
    shares = [machines.compiled("--shard", f"{number}/2") for number in (1, 2)]
    assert sorted(shares[0] + shares[1]) == ["check.cpp", "mean.cpp", "sum.cpp"]
    assert all(shares)
    assert machines.compiled("--finish") == []
    changed = ("src/sum.hpp", "#pragma once", "#pragma once\n#define CHANGED 1")
    assert machines.compiled("--finish", change=changed), "no stale object is used"


def test_a_lost_shard_and_damaged_objects_are_compiled_again(machines: Machines) -> None:
    (first,) = [machines.compiled("--shard", "1/2")]
    everything = {"check.cpp", "mean.cpp", "sum.cpp"}
    assert set(machines.compiled("--finish")) == everything - set(first)
    for path in machines.checkpoint.glob("objects/*/*"):
        content = bytearray(path.read_bytes())
        content[-9] ^= 0xFF
        path.write_bytes(content)
    assert set(machines.compiled("--finish")) == everything
    assert machines.compiled("--finish") == []


def test_other_flags_are_refused(machines: Machines) -> None:
    machines.compiled("--shard", "1/2")
    project, environment = machines.new()
    words = ("--checkpoint", str(machines.checkpoint), "--finish")
    done = project.build(*words, **environment, CXXFLAGS="-O0")
    assert done.returncode == 2
    assert "is of another build: CXXFLAGS (there none, here -O0)" in done.stderr
    shutil.rmtree(machines.checkpoint)
    assert project.build("--shard", "1/2", **environment).returncode == 2
