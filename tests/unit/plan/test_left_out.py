"""Which GPU targets of a build that names them itself are left out."""

import pytest

from stoker.model.variant import Backend, GpuTarget
from stoker.plan.compiled import DeviceCompile, cuda_targets
from stoker.plan.left_out import left_out, named_archs, without


def compiled(*values: str, option: str = "-gencode ") -> DeviceCompile:
    flags = tuple(f"{option}{value}" for value in values)
    cubins, ptx = cuda_targets(flags)
    return DeviceCompile(
        source="a.cu",
        compiler="nvcc",
        backend=Backend.CUDA,
        cubins=tuple(cubins),
        ptx=tuple(ptx),
        flags=flags,
    )


def code(*archs: str) -> list[str]:
    """Return values for machine code: ``90a``, or for PTX: ``p90``."""
    return [
        f"arch=compute_{arch[1:]},code=compute_{arch[1:]}"
        if arch.startswith("p")
        else f"arch=compute_{arch},code=sm_{arch}"
        for arch in archs
    ]


@pytest.mark.parametrize(
    ("gpu", "given", "kept"),
    [
        ("9.0", "75 80 87 90 100 120", "90"),
        ("9.0", "80 90 p90", "90"),  # PTX was not asked for
        ("9.0+PTX", "p80 80 90 p90", "90 p90"),
        ("9.0+PTX", "80 90 p80", "90 p80"),
        ("8.9", "75 80 86 90", "86"),  # the newest code that runs there
        ("8.9", "75 90 p75", "p75"),  # no machine code runs there
        ("9.0", "90 90a 100a", "90 90a"),  # kernels of either may be needed
        ("9.0a", "90 100a", "90"),
        ("10.3", "90 100f 120", "100f"),
        ("10.3", "90a 100a", "90a 100a"),  # nothing runs there: the command stays as it is
        ("7.0", "75 80 p80", "75 80 p80"),
    ],
)
def test_one_gpu(gpu: str, given: str, kept: str) -> None:
    arch, _, ptx = gpu.partition("+")
    compiles = [compiled(*code(*given.split()))]
    values = left_out(compiles, [GpuTarget(arch=arch, ptx=bool(ptx))])
    assert [value for value in code(*given.split()) if value not in values] == code(*kept.split())
    assert without(compiles[0], values).flags == compiled(*code(*kept.split())).flags


def test_each_of_several_gpus_keeps_its_code() -> None:
    gpus = [GpuTarget(arch="8.0"), GpuTarget(arch="9.0")]
    assert left_out([compiled(*code("75", "80", "86", "90"))], gpus) == tuple(code("75", "86"))


def test_a_command_keeps_what_another_one_needs_and_never_loses_all() -> None:
    first, second = compiled(*code("80", "90")), compiled(*code("80", "100"))
    other = compiled(*code("100"))
    values = left_out([first, second, other], [GpuTarget(arch="8.9")])
    assert values == tuple(code("90", "100"))
    assert without(first, values).cubins == ("8.0",)
    assert without(second, values).cubins == ("8.0",)
    assert without(other, values) == other


def test_targets_that_are_not_named_by_gencode_stay() -> None:
    compiles = [compiled("sm_75", option="-arch=")]
    assert left_out(compiles, [GpuTarget(arch="9.0")]) == ()
    assert without(compiles[0], code("75")) == compiles[0]


def test_two_kinds_of_code_in_one_value_stay_together() -> None:
    both = "arch=compute_90,code=[sm_90,compute_90]"
    values = left_out([compiled(both, *code("80"))], [GpuTarget(arch="9.0")])
    assert values == tuple(code("80"))
    assert named_archs([*values, both]) == ("8.0", "9.0", "9.0+PTX")
