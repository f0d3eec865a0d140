"""`stoker build` from archives and git; and sources that it must refuse, with nothing left."""

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PROJECTS, Stoker
from repositories import git, git_environment, repository, with_submodule

MINI = PROJECTS / "mini-cmake"


@pytest.fixture(autouse=True)
def _tools(need: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("git", "cmake", "ninja", "c++"):
        need(tool)
    for name, value in git_environment().items():
        monkeypatch.setenv(name, value)


def packed(path: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(MINI, "mini-1.0")
        for info in more:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def in_git(folder: Path) -> Path:
    files = {
        str(path.relative_to(MINI)): path.read_text() for path in MINI.rglob("*") if path.is_file()
    }
    return repository(folder, files, tag="v1.0")


def built(stoker: Stoker, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return stoker("build", *words, "--variant", "cpu", "--out", str(out), timeout=200)


def test_an_archive(stoker: Stoker, tmp_path: Path) -> None:
    done = built(stoker, tmp_path / "out", str(packed(tmp_path / "mini.tar.gz")))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_dir()
    again = built(stoker, tmp_path / "out", str(tmp_path / "mini.tar.gz"))
    assert "compile    as before" in again.stderr


def test_a_tag_with_a_submodule(stoker: Stoker, tmp_path: Path) -> None:
    project = in_git(tmp_path / "project")
    other = repository(tmp_path / "other", {"x.txt": "x"})
    with_submodule(project, other, "third_party/other", tag="v1.1")
    done = built(stoker, tmp_path / "out", str(project), "--tag", "v1.1", "--target", "help")
    assert done.returncode == 0, done.stderr
    assert "fetched third_party/other" in done.stderr


def escaping(folder: Path) -> list[str]:
    info = tarfile.TarInfo("../escaped")
    info.size = 1
    return [str(packed(folder / "escaping.tar.gz", info))]


def cut_off(folder: Path) -> list[str]:
    path = packed(folder / "cut.tar.gz")
    path.write_bytes(path.read_bytes()[:-100])
    return [str(path)]


def no_archive(folder: Path) -> list[str]:
    (folder / "page.tar.gz").write_text("<html>404</html>")
    return [str(folder / "page.tar.gz")]


def no_such_tag(folder: Path) -> list[str]:
    return [f"{in_git(folder / 'project')}@v1.9"]


def without_submodules(folder: Path) -> list[str]:
    project = in_git(folder / "project")
    other = repository(folder / "other", {"x.txt": "x"})
    with_submodule(project, other, "third_party/other")
    git(folder, "clone", "--quiet", str(project), str(folder / "clone"))
    return [str(folder / "clone")]


def nothing_there(folder: Path) -> list[str]:
    return [str(folder / "absent")]


def nobody_answers(_: Path) -> list[str]:
    return ["http://127.0.0.1:9/project.git@v1"]


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        (escaping, 1, "'../escaped' would be written outside"),
        (cut_off, 1, "it ends too early"),
        (no_archive, 1, "this is no archive"),
        (no_such_tag, 2, "the nearest: v1.0"),
        (without_submodules, 2, "submodule update --init --recursive"),
        (nothing_there, 2, "there is no"),
        (nobody_answers, 4, "cannot reach http://127.0.0.1:9/project.git"),
    ],
)
def test_a_bad_source_leaves_nothing(
    stoker: Stoker,
    tmp_path: Path,
    source: Callable[[Path], list[str]],
    status: int,
    said: str,
) -> None:
    done = built(stoker, tmp_path / "out", *source(tmp_path))
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "escaped").exists()
