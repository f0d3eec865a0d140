"""No row of the history stops a governor: a row that cannot be used is skipped and named."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import governed_steps as make
import served_history
from fuzz_seeds import SEEDS
from stoker.govern.history.store import History
from stoker.govern.history.trace import read_trace
from stoker.govern.policy.predict import Knowledge, Predictor
from stoker.govern.policy.profile import profile_of
from stoker.govern.server.history_writer import HistoryWriter
from stoker.model.govern import PARTS, Collector, CompileMode, Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome

ASKED = [("g++", "-c", source, "-o", "a.o") for source in ("a.cpp", "b.cpp", "a.cpp")]
ROW = msgspec.json.decode(next(SEEDS["past"]()).splitlines()[0], type=dict[str, object]) | {
    "profile": b""
}


def imported(folder: Path, **figures: float) -> None:
    """Import a trace with one step, as `stoker history --import` does."""
    step = {"source": "a.cpp", "wall_s": 100.0, "peak_bytes": 8e9} | figures
    trace = read_trace(msgspec.json.encode({"steps": [step]}), "trace.json")
    with served_history.home(folder) as path, History(path) as history:
        run = history.start_run("imported", "/")
        for record in trace.steps:
            history.add(run, Attempt(record=record, started=0.0, outcome=Outcome.DONE))


def served(folder: Path) -> str:
    with served_history.home(folder):
        return served_history.serve(folder, ASKED).decode()


def test_a_trace_of_a_step_that_idles_and_then_needs_much_does_not_stop_the_governor(
    tmp_path: Path,
) -> None:
    imported(tmp_path, byte_seconds=1e8)  # a mean of 0.0001 of the peak
    assert "skipped" not in served(tmp_path)


def test_the_profile_of_such_a_step_is_low_until_its_end() -> None:
    profile = profile_of(make.record("a.cpp", peak=8e9, seconds=100.0, byte_seconds=1e8))
    assert len(profile) == PARTS
    assert (profile[PARTS // 2], profile[-1]) == (1, 100)


@pytest.mark.parametrize(
    "damage",
    [
        {"wall_s": "long"},
        {"peak_bytes": -1},
        {"cpu_s": 1e300},
        {"role": "to compile"},
        {"flags": "[[[["},
        {"profile": b"\xff" * PARTS},
    ],
    ids=str,
)
def test_a_row_that_cannot_be_read_is_skipped_and_named(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    with served_history.home(tmp_path) as path:
        served_history.store(path, [ROW, {**ROW, **damage, "source": "src/damaged.cpp"}])
    heard = served(tmp_path)
    assert "1 record of the history cannot be used and was skipped: src/damaged.cpp" in heard


def test_many_such_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    served_history.store(path, [{**ROW, "source": f"{n}.cpp", "wall_s": -1} for n in range(5)])
    writer = HistoryWriter(path)
    writer.predictor()
    writer.close()
    said = (
        "5 records of the history cannot be used and were skipped: 4.cpp, 3.cpp, 2.cpp and 2 more"
    )
    assert writer.skipped == said


STEPS = st.builds(
    Step,
    key=st.sampled_from("ab"),
    role=st.sampled_from(Role),
    source=st.sampled_from(["a.cpp", "b.cu", ""]),
    archs=st.sampled_from([(), ("90",), ("90", "100", "120")]),
    threads=st.integers(0, 1 << 20),
    input_bytes=st.integers(0, 1 << 60),
    collector=st.sampled_from(Collector),
)
RECORDS = st.builds(
    StepRecord,
    step=STEPS,
    wall_s=st.floats(0, 1e10),
    cpu_s=st.floats(0, 1e10),
    peak_bytes=st.integers(0, 1 << 60),
    byte_seconds=st.none() | st.floats(0, 1e28),
    profile=st.lists(st.integers(0, 100), max_size=3).map(tuple),
    mode=st.sampled_from(CompileMode),
)


def _in_mode(mode: CompileMode, peak: int) -> StepRecord:
    step = Step(key="k", role=Role.CXX, source="a.cc", directory="/b", collector=Collector.FREE)
    return StepRecord(step=step, wall_s=1.0, cpu_s=1.0, peak_bytes=peak, mode=mode)


@example([_in_mode(CompileMode.DEFAULT, 0), _in_mode(CompileMode.LEAN, 1 << 60)])
@example([_in_mode(CompileMode.DEFAULT, 1 << 60), _in_mode(CompileMode.LEAN, 0)])
@given(st.lists(RECORDS, max_size=5))
def test_every_valid_record_can_be_learned_and_predicted(records: list[StepRecord]) -> None:
    predictor = Predictor(records)
    for record in records:
        predicted = predictor.predict(record.step)
        assert 0 <= predicted.peak <= predicted.high
        predictor.effects(record.step)
        predictor.faster(record.step)
    assert predictor.unusable == []
    content = msgspec.msgpack.encode(predictor.knowledge())
    assert Predictor(known=msgspec.msgpack.decode(content, type=Knowledge)).knowledge()
