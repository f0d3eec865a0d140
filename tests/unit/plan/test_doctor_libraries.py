"""Features that CMake would switch off without an error, and BLAS."""

from collections.abc import Sequence
from typing import Any

import pytest

from stoker.model.finding import Severity
from stoker.model.machine import Toolbox
from stoker.model.source import Submodule
from subjects import (
    arm_linux,
    cmake_option,
    cmake_tree,
    doctor,
    libraries,
    library,
    mac,
    named,
    names,
    python,
    pytorch_tree,
    toolbox,
    toolkit,
)


def without(*names: str, version: str = "12.4") -> Toolbox:
    return toolbox(libraries=libraries(without=names), cuda=(toolkit(version),))


EVERY_BLAS = ("mkl", "openblas", "blis", "atlas", "nvpl", "armpl", "flexiblas")
TREE = {"tree": pytorch_tree()}
WITH_NCCL, EMPTY_NCCL = (
    {"tree": pytorch_tree(submodules=(Submodule(path="third_party/nccl", present=present),))}
    for present in (True, False)
)
MPI_OFF = {"tree": pytorch_tree(options=(cmake_option("USE_MPI", "OFF"), cmake_option("USE_CUDA")))}


@pytest.mark.parametrize(
    ("words", "about", "lacking", "missed"),
    [
        pytest.param("cu124-sm90-cudnn", {}, ["cudnn"], {"cudnn"}, id="asked for, no tree"),
        pytest.param("cu124-sm90", {}, ["cudnn"], set(), id="not asked for, no tree"),
        pytest.param("cu124-sm90-nocudnn-nonccl", TREE, ["cudnn", "nccl"], set(), id="refused"),
        pytest.param("cpu", TREE, ["cudnn", "nccl", "magma"], set(), id="of CUDA, on a CPU"),
        pytest.param("cpu", MPI_OFF, ["mpi"], set(), id="off by default"),
        pytest.param("cu124-sm90", WITH_NCCL, ["nccl"], set(), id="in a submodule"),
        pytest.param("cu124-sm90", EMPTY_NCCL, ["nccl"], {"nccl"}, id="in an empty submodule"),
        pytest.param("cpu", TREE, EVERY_BLAS, {"blas"}, id="no BLAS"),
        pytest.param("cpu-eigen", {}, EVERY_BLAS, set(), id="the tree brings Eigen"),
        pytest.param("cpu", {"machine": mac()}, EVERY_BLAS, set(), id="macOS brings a BLAS"),
        pytest.param("cpu", {"tree": cmake_tree()}, EVERY_BLAS, set(), id="BLAS is PyTorch's"),
    ],
)
def test_which_libraries_are_missed(
    words: str, about: dict[str, Any], lacking: Sequence[str], missed: set[str]
) -> None:
    found = names(doctor(words, toolbox=without(*lacking), **about))
    assert {name for name in (*lacking, "blas") if f"{name}-missing" in found} == missed


@pytest.mark.parametrize("name", ["cudnn", "nccl", "magma", "cusparselt", "cufile"])
def test_a_feature_that_would_switch_itself_off(name: str) -> None:
    findings = doctor("cu124-sm90", tree=pytorch_tree(), toolbox=without(name))
    finding = named(findings, f"{name}-missing")
    assert finding.severity is Severity.WARNING
    assert "would switch itself off" in finding.title
    assert finding.fix


@pytest.mark.parametrize("name", ["cudnn", "nccl", "magma"])
def test_a_feature_that_was_asked_for_cannot_be_built(name: str) -> None:
    findings = doctor(f"cu124-sm90-{name}", tree=pytorch_tree(), toolbox=without(name))
    finding = named(findings, f"{name}-missing")
    assert finding.severity is Severity.ERROR
    assert "cannot be built" in finding.title


@pytest.mark.parametrize("value", ["0", "OFF", "off", "FALSE", "no", "N", "IGNORE", "NOTFOUND", ""])
def test_what_cmake_takes_for_false_needs_no_library(value: str) -> None:
    findings = doctor(
        "cu124-sm90", tree=pytorch_tree(), toolbox=without("cudnn"), defines={"USE_CUDNN": value}
    )
    assert "cudnn-missing" not in names(findings)


def test_half_a_library_is_evidence() -> None:
    others = libraries(without=["cudnn"])
    for half, says in (
        (library("cudnn", library=None), "only its header /usr/include/cudnn.h was found"),
        (library("cudnn", header=None), "only its library /usr/lib/libcudnn.so was found"),
    ):
        box = toolbox(libraries=(*others, half), cuda=(toolkit("12.4"),))
        findings = doctor("cu124-sm90", tree=pytorch_tree(), toolbox=box)
        assert says in named(findings, "cudnn-missing").evidence


def test_numpy_is_a_package_of_python() -> None:
    box = toolbox(python=python(packages={"setuptools": "75", "pyyaml": "6"}))
    finding = named(doctor("cpu", tree=pytorch_tree(requirements=()), toolbox=box), "numpy-missing")
    assert finding.fix == ("python3 -m pip install numpy",)


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("cu124-sm90", "python3 -m pip install nvidia-cudnn-cu12"),
        ("cu130-sm90", "stoker toolchain install cuda==13.0 --with cudnn"),
    ],
)
def test_cudnn_fits_the_cuda_of_the_plan(words: str, fix: str) -> None:
    tree = pytorch_tree(cuda_archs=())
    findings = doctor(words, tree=tree, toolbox=without("cudnn", version="13.0"))
    finding = named(findings, "cudnn-missing")
    assert finding.fix[0] == fix
    assert finding.fix[1].startswith("export CUDNN_ROOT=")


def test_any_blas_will_do_where_none_is_named() -> None:
    box = without(*(name for name in EVERY_BLAS if name != "blis"))
    assert named(doctor("cpu", tree=pytorch_tree(), toolbox=box), "blas").title == "BLAS: BLIS"


def test_no_blas_at_all_is_a_warning() -> None:
    finding = named(
        doctor("cpu", tree=pytorch_tree(), toolbox=without(*EVERY_BLAS)), "blas-missing"
    )
    assert finding.severity is Severity.WARNING
    assert "very slow" in finding.title
    assert finding.fix == ("apt-get install -y libopenblas-dev",)


@pytest.mark.parametrize(
    ("words", "value", "fix"),
    [
        ("cpu-openblas", "OpenBLAS", ("apt-get install -y libopenblas-dev",)),
        ("cpu-mkl", "MKL", ("python3 -m pip install mkl-static mkl-include",)),
        ("cpu-blis", "BLIS", ("apt-get install -y libblis-dev",)),
    ],
)
def test_a_blas_that_was_asked_for_is_an_error(
    words: str, value: str, fix: tuple[str, ...]
) -> None:
    box = without(words.removeprefix("cpu-"))
    finding = named(doctor(words, tree=pytorch_tree(), toolbox=box), "blas-missing")
    assert finding.severity is Severity.ERROR
    assert finding.title == f"{value} not found"
    assert finding.fix == fix


def test_half_a_blas_does_not_serve() -> None:
    box = toolbox(libraries=(library("openblas", header=None),))
    assert "blas-missing" in names(doctor("cpu-openblas", toolbox=box), Severity.ERROR)


def test_the_recipes_own_choice_is_only_a_warning() -> None:
    findings = doctor("cpu", machine=arm_linux(), toolbox=without("openblas"))
    assert named(findings, "blas-missing").severity is Severity.WARNING
