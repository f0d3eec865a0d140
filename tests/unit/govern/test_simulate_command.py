"""`stoker simulate` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import governed_steps as make
from governed_steps import GB
from stoker.cli.simulate import simulate as command
from stoker.govern.history.simulating import SimulationOptions, simulate_build
from stoker.govern.history.store import History
from stoker.govern.history.trace import write_trace
from stoker.model.errors import UsageError
from stoker.model.govern import Trace
from stoker.model.runs import Attempt, Outcome
from stoker.model.value import byte_count


@pytest.fixture
def trace(tmp_path: Path) -> str:
    steps = tuple(make.record(f"{n}.cpp", seconds=5 + n, peak=GB) for n in range(20))
    path = tmp_path / "a build.json"
    path.write_bytes(write_trace(Trace(what="a build", steps=steps)))
    return str(path)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, words, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.output


def test_every_size_and_policy_gets_a_row(trace: str) -> None:
    status, text = run(trace, "--cpus", "2,8", "--memory", "4G,16G", "--policy", "adaptive,fixed:2")
    assert status == 0
    rows = [line.split() for line in text.splitlines() if "GiB" in line]
    assert [row[0] for row in rows] == ["2"] * 4 + ["8"] * 4
    assert {row[3] for row in rows} == {"adaptive", "fixed:2"}
    assert "assumed" in text


def test_results_as_json(trace: str) -> None:
    _, text = run(trace, "--cpus", "8", "--memory", "4G", "--json")
    (result,) = json.loads(text)["results"]
    assert result["cpus"] == 8
    assert result["memory_bytes"] == 4 * 1024**3
    assert result["wall_s"] >= result["bounds"]["lower_s"] > 0
    assert result["failed"] == []


def test_a_failed_step_is_a_status(trace: str) -> None:
    status, text = run(trace, "--cpus", "8", "--memory", "512M")
    assert status == 1
    assert text.splitlines()[2].split()[-1] == "20"


def test_more_of_anything_is_never_slower_here(trace: str) -> None:
    options = SimulationOptions(cpus=(4, 8), memory=(4 * GB, 40 * GB))
    _, results = simulate_build(trace, options)
    small, more_memory, more_cpus, both = (result.wall_s for result in results)
    assert both <= more_memory <= small
    assert both <= more_cpus <= small


def test_cold_knows_nothing_and_scatter_changes_peaks(trace: str) -> None:
    def wall(**more: object) -> float:
        options = SimulationOptions(cpus=(8,), memory=(5 * GB,), **more)  # type: ignore[arg-type]
        return simulate_build(trace, options)[1][0].wall_s

    assert wall(cold=True) > wall()
    assert wall(scatter=0.5) != wall()


def test_a_run_of_the_history() -> None:
    with History() as history:
        run_id = history.start_run("ninja -C build", "/src")
        for n, outcome in enumerate([Outcome.DONE, Outcome.PREEMPTED, Outcome.DONE]):
            record = make.record(f"{n}.cpp", seconds=10)
            history.add(run_id, Attempt(record=record, started=float(n), outcome=outcome))
    status, text = run(str(run_id), "--cpus", "1", "--memory", "8G")
    assert status == 0
    assert text.startswith("ninja -C build, 2 steps")
    assert "20 s" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpus", "0", "--memory", "8G"], "not numbers"),
        (["--cpus", "a", "--memory", "8G"], "not numbers"),
        (["--cpus", "8", "--memory", "8X"], "not amounts"),
        (["--cpus", "8", "--memory", "0"], "not amounts"),
        (["--cpus", "8", "--memory", "100"], "not amounts"),  # of bytes: the unit is missing
        (["--cpus", "8", "--memory", ""], "not amounts"),
        (["--cpus", "8", "--memory", "8G", "--policy", "best"], "unknown policy"),
    ],
)
def test_wrong_words_are_usage_errors(trace: str, words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(trace, *words)


@pytest.mark.parametrize("source", ["no-such-file", "99", "."])
def test_what_is_no_source_is_a_usage_error(source: str) -> None:
    with pytest.raises(UsageError):
        run(source, "--cpus", "8", "--memory", "8G")


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("8G", 8 * 1024**3),
        ("512m", 512 * 1024**2),
        (" 1.5GiB ", 3 * 1024**3 // 2),
        ("2TB", 2 * 1024**4),
        ("100", 100),
        ("-1G", None),
        ("G", None),
        ("8 apples", None),
        ("", None),
    ],
)
def test_amounts_of_memory(text: str, amount: int | None) -> None:
    assert byte_count(text) == amount
