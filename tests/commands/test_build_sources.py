"""`stoker build` from archives and git; and sources that it must refuse, with nothing left."""

import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from builds import Project, Record
from conftest import PROJECTS, Need, Stoker, missing
from repositories import bare_copy, repository, served, with_submodule

MINI = PROJECTS / "mini-cmake"


pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture(autouse=True)
def _tools(need: Need) -> None:
    for tool in ("cmake", "ninja", "c++"):
        need(tool)


@pytest.fixture
def project(stoker: Stoker, tmp_path: Path) -> Project:
    try:
        import scikit_build_core  # noqa: F401
    except ImportError:
        missing("scikit-build-core is not installed")
    return Project(stoker, tmp_path, "mini-wheel")


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
    return stoker("build", *words, "--variant", "cpu", "--out", str(out))


@pytest.mark.slow
def test_an_archive(stoker: Stoker, tmp_path: Path) -> None:
    done = built(stoker, tmp_path / "out", str(packed(tmp_path / "mini.tar.gz")))
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_dir()
    again = built(stoker, tmp_path / "out", str(tmp_path / "mini.tar.gz"))
    assert "compile    unchanged" in again.stderr


def test_a_tag_with_a_submodule(stoker: Stoker, tmp_path: Path) -> None:
    project = in_git(tmp_path / "project")
    other = repository(tmp_path / "other", {"x.txt": "x"})
    with_submodule(project, other, "third_party/other", tag="v1.1")
    done = built(stoker, tmp_path / "out", str(project), "--tag", "v1.1", "--target", "help")
    assert done.returncode == 0, done.stderr
    assert "fetched third_party/other" in done.stderr


@pytest.mark.heavy
def test_credentials_are_written_nowhere(
    stoker: Stoker, tmp_path: Path, stoker_home: Path, project: Project
) -> None:
    """Neither those of the URL, nor those of options and variables; not in the wheel either."""
    files = {
        str(path.relative_to(project.tree)): path.read_text()
        for path in project.tree.rglob("*")
        if path.is_file()
    }
    files["CMakeLists.txt"] += 'set(MY_TOKEN "" CACHE STRING "")\n'
    bare_copy(tmp_path / "project.git", repository(tmp_path / "repository", files, tag="v1"))
    words = ("--variant", "cpu", "--out", str(tmp_path / "out"), "--json", "-D", "MY_TOKEN=s3cr3t")
    with served(tmp_path, login="me:p@s3cr3t") as url:
        source = f"{url.replace('//', '//me:p@s3cr3t@')}/project.git@v1"
        done = stoker("build", source, *words, DB_PASS="s3cr3t", X="http://u:s3cr3t@h")
    assert done.returncode == 0, done.stderr
    assert "s3cr3t" not in done.stdout + done.stderr
    built = Record(json.loads(done.stdout))
    assert built.record["request"]["source"] == f"{url}/project.git@v1"
    written = [path for path in stoker_home.rglob("*") if path.is_file()]
    build = Path(built.record["work"]) / "build"  # CMake itself keeps what it was told there
    told = [path for path in written if b"s3cr3t" in path.read_bytes()]
    assert [path for path in told if not path.is_relative_to(build)] == []
    with zipfile.ZipFile(built.wheel) as archive:
        assert all(b"s3cr3t" not in archive.read(name) for name in archive.namelist())
    assert built.folder.stat().st_mode & 0o777 == 0o700
    records = [path for path in built.folder.iterdir() if path.suffix == ".json"]
    assert {path.stat().st_mode & 0o777 for path in records} == {0o600}
    again = stoker(
        "build", "--from-record", str(built.folder), str(tmp_path / "repository"), *words
    )
    assert again.returncode == 0, again.stderr
    assert "MY_TOKEN: ***" not in again.stderr


def test_a_command_line_is_remembered_without_secrets(
    stoker: Stoker, stoker_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.c").write_text("int x;\n")
    words = ("--token=s3cr3t", "https://me:s3cr3t@host/")
    done = stoker("run", "--", "sh", "-c", 'cc -c "$0/x.c" -o "$0/x.o"', str(tmp_path), *words)
    assert done.returncode == 0, done.stderr
    listed = stoker("history").stdout
    assert "sh -c" in listed
    assert "s3cr3t" not in listed
    state = [path for path in stoker_home.rglob("*") if path.is_file()]
    assert [path for path in state if b"s3cr3t" in path.read_bytes()] == []


def test_errors_show_no_credentials(stoker: Stoker) -> None:
    done = stoker("build", "htps://me:s3cr3t@host/x.git")
    assert done.returncode == 2
    assert "s3cr3t" not in done.stderr


def escaping(folder: Path) -> list[str]:
    info = tarfile.TarInfo("../escaped")
    info.size = 1
    return [str(packed(folder / "escaping.tar.gz", info))]


def no_such_tag(folder: Path) -> list[str]:
    return [f"{in_git(folder / 'project')}@v1.9"]


def no_server_answers(_: Path) -> list[str]:
    return ["http://127.0.0.1:9/project.git@v1"]


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        (escaping, 1, "'../escaped' would be written outside"),
        (no_such_tag, 2, "the nearest: v1.0"),
        (no_server_answers, 4, "cannot reach http://127.0.0.1:9/project.git"),
    ],
)
def test_a_bad_source_leaves_nothing(
    stoker: Stoker, tmp_path: Path, source: Callable[[Path], list[str]], status: int, said: str
) -> None:
    done = built(stoker, tmp_path / "out", *source(tmp_path))
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "escaped").exists()
