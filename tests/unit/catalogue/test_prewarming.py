"""`stoker install --prewarm`: commands for known caches, and refusals for all others."""

import pytest

from stoker.catalogue.prewarming import prewarmings
from stoker.catalogue.values import HostGpu
from stoker.knowledge.projects import kernel_caches
from stoker.model.errors import UsageError

H100 = HostGpu(name="H100", capability="9.0")
B200 = HostGpu(name="B200", capability="10.0")


def test_the_command_names_the_gpus_and_the_kernels() -> None:
    (made,) = prewarmings(["FlashInfer_Python"], [H100, B200, H100], "/venv/bin/python", ["norm*"])
    environment, python, option, program, *words = made.command[1:]
    assert made.command[0] == "env"
    assert environment == "FLASHINFER_CUDA_ARCH_LIST=9.0 10.0"
    assert (python, option, words) == ("/venv/bin/python", "-c", ["norm*"])
    compile(program, "program", "exec")
    assert "~/.cache/flashinfer" in made.in_words
    assert "FLASHINFER_WORKSPACE_BASE" in made.in_words


def test_without_a_gpu() -> None:
    with pytest.raises(UsageError, match="no GPU to compile kernels for"):
        prewarmings(["flashinfer-python"], [], "python", [])


@pytest.mark.parametrize("project", ["vllm", "sglang", "triton", "torch"])
def test_what_no_program_can_fill_is_refused_with_the_way_that_is_documented(project: str) -> None:
    row = kernel_caches()[project]
    with pytest.raises(UsageError) as raised:
        prewarmings(["flashinfer-python", project], [H100], "python", [])
    assert row.refusal in raised.value.message
    assert raised.value.hints[0] == row.instead[0]
    assert row.moved_by in raised.value.hints[-1]


def test_a_package_without_a_known_cache() -> None:
    with pytest.raises(UsageError, match="no kernel cache of mill") as raised:
        prewarmings(["mill"], [H100], "python", [])
    assert "flashinfer-python" in raised.value.hints[0]
