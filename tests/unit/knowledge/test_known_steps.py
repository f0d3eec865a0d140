"""Shipped figures of sources, beside the build that they were measured in."""

import json
import lzma
from pathlib import Path

import msgspec
import pytest

from stoker.knowledge.compiler_modes import nvcc_rounds
from stoker.knowledge.steps import known_step
from stoker.model.govern import Step

_RESULTS = Path(__file__).parents[3] / "benchmarks/results"


@pytest.mark.parametrize("name", ["RowwiseScaledMM.cu", "GroupMM.cu", "Sort.cu"])
def test_as_long_as_in_the_measured_build(name: str) -> None:
    """Some sources are compiled for sm_90a too, which takes longer than the shipped one target."""
    with lzma.open(_RESULTS / "pytorch-2.12.1-cuda-trace.json.xz") as file:
        steps = json.load(file)["steps"]
    measured = next(step for step in steps if step.get("source", "").endswith(f"/{name}"))
    step = msgspec.convert(measured, Step, strict=False)
    known = known_step(step.role, step.source)
    assert known
    assert known.seconds * nvcc_rounds(step) == pytest.approx(measured["cpu_s"], rel=0.1)
