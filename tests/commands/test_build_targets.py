"""`stoker build` ends as soon as a build compiles for other GPU targets than its plan states."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from builds import Project, Record
from conftest import Need, Stoker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[[str], Project]
FOR_H100 = ("--variant", "cuda-sm90")
HERE = (*FOR_H100, "--isolation", "none")


@pytest.fixture
def make(stoker: Stoker, tmp_path: Path, need: Need) -> Make:
    need("nvcc")
    need("ninja")
    return lambda name: Project(stoker, tmp_path, name)


def objects(project: Project) -> list[Path]:
    """Return the objects of kernels, below the tree and below stoker's own folders."""
    return [*project.tree.rglob("*.cu.o"), *project.out.rglob("*.cu.o")]


def test_a_cmake_project_without_a_recipe_is_stopped_after_configure(make: Make) -> None:
    project = make("mini-gpu")
    done = project.build(*FOR_H100, "--no-ask")
    assert done.returncode != 0
    assert "planned sm_90, this command compiles for sm_75" in done.stderr
    assert "MYLIB_GPU_ARCH (CMakeLists.txt:7)" in done.stderr
    assert "compile " not in done.stderr  # the stage was not reached


def test_the_same_project_with_its_variable_is_built(make: Make) -> None:
    project = make("mini-gpu")
    record = project.built(*FOR_H100, "-D", "MYLIB_GPU_ARCH=90")
    assert record.compiled() == ["first.cu", "host.cpp", "second.cu"]
    kernels = {Path(source).name: made for source, made in record.record["kernels"].items()}
    assert kernels == {"first.cu": ["sm_90"], "second.cu": ["sm_90"]}


@pytest.mark.usefixtures("_closed_room")
@pytest.mark.parametrize("name", ["mini-gpu", "mini-kernels"])
def test_a_build_that_is_asked_says_which_variable_chooses_its_targets(
    make: Make, name: str
) -> None:
    project = make(name)
    done = project.build(*HERE)
    assert done.returncode == 0, done.stderr
    record = Record(json.loads(done.stdout))
    kernels = {Path(source).name: made for source, made in record.record["kernels"].items()}
    assert kernels == {"first.cu": ["sm_90"], "second.cu": ["sm_90"]}
    asked = json.loads((record.folder / "asked.json").read_text())
    assert asked["cubins"] == ["9.0"]


def test_a_build_that_configured_without_the_back_end(make: Make) -> None:
    done = make("mini-gpu").build(*FOR_H100, "-D", "MYLIB_WITH_GPU=OFF")
    assert done.returncode != 0
    assert "configured without cuda" in done.stderr


def test_a_package_that_calls_nvcc_itself_is_stopped_at_its_first_compile(make: Make) -> None:
    project = make("mini-kernels")
    done = project.build(*HERE, "--no-ask")
    assert done.returncode != 0
    assert "first.cu: planned sm_90, this command compiles for sm_75, sm_80" in done.stderr
    assert "MINI_GPU_ARCHS (tools/choices.py:13)" in done.stderr
    assert not objects(project)


def test_targets_that_are_accepted_are_built(make: Make) -> None:
    record = make("mini-kernels").built(*HERE, "--accept-targets")
    assert record.compiled() == ["first.cu", "second.cu"]


def test_the_right_variable_builds_each_kernel_once(make: Make) -> None:
    project = make("mini-kernels")
    record = project.built(*HERE, "-D", "MINI_GPU_ARCHS=90")
    assert record.compiled() == ["first.cu", "second.cu"]
    with zipfile.ZipFile(record.wheel) as wheel:
        assert any(name.endswith(".so") for name in wheel.namelist())


def test_a_package_that_compiles_no_kernel_is_not_called_done(make: Make) -> None:
    done = make("mini-kernels").build(*HERE, "-D", "MINI_BUILD_KERNELS=0")
    assert done.returncode != 0
    assert "configured without cuda: no command of its build compiles device code" in done.stderr


FIXED = ("return (os.environ", 'return ["75", "80", "90"] or (os.environ')


def kernels_of(record: Record) -> dict[str, list[str]]:
    return {Path(source).name: made for source, made in record.record["kernels"].items()}


def device_code(stoker: Stoker, wheel: Path) -> set[str]:
    """Return the targets of all device code in a wheel."""
    facts = json.loads(stoker("inspect", str(wheel), "--json").stdout)
    return {code["arch"] for library in facts["libraries"] for code in library["device_code"]}


@pytest.mark.usefixtures("_closed_room")
def test_targets_that_a_package_fixes_itself_are_left_out(stoker: Stoker, make: Make) -> None:
    project = make("mini-kernels")
    project.change("tools/choices.py", *FIXED)
    done = project.build(*HERE, "--cache", "ccache")
    assert done.returncode == 0, done.stderr
    record = Record(json.loads(done.stdout))
    assert kernels_of(record) == {"first.cu": ["sm_90"], "second.cu": ["sm_90"]}
    assert device_code(stoker, record.wheel) == {"sm_90"}
    targets = record.record["plan"]["targets"]
    assert targets["cubins"] == ["9.0"]
    left_out = ["arch=compute_75,code=sm_75", "arch=compute_80,code=sm_80"]
    assert targets["left_out"] == left_out
    # A cache must not return these objects for the whole list of targets, nor the reverse.
    whole = project.built(*HERE, "--keep-targets", "--ask", "--cache", "ccache")
    everything = ["sm_75", "sm_80", "sm_90"]
    assert kernels_of(whole) == {"first.cu": everything, "second.cu": everything}
    assert device_code(stoker, whole.wheel) == set(everything)
    assert whole.record["plan"]["targets"]["left_out"] == []
    # The record is enough to build the same again.
    repeated = project.built("--from-record", str(record.folder), "--isolation", "none", "--fresh")
    assert device_code(stoker, repeated.wheel) == {"sm_90"}
    assert repeated.record["plan"]["targets"]["left_out"] == left_out


@pytest.mark.usefixtures("_closed_room")
def test_targets_that_a_cmake_project_fixes_itself_are_left_out(make: Make) -> None:
    project = make("mini-gpu")
    project.change("CMakeLists.txt", '"${MYLIB_GPU_ARCH}-real"', '"75-real;90-real"')
    done = project.build(*FOR_H100)
    assert done.returncode == 0, done.stderr
    record = Record(json.loads(done.stdout))
    assert kernels_of(record) == {"first.cu": ["sm_90"], "second.cu": ["sm_90"]}
