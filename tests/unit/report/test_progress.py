"""A run as it goes: lines are pure functions of what happened; views write nothing else."""

import io
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.model.events import (
    AnyEvent,
    Overview,
    RunningStep,
    StepEnds,
    StepRepeats,
    StepStarts,
    Warned,
)
from stoker.model.runs import RunSummary
from stoker.report.progress import (
    JsonView,
    LiveView,
    LogView,
    Progress,
    View,
    bar,
    make_view,
    notable,
    plain,
    status_line,
    steps_line,
    summary_text,
    unseen_text,
)

GIB = 1024**3


def overview(
    at: float = 0.0, *, repeats: int = 0, running: tuple[RunningStep, ...] = ()
) -> Overview:
    return Overview(
        at=at, run=1, limit=8 * GIB, used=2 * GIB, other_usage=0, running=running, waiting=30,
        done=5, repeats=repeats, total=35,
    )  # fmt: skip


def step(title: str, memory: int) -> RunningStep:
    return RunningStep(step=1, title=title, seconds=1.0, memory=memory)


def ends(status: int) -> StepEnds:
    return StepEnds(at=0.0, step=1, run=1, title="a.cpp", status=status, seconds=1.0, peak=GIB)


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0, 4, "........"),
        (1, 4, "##......"),
        (4, 4, "########"),
        (9, 4, "########"),
        (-1, 4, "........"),
        (1, 0, "........"),
    ],
)
def test_bar(part: float, whole: float, expected: str) -> None:
    assert bar(part, whole, 8) == expected


@given(st.integers(), st.integers(), st.integers(0, 50))
def test_a_bar_is_as_wide_as_it_must_be(part: int, whole: int, width: int) -> None:
    assert len(bar(part, whole, width)) == width


def test_status_line() -> None:
    steps = "memory #####............... 2.0 GiB of 8.0 GiB | 5 of 35 done, 0 running"
    unknown = " | time left unknown"
    assert status_line(overview()) == f"{steps}, 30 queued{unknown}"
    assert status_line(replace(overview(), waiting=0)) == f"{steps}{unknown}"
    assert status_line(overview(repeats=2)) == f"{steps}, 30 queued, 2 repeated{unknown}"
    hits = replace(overview(), cache_hits=3)
    assert status_line(hits) == f"{steps}, 30 queued, 3 from the cache{unknown}"
    left = replace(overview(), seconds_left=90.0)
    assert status_line(left) == f"{steps}, 30 queued | 90 s left"
    named = replace(left, stage="compile")
    assert status_line(named) == f"compile | {steps}, 30 queued | 90 s left"


def test_the_largest_step_comes_first_and_folders_are_left_out() -> None:
    running = (step("src/a.cpp", GIB), step("src/b.cu", 2 * GIB))
    assert steps_line(overview(running=running)) == "b.cu 2.0 GiB  a.cpp 1.0 GiB"
    assert steps_line(overview()) == ""


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ends(0), ""),
        (ends(130), ""),
        (ends(1), "a.cpp: failed with status 1"),
        (Warned(at=0.0, text="beware"), "beware"),
        (StepStarts(at=0.0, step=1, run=1, title="a.cpp", waited=1.0), ""),
        (
            StepRepeats(
                at=0.0, step=1, run=1, title="a.cpp", why="preempted", seconds=8.0, peak=GIB
            ),
            "a.cpp: preempted after 8 s at 1.0 GiB; it will be run again",
        ),
        (overview(), ""),
    ],
)
def test_what_is_worth_a_line(event: AnyEvent, text: str) -> None:
    assert notable(event) == text


@given(st.text())
def test_a_terminal_obeys_no_file_name(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)


def test_a_log_tells_now_and_then_how_it_stands() -> None:
    stream = io.StringIO()
    view = LogView(stream)
    for at in (1.0, 29.0, 31.0, 32.0, 62.0):
        view.show(overview(at))
    view.show(Warned(at=63.0, text="two\nlines"))
    lines = stream.getvalue().splitlines()
    assert lines == [f"stoker: {status_line(overview())}"] * 2 + ["stoker: two?lines"]


def test_json_lines_are_all_events() -> None:
    stream = io.StringIO()
    for event in (overview(), ends(0)):
        JsonView(stream).show(event)
    assert [line.split('"')[3] for line in stream.getvalue().splitlines()] == ["overview", "ends"]


def test_a_live_view_without_a_terminal_tells_what_was_notable_at_the_end() -> None:
    class Nowhere(io.StringIO):
        def fileno(self) -> int:
            raise OSError

    stream = Nowhere()
    view = LiveView(stream)
    view.show(overview())
    view.show(Warned(at=0.0, text="beware"))
    assert stream.getvalue() == ""
    view.close()
    assert stream.getvalue() == "stoker: beware\n"


def test_a_reader_that_has_gone_does_not_stop_the_build() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    for view in (LogView(Gone()), JsonView(Gone())):
        view.show(Warned(at=0.0, text="beware"))


@pytest.mark.parametrize(
    ("progress", "kind"),
    [
        (Progress.AUTO, LogView),
        (Progress.LIVE, LiveView),
        (Progress.LOG, LogView),
        (Progress.JSON, JsonView),
        (Progress.QUIET, View),
    ],
)
def test_views(progress: Progress, kind: type[View]) -> None:
    assert type(make_view(progress, io.StringIO())) is kind


@pytest.mark.parametrize(("terminal", "kind"), [("xterm", LiveView), ("dumb", LogView)])
def test_a_terminal_that_can_do_nothing_gets_a_log(
    monkeypatch: pytest.MonkeyPatch, terminal: str, kind: type[View]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", terminal)
    stream: TextIO = Terminal()
    assert type(make_view(Progress.AUTO, stream)) is kind


def test_other_processes_are_named_where_they_take_much_of_the_limit() -> None:
    view = overview()
    assert "2.0 GiB of 8.0 GiB | " in status_line(replace(view, other_usage=GIB // 2))
    assert "2.0 GiB of 8.0 GiB, others 3.0 GiB | " in status_line(
        replace(view, other_usage=3 * GIB)
    )


def test_the_end_of_a_run() -> None:
    summary = RunSummary(
        status=0, steps=40, wall_s=50.0, cpu_s=90.0, governor_cpu_s=0.1, peak_bytes=7 * GIB,
        limit_bytes=8 * GIB, oom_kills=1, preemptions=2, retries=3, lower_bound_s=45.0,
        reserving_bound_s=46.0, policy="adaptive", cpus=2,
    )  # fmt: skip
    assert summary_text(summary) == (
        "stoker: 40 steps in 50 s on 2 CPUs (adaptive)\n"
        "  memory: peak 7.0 GiB of 8.0 GiB; 1 OOM kills, 2 preemptions, 3 attempts repeated\n"
        "  theoretical minimum 45 s (90% of the actual time)\n"
    )
    assert "  memory: limit 8.0 GiB; 1 OOM" in summary_text(replace(summary, peak_bytes=0))
    assert "12 s of CPU time" in unseen_text(12.3)
