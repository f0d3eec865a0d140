"""Stages are reported and logged, however they end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.builds.stages import StageError, StageLog, Stages
from stoker.builds.work import Work
from stoker.model.build import BuildStage, StageEnd, StageResult
from stoker.model.errors import CommandError, ExitStatus, MissingError, StokerError
from stoker.plan.run_folder import RunFolder


@pytest.fixture
def folder() -> Iterator[RunFolder]:
    with RunFolder("demo") as folder:
        yield folder


@pytest.fixture
def told() -> list[StageResult]:
    return []


@pytest.fixture
def stages(folder: RunFolder, told: list[StageResult], tmp_path: Path) -> Stages:
    return Stages(Work(tmp_path), folder, tell=told.append, echo=None, excerpt=Path.read_text)


def test_a_stage_is_done_once(stages: Stages, told: list[StageResult], tmp_path: Path) -> None:
    def act(log: StageLog) -> tuple[Path, ...]:
        log.line("working")
        return (tmp_path,)

    for _ in range(2):
        assert stages.do(BuildStage.WHEEL, act, inputs=lambda: {"tree": "1"}) == (tmp_path,)
    assert [result.end for result in told] == [StageEnd.RUNNING, StageEnd.DONE, StageEnd.SKIPPED]
    assert told[0].why == "not done before"
    assert told[1:] == stages.results


def test_inputs_that_the_stage_changes_count_as_they_are_afterwards(stages: Stages) -> None:
    state = {"tree": "1"}

    def act(_: StageLog) -> tuple[Path, ...]:
        state["tree"] = "2"
        return ()

    stages.do(BuildStage.WHEEL, act, inputs=lambda: dict(state), inputs_change=True)
    stages.do(BuildStage.WHEEL, act, inputs=lambda: dict(state), inputs_change=True)
    assert [result.end for result in stages.results] == [StageEnd.DONE, StageEnd.SKIPPED]


@pytest.mark.parametrize(
    ("raised", "status", "of_command"),
    [
        (MissingError("no cmake"), ExitStatus.MISSING, False),
        (CommandError("ninja stopped"), ExitStatus.FAILED, True),
        (OSError(28, "No space left on device"), ExitStatus.STORAGE, False),
    ],
)
def test_a_failure_has_a_name_and_a_log(
    stages: Stages, raised: Exception, status: ExitStatus, of_command: bool
) -> None:
    def act(log: StageLog) -> tuple[Path, ...]:
        log.line("fine")
        log.line("x.cpp:1: error: bad")
        raise raised

    with pytest.raises(StageError) as caught:
        stages.do(BuildStage.COMPILE, act, inputs=dict)
    assert str(caught.value).startswith("compile failed: ")
    assert caught.value.status == status
    assert caught.value.of_command is of_command
    assert caught.value.log.read_text().endswith("error: bad\n")
    assert caught.value.output.endswith("x.cpp:1: error: bad\n") is of_command
    (result,) = stages.results
    assert result.end is StageEnd.FAILED
    with pytest.raises(StokerError):  # not taken for done
        stages.do(BuildStage.COMPILE, act, inputs=dict)


def test_an_interrupt_is_told_too(stages: Stages) -> None:
    def act(_: StageLog) -> tuple[Path, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stages.do(BuildStage.COMPILE, act, inputs=dict)
    assert [result.end for result in stages.results] == [StageEnd.INTERRUPTED]


def test_inputs_that_cannot_be_read_end_the_stage(
    stages: Stages, told: list[StageResult], tmp_path: Path
) -> None:
    def inputs() -> dict[str, str]:
        return {"tree": (tmp_path / "gone").read_text()}

    with pytest.raises(StageError, match="gone: No such file") as raised:
        stages.do(BuildStage.WHEEL, lambda _: (), inputs=inputs)
    assert raised.value.status is ExitStatus.STORAGE
    assert [result.end for result in told] == [StageEnd.FAILED]
