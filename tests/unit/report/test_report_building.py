"""The lines that a build prints."""

import pytest

from stoker.model.build import BuildStage, StageEnd, StageResult
from stoker.report.ci import stage_line


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (StageEnd.RUNNING, "  wheel      started (changed: tree)\n"),
        (StageEnd.DONE, "  wheel      done in 12 s\n"),
        (StageEnd.SKIPPED, "  wheel      unchanged\n"),
        (StageEnd.FAILED, "  wheel      failed after 12 s\n"),
        (StageEnd.INTERRUPTED, "  wheel      interrupted after 12 s\n"),
    ],
)
def test_a_stage_is_a_line(end: StageEnd, said: str) -> None:
    result = StageResult(stage=BuildStage.WHEEL, end=end, wall_s=12.3, log="x", why="changed: tree")
    assert stage_line(result) == said
