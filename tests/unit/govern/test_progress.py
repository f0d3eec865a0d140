"""The progress of a run: lines are pure functions of events; views write nothing else."""

import io
import os
import re
from typing import Any, TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from governed_steps import run_summary
from stoker.govern.client.progress import (
    JsonView,
    LiveView,
    LogView,
    PageView,
    Progress,
    View,
    bar,
    begin_lines,
    fitted,
    make_view,
    memory_line,
    notable,
    page_lines,
    plain,
    progress_line,
    status_line,
    steps_line,
)
from stoker.govern.client.summary import summary_text, unseen_text
from stoker.model.events import (
    AnyEvent,
    Overview,
    RunBegins,
    RunningStep,
    StageChanges,
    StepEnds,
    StepRepeats,
    StepStarts,
    Warned,
)
from stoker.model.govern import CompileMode, Reason

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


FULL = replace(
    overview(running=(step("src/a.cpp", GIB), step("src/b.cu", 2 * GIB))),
    stage="compile",
    total=1215,
    done=412,
    seconds_left=360.0,
    cache_hits=3,
    repeats=2,
    waiting=15,
    waits={Reason.CPUS: 3, Reason.MEMORY: 12},
    other_usage=3 * GIB,
)


def test_progress_line() -> None:
    assert progress_line(overview(), 200) == (
        "build  [###.................]  5 of 35 done  time left unknown"
    )
    lines = {width: progress_line(FULL, width) for width in (100, 80, 40, 30, 12)}
    assert lines == {
        100: "compile  [#######.............]  412 of 1215 done  6 min left  2 repeated"
        "  3 from the cache",
        80: "compile  [###.....]  412 of 1215 done  6 min left  2 repeated  3 from the cache",
        40: "compile  412 of 1215 done  6 min left",
        30: "compile  412/1215  6 min left",
        12: "compile  41…",
    }


def test_a_time_that_only_grows_is_a_lower_bound() -> None:
    view = replace(FULL, at_least=True, repeats=0, cache_hits=0)
    assert progress_line(view, 50) == "compile  412 of 1215 done  at least 6 min left"


def test_without_a_graph_of_the_build_only_finished_steps_are_counted() -> None:
    view = replace(FULL, total_known=False, seconds_left=None, repeats=0, cache_hits=0)
    assert progress_line(view, 100) == "compile  412 done"
    assert progress_line(view, 14) == "compile  412"


def test_no_time_is_left_of_steps_if_none_runs_or_waits() -> None:
    view = replace(FULL, running=(), waiting=0, waits={}, repeats=0, cache_hits=0)
    assert progress_line(view, 200) == "compile  [#######.............]  412 of 1215 done"


def test_memory_line() -> None:
    assert memory_line(overview(), 200) == (
        "memory  [#####...............]  2.0 GiB of 8.0 GiB  0 running, 30 queued"
    )
    lines = {width: memory_line(FULL, width) for width in (120, 80, 40, 30)}
    assert lines == {
        120: "memory  [#####...............]  2.0 GiB of 8.0 GiB  others 3.0 GiB  "
        "2 running, 15 queued (12 for memory, 3 for a CPU)",
        80: "memory  2.0 GiB of 8.0 GiB  2 running, 15 queued (12 for memory, 3 for a CPU)",
        40: "2.0/8.0 GiB  2 running, 15 queued",
        30: "2.0/8.0 GiB  2 run, 15 wait",
    }


def test_a_log_line_has_everything() -> None:
    line = status_line(FULL)
    assert line == f"{progress_line(FULL, 999)} | {memory_line(FULL, 999)}"
    assert "others 3.0 GiB" in line


@given(st.lists(st.lists(st.text(max_size=12)), min_size=1), st.integers(0, 60))
def test_a_line_is_never_wider_than_it_may_be(lines: list[list[str]], width: int) -> None:
    assert len(fitted(lines, width)) <= width


@given(st.integers(1, 200), st.integers(0, 30), st.integers(0, 12))
def test_every_line_of_a_page_fits(columns: int, lines: int, running: int) -> None:
    steps = tuple(step(f"src/{'long' * i}{i}.cpp", i * GIB) for i in range(running))
    view = replace(FULL, running=steps)
    page = page_lines(view, columns, lines)
    assert len(page) <= lines
    assert all(len(line) <= columns for line in [*page, steps_line(view, columns)])


def test_a_page_lists_the_steps_and_why_others_wait() -> None:
    assert page_lines(FULL, 60, 20)[3:] == [
        "  2.0 GiB        1 s  src/b.cu",
        "  1.0 GiB        1 s  src/a.cpp",
        "15 steps wait: 12 for memory, 3 for a CPU",
    ]
    one = replace(FULL, waiting=1, waits={Reason.MEMORY: 1})
    assert page_lines(one, 60, 20)[-1] == "1 step waits for memory"
    many = replace(FULL, running=tuple(step(f"{i}.cpp", i) for i in range(9)), waits={})
    assert page_lines(many, 60, 8)[-1] == "and 6 more running steps"


def test_a_page_shows_the_end_of_a_path_and_the_beginning_of_a_command() -> None:
    titles = ("aten/src/ATen/native/cpu/Copy.cpp", "python3 tools/generate.py --all operators")
    view = replace(FULL, running=tuple(step(title, GIB) for title in titles))
    assert [line[22:] for line in page_lines(view, 40, 20)[3:5]] == [
        "…tive/cpu/Copy.cpp",
        "python3 tools/gen…",
    ]
    assert steps_line(view, 80).endswith("python3 generate.py --all operators 1.0 GiB")


def test_a_page_says_what_runs_and_for_how_long() -> None:
    begins = RunBegins(at=1000.0, process=7, command="ninja -C build", directory="/src")
    assert begin_lines(begins, 1042.0) == ["ninja -C build", "for 42 s, process 7, in /src"]


def test_the_largest_step_comes_first_and_folders_are_left_out() -> None:
    assert steps_line(FULL, 80) == "b.cu 2.0 GiB  a.cpp 1.0 GiB"
    assert steps_line(FULL, 26) == "b.cu 2.0 GiB  and 1 more"
    assert steps_line(FULL, 8) == "b.cu 2.…"
    assert steps_line(overview(), 80) == ""


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


def test_a_page_names_the_stage_even_if_it_has_no_steps() -> None:
    reader, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stream, os.fdopen(reader, "rb", buffering=0) as screen:
        view = PageView(stream)
        view.show(RunBegins(at=0.0, process=7, command="stoker build x", directory="/src"))
        view.show(StageChanges(at=0.0, stage="configure", end="running"))
        view.show(FULL)
        view.show(StageChanges(at=0.0, stage="verify", end="running"))
        shown = ""
        while "verify" not in shown:
            shown += screen.read(1 << 16).decode()
    pages = shown.split("\x1b[H")[1:]
    assert len(pages) == 4
    assert "stoker build x" in pages[0]
    assert "configure running" in pages[1]
    assert "compile  [" in pages[2]
    assert "verify  [" in pages[3]
    # An erasure after a line as wide as the terminal would take its last character.
    assert re.findall(r"(?<!\n)(?<!\?7l)\x1b\[\d?[JK]", shown) == []


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
    assert "others" not in memory_line(replace(view, other_usage=GIB // 2), 200)
    assert "others 3.0 GiB" in memory_line(replace(view, other_usage=3 * GIB), 200)


ENDED = run_summary(
    steps=40, wall_s=50.0, peak_bytes=7 * GIB, limit_bytes=8 * GIB, oom_kills=1, preemptions=2,
    retries=3, lower_bound_s=45.0, governed_s=50.0,
)  # fmt: skip


def test_the_end_of_a_run() -> None:
    assert summary_text(ENDED) == (
        "stoker: 40 steps in 50 s on 2 CPUs (adaptive)\n"
        "  memory: peak 7.0 GiB of 8.0 GiB; 1 OOM kill, 2 preemptions, 3 attempts repeated\n"
        "  theoretical minimum 45 s, 90% of the 50 s in which steps ran\n"
    )
    assert "  memory: limit 8.0 GiB; 1 OOM" in summary_text(replace(ENDED, peak_bytes=0))
    assert summary_text(replace(ENDED, steps=1)).startswith("stoker: 1 step in ")
    assert "12 s of CPU time" in unseen_text(12.3)
    nothing = replace(ENDED, steps=0, oom_kills=0, peak_bytes=0)
    assert summary_text(nothing) == "stoker: 0 steps in 50 s: no compile or link was governed\n"
    interrupted = replace(nothing, peak_bytes=1 << 30, status=130)  # a step ran, and did not end
    assert "no compile or link was governed" not in summary_text(interrupted)
    assert "1 OOM kill" in summary_text(replace(ENDED, steps=0))


def test_a_run_that_did_not_reach_its_end_has_no_minimum() -> None:
    failed = summary_text(replace(ENDED, status=2))
    assert failed.startswith("stoker: 40 steps in 50 s on 2 CPUs (adaptive); the command failed")
    stopped = summary_text(replace(ENDED, status=130))
    assert stopped.splitlines()[0].endswith("; interrupted")
    assert "minimum" not in failed + stopped


def test_what_other_programs_took_is_said() -> None:
    assert "other programs" not in summary_text(replace(ENDED, other_cpu_s=4.0))
    text = summary_text(replace(ENDED, other_cpu_s=61.0))
    assert "  other programs used 61% of the CPUs meanwhile (1 min 1 s of CPU time)\n" in text
    text = summary_text(replace(ENDED, stolen_cpu_s=20.0))
    assert "  the host gave 20% of the CPUs to other virtual machines meanwhile (20 s" in text
    for wall, other in ((0.2, 0.4), (0.2, 5.0), (1.5, 0.9)):  # "used 100% (0 s of CPU time)"
        short = replace(ENDED, wall_s=wall, other_cpu_s=other, stolen_cpu_s=other)
        assert "meanwhile" not in summary_text(short)
    assert "other programs" not in text


def test_the_summary_says_why_steps_are_never_preempted_if_they_are_many() -> None:
    few = {"it names no output": 0.01 * ENDED.cpu_s}
    assert "preempted" not in summary_text(replace(ENDED, once_cpu_s=few))
    many = {**few, "it may start a script": 0.5 * ENDED.cpu_s}
    text = summary_text(replace(ENDED, once_cpu_s=many))
    assert (
        "  51% of the CPU time was in steps that are never preempted, because they must not be "
        "started twice (mostly: it may start a script)\n"
    ) in text


def test_the_summary_says_what_the_modes_of_gcc_brought() -> None:
    summary = replace(
        ENDED,
        modes={CompileMode.LEAN: 40, CompileMode.LOW: 1, CompileMode.FAST: 9},
        mode_bytes={CompileMode.LEAN: -11 * GIB, CompileMode.LOW: -GIB, CompileMode.FAST: 2 * GIB},
        mode_cpu_s={CompileMode.LEAN: 30.0, CompileMode.LOW: 8.0, CompileMode.FAST: -4.0},
    )
    text = summary_text(summary)
    assert "more often in 41 steps: about 12.0 GiB less memory (sum of peaks), 38 s more" in text
    assert "less often in 9 steps: about 4 s less CPU time, 2.0 GiB more memory" in text
    opposite = {CompileMode.LEAN: GIB, CompileMode.FAST: -GIB}  # as noise has it
    text = summary_text(replace(summary, mode_bytes=opposite, mode_cpu_s={CompileMode.FAST: 4.0}))
    assert "about 0 s less CPU time, 0 B more memory" in text
    assert "about 0 B less memory (sum of peaks), 0 s more CPU time" in text


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "links: none (--linker lld)"),
        ({"links": 3}, "links: default linker (--linker lld)"),
        ({"links": 3, "modes": {CompileMode.LLD: 2}}, "links: 2 lld (--linker lld)"),
        (
            {"links": 2, "modes": {CompileMode.LLD: 2}, "link_s": 2.0, "default_link_s": 9.0},
            "links: 2 lld (--linker lld): 2 s; the default linker took 9 s before",
        ),
    ],
)
def test_the_summary_says_which_linker_was_used_and_what_it_brought(
    values: dict[str, Any], says: str
) -> None:
    lines = summary_text(replace(ENDED, linker=CompileMode.LLD, **values)).splitlines()
    assert f"  {says}" in lines
