"""Records of finished builds, by which the next one is estimated."""

import pytest

from governed_steps import run_summary
from stoker.model.build import BuildRecord, BuildRequest
from stoker.plan.run_folder import RunFolder, fullest_build, run_name
from subjects import plan


def finished(variant: str, cpu_s: float, *, error: str | None = None) -> None:
    summary = run_summary(cpu_s=cpu_s)
    record = BuildRecord(
        stoker="1.0",
        started=0.0,
        request=BuildRequest(source="."),
        options={},
        tree="/tree",
        work="/work",
        plan=plan("cpu"),
        environment={},
        summary=summary,
        error=error,
    )
    with RunFolder(run_name("mill", variant)) as folder:
        folder.write(record)


def seconds(variant: str) -> float | None:
    found = fullest_build(run_name("mill", variant))
    return found.cpu_seconds if found else None


def test_the_build_that_compiled_most() -> None:
    assert seconds("cpu") is None
    finished("cpu", 10.0)
    finished("cpu", 90.0, error="compile failed")
    finished("cpu", 20.0)  # in the same second: its folder has a number
    assert seconds("cpu") == 20.0


@pytest.mark.parametrize("other", ["cpu-debug", "cpu-py312", "cpu-2x"])
def test_another_variant_whose_name_begins_the_same(other: str) -> None:
    finished(other, 90.0)
    assert seconds("cpu") is None
    finished("cpu", 10.0)
    assert (seconds("cpu"), seconds(other)) == (10.0, 90.0)
