"""What a command compiles for, and how that differs from the targets of a plan."""

import shlex
from typing import Any

import pytest

from stoker.govern.command_line import step_of
from stoker.model.variant import Backend, PlannedTargets
from stoker.plan.compiled import (
    DeviceCompile,
    device_compile,
    difference,
    kernels,
    unserved,
    where_from,
)


def compiled(command: str) -> DeviceCompile | None:
    return device_compile(step_of(tuple(shlex.split(command)), "/src/build", "/src"))


def found(command: str) -> DeviceCompile:
    result = compiled(command)
    assert result
    return result


@pytest.mark.parametrize(
    ("flags", "cubins", "ptx"),
    [
        ("-gencode arch=compute_90,code=sm_90", ("9.0",), ()),
        ("-gencode=arch=compute_90a,code=sm_90a", ("9.0a",), ()),
        ("--generate-code=arch=compute_75,code=[compute_75,sm_75]", ("7.5",), ("7.5",)),
        ("--generate-code=arch=compute_90,code=compute_90", (), ("9.0",)),
        ("-arch=sm_80", ("8.0",), ("8.0",)),
        ("-arch sm_80", ("8.0",), ("8.0",)),
        ("-arch=compute_80 -code=sm_80,sm_86", ("8.0", "8.6"), ()),
        (
            "-gencode arch=compute_100f,code=sm_100f -gencode arch=compute_120,code=sm_120",
            ("10.0f", "12.0"),
            (),
        ),
    ],
)
def test_targets_of_nvcc(flags: str, cubins: tuple[str, ...], ptx: tuple[str, ...]) -> None:
    result = found(f"nvcc {flags} -c ../k.cu -o k.o")
    assert (result.cubins, result.ptx, result.backend) == (cubins, ptx, Backend.CUDA)
    assert result.source == "k.cu"


def test_no_flag_is_the_default_of_the_compiler() -> None:
    assert found("nvcc -c ../k.cu -o k.o").default
    assert found("nvcc -arch=native -c ../k.cu -o k.o").native


def test_targets_of_hip() -> None:
    command = "/opt/rocm/bin/hipcc --offload-arch=gfx942 --offload-arch=gfx90a -c ../k.hip -o k.o"
    result = found(command)
    assert (result.backend, result.cubins) == (Backend.ROCM, ("gfx942", "gfx90a"))
    clang = found("clang++ -x hip --offload-arch=gfx1100 -c ../k.cpp -o k.o")
    assert (clang.backend, clang.cubins) == (Backend.ROCM, ("gfx1100",))


def test_nvcc_takes_other_suffixes_as_cuda_if_it_is_told() -> None:
    command = "nvcc -x cu -gencode arch=compute_90,code=sm_90 -c ../k.cpp -o k.o"
    assert found(command).cubins == ("9.0",)


def test_clang_compiles_cuda_too() -> None:
    result = found("clang++ -x cuda --cuda-gpu-arch=sm_90 -c ../k.cu -o k.o")
    assert (result.backend, result.cubins) == (Backend.CUDA, ("9.0",))


@pytest.mark.parametrize(
    "command",
    [
        "g++ -c ../k.cpp -o k.o",
        "nvcc -arch=sm_75 -E ../k.cu -o k.ii",
        "nvcc -arch=sm_75 -c CMakeFiles/CMakeScratch/TryCompile-a/k.cu -o k.o",
        "nvcc -arch=sm_75 -dlink k.o -o d.o",
        "nvcc -c ../host.c -o host.o",
        "nvcc -c ../host.cpp -o host.o",
    ],
)
def test_other_commands_compile_no_device_code(command: str) -> None:
    assert compiled(command) is None


def planned(*cubins: str, **others: Any) -> PlannedTargets:
    backend = Backend.ROCM if cubins and cubins[0].startswith("gfx") else Backend.CUDA
    return PlannedTargets(backend=backend, gpus=cubins, cubins=cubins, **others)


def nvcc(*codes: str) -> DeviceCompile:
    flags = " ".join(f"-gencode arch=compute_{c},code=sm_{c}" for c in codes)
    return found(f"nvcc {flags} -c ../k.cu -o k.o")


@pytest.mark.parametrize("codes", [("90",), ("90a",), ("80", "90")])
def test_what_the_plan_states_is_no_difference(codes: tuple[str, ...]) -> None:
    assert difference(planned("8.0", "9.0"), nvcc(*codes)) is None


def test_other_targets_are_named() -> None:
    said = difference(planned("9.0"), nvcc("75", "80"))
    assert said == "planned sm_90, this command compiles for sm_75, sm_80"


def test_targets_of_single_kernels_are_accepted() -> None:
    assert difference(planned("9.0", accepted=("10.0a",)), nvcc("90", "100a")) is None
    ptx = found("nvcc -gencode arch=compute_80,code=compute_80 -c ../k.cu -o k.o")
    assert difference(planned("9.0"), ptx)
    assert difference(planned("9.0", accepted=("8.0+PTX",)), ptx) is None


def test_ptx_alone_does_not_stand_in_for_machine_code() -> None:
    ptx = found("nvcc -gencode arch=compute_90,code=compute_90 -c ../k.cu -o k.o")
    assert "PTX of 9.0 only" in (difference(planned("9.0"), ptx) or "")
    assert difference(planned("9.0", ptx=("9.0",)), ptx) is None


def test_a_default_and_the_gpus_of_this_machine_are_no_choice() -> None:
    default, native = found("nvcc -c ../k.cu -o k.o"), found("nvcc -arch=native -c ../k.cu -o k.o")
    assert "default target" in (difference(planned("9.0"), default) or "")
    assert "native" in (difference(planned("9.0"), native) or "")


def test_another_language() -> None:
    hip = found("hipcc --offload-arch=gfx942 -c ../k.hip -o k.o")
    assert "planned cuda" in (difference(planned("9.0"), hip) or "")
    assert difference(planned("gfx942"), hip) is None
    assert "gfx942" in (difference(planned("gfx90a"), hip) or "")


def test_a_plan_without_targets_accepts_any() -> None:
    assert difference(planned(), nvcc("75")) is None


def test_planned_targets_that_no_command_compiles_for() -> None:
    assert unserved(planned("8.0", "9.0"), [nvcc("80")]) == ("9.0",)
    assert unserved(planned("8.0", "9.0"), [nvcc("80"), nvcc("90a")]) == ()


def test_hints_say_where_the_targets_come_from() -> None:
    hints = where_from(planned("9.0", set_by=("A=90",), choices=("B (setup.py:7)",)))
    assert hints[:2] == ("the plan set A=90", "the build takes its targets from B (setup.py:7)")
    assert "--accept-targets" in hints[-1]


def test_targets_of_each_kernel() -> None:
    commands = ("nvcc -arch=sm_80 -c ../a.cu -o a.o", "g++ -c ../b.cpp -o b.o")
    steps = [step_of(tuple(shlex.split(c)), "/src/build", "/src") for c in commands]
    (kernel,) = kernels(steps)
    assert (kernel.source, kernel.targets) == ("a.cu", ("sm_80", "PTX of 8.0"))
