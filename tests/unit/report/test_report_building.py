"""A build in lines."""

import pytest

from stoker.model.build import Stage, StageEnd, StageResult
from stoker.report.building import stage_line


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (StageEnd.DONE, "  wheel      12 s\n"),
        (StageEnd.SKIPPED, "  wheel      as before\n"),
        (StageEnd.FAILED, "  wheel      failed after 12 s\n"),
    ],
)
def test_a_stage_is_a_line(end: StageEnd, said: str) -> None:
    assert stage_line(StageResult(stage=Stage.WHEEL, end=end, seconds=12.3, log="x")) == said
