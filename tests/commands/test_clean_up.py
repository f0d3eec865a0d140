"""`stoker clean` and `stoker clean --all` on the command line."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Stoker
from stoker.builds import work
from stoker.builds.acquire import kept_sources as sources
from stoker.govern.history.store import History
from stoker.plan import run_folder

DAY = 86_400


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = (tmp_path / "tree").resolve()
    tree.mkdir()
    return tree


def built(tree: Path, variant: str = "cpu", *, days: float = 0) -> Path:
    path = work.work_folder(tree, name="pkg", variant=variant, python="3.11")
    with work.locked(path):
        (path / "a.o").write_bytes(bytes(1 << 20))
    when = time.time() - days * DAY
    os.utime(work.build_lock(path), (when, when))
    return path


def test_clean_removes_the_builds_of_this_tree(stoker: Stoker, tree: Path, tmp_path: Path) -> None:
    mine, other = built(tree), built(tmp_path / "other")
    seen = stoker("clean", "--dry-run", cwd=tree)
    assert str(mine) in seen.stdout
    assert "1.0 MiB" in seen.stdout
    assert mine.is_dir()
    done = stoker("clean", "--yes", cwd=tree)
    assert done.returncode == 0
    assert "removed 1.0 MiB" in done.stderr
    assert not mine.exists()
    assert other.is_dir()
    assert "there is nothing to remove" in stoker("clean", "--yes", cwd=tree).stderr


def test_clean_says_which_link_it_leaves_alone(stoker: Stoker, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "disk2").mkdir()
    (tmp_path / "disk2/data").write_text("precious")
    (tree / "build").symlink_to("../disk2")
    with work.locked(work.in_tree_folder(tree)):
        pass
    done = stoker("clean", "--yes", cwd=tree, COLUMNS="300")
    assert done.returncode == 0
    assert f"left alone, a link of your own: {tree / 'build'} -> ../disk2" in done.stdout
    assert "there is nothing to remove" in done.stderr
    assert (tree / "build/data").read_text() == "precious"


def test_without_a_terminal_nothing_is_removed(stoker: Stoker, tree: Path) -> None:
    path = built(tree)
    done = stoker("clean", str(tree))
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert path.is_dir()


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_asks_on_a_terminal(tree: Path, answer: str, gone: bool) -> None:
    path = built(tree)
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "stoker", "clean", str(tree)]
    child = subprocess.Popen(
        command, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.write(leader, answer.encode())
    _, said = child.communicate(timeout=60)
    os.close(leader)
    os.close(follower)
    assert b"remove 1 item, 1.0 MiB?" in said
    assert path.exists() != gone
    assert child.returncode == 0


def test_gc_takes_what_is_old(stoker: Stoker, tree: Path) -> None:
    old, new = built(tree, "old", days=31), built(tree, "new", days=29)
    (run_folder.runs_folder() / "20200101-cpu-1").mkdir(parents=True)
    os.utime(run_folder.runs_folder() / "20200101-cpu-1", (0, 0))
    (sources.root() / "pkg-1/unpacked").mkdir(parents=True)
    done = stoker("clean", "--all", "--yes", "--json")
    assert done.returncode == 0
    page = json.loads(done.stdout)
    assert [entry["kind"] for entry in page["chosen"]] == ["builds", "runs"]
    assert [entry["kind"] for entry in page["spared"]] == ["builds", "sources"]
    assert not old.exists()
    assert new.exists()


def test_gc_of_one_kind_and_number(stoker: Stoker, tree: Path) -> None:
    paths = [built(tree, f"v{days}", days=days) for days in (1, 2, 3)]
    (sources.root() / "pkg-1/unpacked").mkdir(parents=True)
    stoker("clean", "builds", "--older-than", "0", "--keep", "1", "--yes")
    assert [path.exists() for path in paths] == [True, False, False]
    assert (sources.root() / "pkg-1").exists()
    stoker("clean", "--all", "--older-than", "0", "--yes")
    assert not (sources.root() / "pkg-1").exists()


def test_gc_of_history(stoker: Stoker) -> None:
    with History() as history:
        for _ in range(3):
            history.start_run("ninja", "/")
        history._write("UPDATE run SET started = 1, ended = 2 WHERE id < 3", ())
    done = stoker("clean", "history", "--yes", "--json")
    assert [entry["name"] for entry in json.loads(done.stdout)["chosen"]] == ["2", "1"]
    with History() as history:
        assert [run.id for run in history.runs()] == [3]


def test_what_a_build_uses_stays(stoker: Stoker, tree: Path) -> None:
    path = built(tree)
    with work.locked(path):
        done = stoker("clean", "--yes", cwd=tree, COLUMNS="300")
    assert done.returncode == 0
    assert f"in use: {path}" in done.stdout
    assert path.is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clean", "--all", "--older-than", "soon"], "try 30d"),
        (["clean", "builds", "everything"], "./builds"),
        (["clean", "--all", "--keep", "-1"], "--keep"),
        (["clean", "absent"], "there is no folder absent"),
    ],
)
def test_wrong_words(stoker: Stoker, words: list[str], said: str) -> None:
    done = stoker(*words)
    assert done.returncode == 2
    assert said in done.stderr
