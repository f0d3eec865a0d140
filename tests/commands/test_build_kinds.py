"""`stoker build` of each kind of project: CMake alone, PyTorch by setup.py and by its back end."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from builds import Project
from conftest import Stoker

pytestmark = pytest.mark.timeout(1800)  # each build has its own timeout


def methods(wheel: Path) -> set[int]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.compress_type for info in archive.infolist()}


@pytest.mark.slow
def test_a_cmake_project_is_installed_into_a_folder(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "mini-cmake")
    with (project.tree / "CMakeLists.txt").open("a") as stream:
        stream.write("install(TARGETS sum)\n")
    built = project.built()
    assert list(built.ends) == ["prepare", "configure", "compile", "install"]
    assert (built.wheel / "lib" / "libsum.a").is_file()
    assert project.built().ends["install"] == "skipped"
    (built.wheel / "lib" / "libsum.a").unlink()
    project.change("src/sum.cpp", "0.0);", "1.0);")
    assert (project.built().wheel / "lib" / "libsum.a").is_file()
    assert [path.name for path in project.out.iterdir()] == [built.wheel.name]


@pytest.mark.slow
def test_variables_that_only_compilers_read_compile_again(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "mini-cmake")
    project.change("src/sum.cpp", "0.0);", "FIRST);")
    with (project.tree / "src/sum.cpp").open("r+") as stream:
        text = stream.read()
        stream.seek(0)
        stream.write(f"#include <first.h>\n{text}")
    for value in ("1.0", "2.0"):
        folder = tmp_path / value
        folder.mkdir()
        (folder / "first.h").write_text(f"#define FIRST {value}\n")
    assert "sum.cpp" in project.built(CPATH=str(tmp_path / "1.0")).compiled()
    assert project.built(CPATH=str(tmp_path / "1.0")).compiled() == []
    assert "sum.cpp" in project.built(CPATH=str(tmp_path / "2.0")).compiled()


@pytest.mark.slow
def test_a_project_that_installs_nothing_says_so(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "mini-cmake")
    for _ in range(2):
        done = project.build()
        assert done.returncode == 0
        assert "nothing was installed, because the project has no install rules" in done.stderr
        assert json.loads(done.stdout)["record"]["outputs"] == []
    assert list(project.out.iterdir()) == []


@pytest.mark.slow
def test_a_project_cannot_choose_where_it_is_installed(
    stoker: Stoker, tmp_path: Path, stoker_home: Path
) -> None:
    (tmp_path / "below" / "deep").mkdir(parents=True)
    project = Project(stoker, tmp_path / "below" / "deep", "mini-cmake")
    project.change("CMakeLists.txt", "project(minicmake ", 'project("../../../evil" ')
    with (project.tree / "CMakeLists.txt").open("a") as stream:
        stream.write("install(TARGETS sum)\n")
    before = {*tmp_path.iterdir(), *stoker_home.parent.iterdir()}
    built = project.built()
    assert built.wheel.parent == project.out
    assert built.folder.parent == stoker_home / "state/runs"
    assert Path(built.record["work"]).parent == stoker_home / "cache/builds"
    assert {*tmp_path.iterdir(), *stoker_home.parent.iterdir()} == before


@pytest.mark.slow
def test_pytorch_by_setup(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "small-pytorch")
    part = project.built("--target", "c10")
    assert (list(part.ends), part.compiled()) == (
        ["prepare", "configure", "compile"],
        ["Device.cpp"],
    )
    whole = project.built()
    assert whole.ends["configure"] == "skipped"
    assert whole.compiled() == ["Operators.cpp", "sum.cpp"]
    assert whole.wheel.name.startswith("torch-2.6.0+cpu-")
    # The back end only stores the files; packaging compresses them once, in parallel.
    (stored,) = (Path(whole.record["work"]) / "wheel").iterdir()
    assert methods(stored) == {zipfile.ZIP_STORED}
    assert methods(whole.wheel) == {zipfile.ZIP_DEFLATED}
    assert (project.tree / "torch" / "share" / "Torch.cmake").is_file()
    again = project.built()
    assert again.ends == dict.fromkeys(whole.ends, "skipped")
    project.change("c10/Device.cpp", "return 1", "return 2")
    changed = project.built()
    assert changed.compiled() == ["Device.cpp"]
    assert "Linking" in changed.log("compile")
    assert "Linking" not in changed.log("wheel")
    with zipfile.ZipFile(changed.wheel) as archive:
        archive.extractall(tmp_path / "installed")
    words = [sys.executable, "-c", "import torch; print(torch.add(1, 2))"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "6\n"


def test_fresh_does_not_follow_a_link_of_the_user(stoker: Stoker, tmp_path: Path) -> None:
    project = Project(stoker, tmp_path, "small-pytorch")
    disk = tmp_path / "disk2"
    (disk / "data").mkdir(parents=True)
    (disk / "data").chmod(0o555)
    (disk / "CMakeCache.txt").write_text("")
    (project.tree / "build").symlink_to(disk)
    done = project.build("--fresh")
    assert done.returncode == 5
    assert f"build is a symbolic link to {disk}" in done.stderr
    assert (project.tree / "build").readlink() == disk
    assert (disk / "CMakeCache.txt").exists()
    assert (disk / "data").stat().st_mode & 0o777 == 0o555


@pytest.mark.slow
@pytest.mark.usefixtures("_back_end")
def test_pytorch_by_scikit_build_core(stoker: Stoker, tmp_path: Path) -> None:
    """What was compiled before the back end came stays as it was."""
    project = Project(stoker, tmp_path, "mini-pytorch-skbuild")
    (project.tree / "third_party" / "protobuf").mkdir(parents=True)
    (project.tree / "third_party" / "protobuf" / "CMakeLists.txt").touch()
    (project.tree / "c10.cpp").write_text("int answer() { return 42; }\n")
    with (project.tree / "CMakeLists.txt").open("a") as stream:
        stream.write("add_library(c10 SHARED c10.cpp)\n")
        stream.write("install(TARGETS c10 LIBRARY DESTINATION torch/lib)\n")
    built = project.built()
    assert built.compiled() == ["c10.cpp"]
    assert "ninja: no work to do." in built.log("wheel")
    with zipfile.ZipFile(built.wheel) as archive:
        assert "torch/lib/libc10.so" in archive.namelist()
