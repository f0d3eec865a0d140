"""Which code runs on which GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.knowledge.gpus import cuda_archs, gpus, runs_on
from stoker.model.variant import Backend, GpuTarget

CAPABILITIES = [row.arch for row in gpus().values() if row.backend is Backend.CUDA]
EXACT = {"5.3", "6.2", "7.2", "8.7", "10.1"}


def test_the_exact_chips_are_those_of_the_boards() -> None:
    assert {row.arch for row in gpus().values() if row.exact} == EXACT


@pytest.mark.parametrize(
    ("target", "gpu", "way"),
    [
        ("8.0", "8.0", "cubin"),
        ("8.0", "8.6", "cubin"),
        ("8.0", "8.9", "cubin"),
        ("8.6", "8.0", None),
        ("8.9", "8.6", None),
        ("9.0", "8.9", None),
        ("8.0", "9.0", None),
        ("9.0", "10.0", None),
        ("10.0", "10.3", "cubin"),
        ("12.0", "12.1", "cubin"),
        ("12.0", "10.0", None),
        # 8.7 is compatible with no other architecture: it runs only its own code.
        ("8.7", "8.7", "cubin"),
        ("8.0", "8.7", None),
        ("8.6", "8.7", None),
        ("8.7", "8.9", None),
        ("6.1", "6.2", None),
        ("7.0", "7.2", None),
        ("7.2", "7.5", None),
        ("10.0", "10.1", None),
        ("10.1", "10.3", None),
        # Suffixes.
        ("9.0a", "9.0", "cubin"),
        ("10.0a", "10.0", "cubin"),
        ("10.0a", "10.3", None),
        ("12.0a", "12.1", None),
        ("10.0f", "10.0", "cubin"),
        ("10.0f", "10.3", "cubin"),
        ("10.3f", "10.0", None),
        ("10.0f", "12.0", None),
        ("12.0f", "12.1", "cubin"),
    ],
)
def test_machine_code(target: str, gpu: str, way: str | None) -> None:
    assert runs_on(GpuTarget(arch=target), gpu) == way


@pytest.mark.parametrize(
    ("target", "gpu", "way"),
    [
        ("8.0", "9.0", "ptx"),
        ("8.0", "12.1", "ptx"),
        ("8.0", "8.7", "ptx"),
        ("8.6", "8.7", "ptx"),
        ("10.0", "10.1", "ptx"),
        ("8.0", "8.6", "cubin"),  # machine code needs no compiling at load
        ("9.0", "8.9", None),
        ("8.9", "8.7", None),
        ("9.0a", "10.0", None),
        ("9.0a", "9.0", "cubin"),
        ("10.0f", "12.0", None),
        ("10.0f", "10.3", "cubin"),
    ],
)
def test_ptx(target: str, gpu: str, way: str | None) -> None:
    assert runs_on(GpuTarget(arch=target, ptx=True), gpu) == way


@given(st.sampled_from(cuda_archs()), st.sampled_from(CAPABILITIES))
def test_rules_that_hold_for_every_pair(arch: str, gpu: str) -> None:
    target = GpuTarget(arch=arch)
    bare, with_ptx = runs_on(target, gpu), runs_on(GpuTarget(arch=arch, ptx=True), gpu)
    assert bare in ("cubin", None)
    assert with_ptx == "cubin" if bare else with_ptx in ("ptx", None)
    if arch.rstrip("af") == gpu:
        assert bare == "cubin"
    if target.capability > GpuTarget(arch=gpu).capability:
        assert with_ptx is None
    if bare and {arch.rstrip("af"), gpu} & EXACT:
        assert arch.rstrip("af") == gpu
