"""Trends over runs: which run needed more, at which commit, because of which step."""

from pathlib import Path

import pytest

import governed_steps as make
from stoker.model.errors import UsageError
from stoker.model.runs import Attempt, Outcome, Run
from stoker.outside.files import write_page
from stoker.report.trends import StepCosts, change_text, costs_of, trends
from stoker.report.trends_page import scale, trends_html
from stoker.source.git_state import head_commit

GIB = 1 << 30


def run(
    number: int,
    command: str = "ninja",
    *,
    status: int = 0,
    commit: str = "",
    directory: str = "/src",
) -> Run:
    summary = make.run_summary(
        status=status, steps=3, wall_s=10.0 * number, cpu_s=8.0, peak_bytes=GIB, commit=commit
    )
    return Run(
        id=number, started=1000.0 * number, ended=None, command=command, directory=directory,
        summary=summary,
    )  # fmt: skip


def costs(**seconds: float) -> StepCosts:
    return StepCosts(seconds={f"{name}.o": amount for name, amount in seconds.items()})


def test_the_run_that_became_slower_is_named_with_its_commit_and_step() -> None:
    runs = [run(3, commit="c" * 40), run(1), run(2)]
    (found,) = trends(
        runs, {1: costs(a=5, b=5), 2: costs(a=5, b=5.2), 3: costs(a=5, b=15, new=100)}
    )
    assert [one.id for one in found.runs] == [1, 2, 3]
    (change,) = found.changes
    assert (change.run, change.before, change.step) == (3, 2, "b.o")
    assert change_text(change) == (
        "run 3 at commit cccccccc: the same steps took 96% more CPU time than in run 2, "
        "most of all b.o: 5 s -> 15 s"
    )


def test_a_small_rebuild_does_not_look_fast() -> None:
    (found,) = trends([run(1), run(2)], {1: costs(a=5, b=50), 2: costs(a=5)})
    assert found.changes == ()


def test_failed_runs_do_not_count_and_commands_are_apart() -> None:
    found = trends([run(1), run(2, "make"), run(3, status=1)], {})
    assert [(one.command, [r.id for r in one.runs]) for one in found] == [
        ("make", [2]),
        ("ninja", [1]),
    ]


def test_builds_of_a_project_and_variant_are_one_trend() -> None:
    """Each has a run folder of its own, whose name was part of the key."""
    names = [
        "20261117-185916-ujson-cpu",
        "20261117-190100-ujson-cpu-2",
        "20261117-190101-torch-cpu",
    ]
    runs = [run(at, f"stoker build {name}") for at, name in enumerate(names, 1)]
    found = trends(runs, {1: costs(a=5), 2: costs(a=15)})
    assert [(one.command, [r.id for r in one.runs]) for one in found] == [
        ("stoker build torch-cpu", [3]),
        ("stoker build ujson-cpu", [1, 2]),
    ]
    assert found[1].changes


def test_one_command_in_two_folders_is_two_trends() -> None:
    found = trends([run(1), run(2, directory="/src/other"), run(3)], {})
    assert [(one.directory, [r.id for r in one.runs]) for one in found] == [
        ("/src", [1, 3]),
        ("/src/other", [2]),
    ]


def test_a_chart_has_a_scale_and_a_dark_style() -> None:
    page = trends_html(trends([run(1), run(2), run(3)], {}))
    assert ">30 s</text>" in page
    assert ">0 s</text>" in page
    assert "@media (prefers-color-scheme: dark) { :root {\n  --page: #15181b;" in page
    assert [scale(most, (1, 2, 5, 10)) for most in (0, 3, 3.1, 15, 1000)] == [1, 1, 2, 5, 10]


def test_only_finished_attempts_cost() -> None:
    record = make.record("a.cpp", seconds=4)
    attempts = [
        Attempt(record=record, started=0.0, outcome=outcome)
        for outcome in (Outcome.PREEMPTED, Outcome.DONE)
    ]
    assert list(costs_of(attempts).seconds.values()) == [record.cpu_s]


def test_names_cannot_become_markup() -> None:
    page = trends_html(trends([run(1, "<script>alert(1)</script>\x00")], {}))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_file_that_is_not_ours_stays(tmp_path: Path) -> None:
    page, other = tmp_path / "trend.html", tmp_path / "notes.html"
    other.write_text("<p>mine</p>")
    for _ in range(2):  # our own page is replaced
        write_page(page, trends_html(()))
    with pytest.raises(UsageError, match="not a page of stoker"):
        write_page(other, trends_html(()))
    assert other.read_text() == "<p>mine</p>"
    write_page(other, trends_html(()), force=True)


def test_the_commit_is_read_from_files(tmp_path: Path) -> None:
    git, inner = tmp_path / ".git", tmp_path / "src" / "build"
    (git / "refs/heads").mkdir(parents=True)
    inner.mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert head_commit(inner) is None
    (git / "refs/heads/main").write_text("a" * 40 + "\n")
    assert head_commit(inner) == "a" * 40
