"""A matrix as lines and as a table."""

from typing import Any

import pytest

from stoker.builds.matrices.matrix import MatrixEnd, MatrixJob, MatrixResult, WheelFrom
from stoker.builds.matrices.terminal_page import (
    job_begin_line,
    job_end_line,
    results_page,
    whole_line,
)
from stoker.model.plan import Quantity
from stoker.outside.terminal import show


def job(seconds: float | None = None, **changes: Any) -> MatrixJob:
    fields: dict[str, Any] = {
        "name": "fleet",
        "variant": "cu128-sm90",
        "label": "cu128.sm90",
        "made_from": WheelFrom.BUILD,
        "given": ".",
    }
    return MatrixJob(
        seconds=Quantity(amount=seconds, basis=""),
        wheel_bytes=Quantity(amount=None, basis=""),
        **(fields | changes),
    )


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        ([None], "1 wheel; the time is unknown"),
        ([60.0, 120.0], "2 wheels, about 3 min"),
        ([7200.0, None, None], "3 wheels, about 2 h 0 min; the time of 2 is unknown"),
    ],
)
def test_the_time_of_the_whole(seconds: list[float | None], line: str) -> None:
    assert whole_line([job(amount) for amount in seconds]) == line


def test_the_lines_of_a_job() -> None:
    slim = job(made_from=WheelFrom.SLIM, python="3.12")
    assert job_begin_line(2, 6, job()) == "stoker: 2 of 6: building fleet (cu128-sm90)\n"
    assert job_begin_line(3, 6, slim).startswith("stoker: 3 of 6: slimming fleet for Python 3.12 (")
    done = MatrixResult(job=job(), end=MatrixEnd.DONE, wall_s=3.0, wheel="mill.whl")
    assert job_end_line(done) == "stoker: fleet: done in 3 s: mill.whl\n"
    stopped = MatrixResult(job=job(), end=MatrixEnd.INTERRUPTED, wall_s=3.0)
    assert "the same command continues" in job_end_line(stopped)


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    made: dict[str, Any] = {"job": job(), "end": MatrixEnd.DONE, "wall_s": 9.0, "size_bytes": 3}
    rows = (
        MatrixResult(**made, wheel="a.whl", verified=True, compiles=8, cache_hits=6),
        MatrixResult(**made, wheel="b.whl", before_bytes=12, original_errors=("x", "y")),
        MatrixResult(job=job(), end=MatrixEnd.FAILED, wall_s=5.0, error="compile failed"),
    )
    show(results_page(rows))
    _, first, second, third = capsys.readouterr().out.splitlines()
    assert "75% of 8" in first
    assert "(25%)" in second
    assert "2 of the original" in second
    assert third.endswith("compile failed")
