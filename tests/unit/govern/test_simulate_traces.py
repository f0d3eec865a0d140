"""Traces as files: every valid form of a step, and invalid ones."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import governed_steps as make
from stoker.govern.history.trace import read_trace, write_trace
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, StepRecord, Trace


def read(*steps: dict[str, object], **more: object) -> Trace:
    return read_trace(json.dumps({"what": "w", "steps": steps, **more}).encode(), "t.json")


def test_a_step_of_a_cmake_build() -> None:
    (step,) = read(
        {
            "output": "lib/CMakeFiles/x.dir/__/core/y.cpp.o",
            "start_s": 2.0,
            "end_s": 5.5,
            "cpu_s": 3.0,
            "peak_mb": 100,
            "object_bytes": 7,
        }
    ).steps
    assert step.step.source == "core/y.cpp"
    assert step.step.role is Role.CXX
    assert (step.wall_s, step.cpu_s, step.peak_bytes) == (3.5, 3.0, 100 * 1024**2)
    assert step.byte_seconds is None


def test_a_step_named_by_its_source() -> None:
    trace = read(
        {"source": "a.cu", "archs": ["80", "90"], "wall_s": 9, "peak_gb": 1.5, "killed": True},
        {"source": "a.cu", "archs": ["90"], "wall_s": 9, "peak_gb": 1.5},
    )
    assert [step.step.output for step in trace.steps] == ["a.cu 80 90", "a.cu 90"]
    assert trace.steps[0].peak_bytes == 1_500_000_000
    assert trace.steps[0].cpu_s == 9
    assert any("1 steps were stopped" in note for note in trace.notes)


def test_a_profile_may_have_any_number_of_parts() -> None:
    first, second = read(
        {"output": "a", "wall_s": 1, "peak_bytes": 1, "profile": [0, 100]},
        {"output": "b", "wall_s": 1, "peak_bytes": 1},
    ).steps
    assert (first.profile, second.profile) == ((0, 100), ())


def test_needs_that_the_trace_does_not_make_were_there_before() -> None:
    first, second = read(
        {"output": "a", "wall_s": 1, "peak_bytes": 1, "needs": ["generated.h"]},
        {"output": "b", "wall_s": 1, "peak_bytes": 1, "needs": ["a", "generated.h"]},
    ).steps
    assert (first.needs, second.needs) == ((), ("a",))


def test_an_output_made_twice_gets_two_names() -> None:
    same = {"output": "a", "wall_s": 1, "peak_bytes": 1}
    assert [step.step.output for step in read(same, same).steps] == ["a", "a (2)"]


def test_notes_say_what_is_assumed() -> None:
    known = {"output": "a", "wall_s": 1, "peak_bytes": 1, "byte_seconds": 1}
    assert read(known, note="on a train").notes == ("on a train",)
    assert "assumed" in read({"output": "a", "wall_s": 1, "peak_bytes": 1}).notes[0]


GOOD = {"output": "a", "wall_s": 1, "peak_bytes": 1}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "without steps"),
        ([{"wall_s": 1, "peak_bytes": 1}], "neither output nor source"),
        ([{"output": "a", "peak_bytes": 1}], "no wall_s"),
        ([{"output": "a", "start_s": 1, "peak_bytes": 1}], "no wall_s"),
        ([{"output": "a", "wall_s": 1}], "no peak_bytes"),
        ([GOOD | {"wall_s": -1}], "a has a figure out of range: .*wall_s"),
        ([GOOD | {"wall_s": 1e300}], "a has a figure out of range: .*wall_s"),
        ([{"output": "a", "start_s": 2, "end_s": 1, "peak_mb": 1}], "out of range: .*wall_s"),
        ([GOOD | {"cpu_s": 1e300}], "out of range: .*cpu_s"),
        ([GOOD | {"byte_seconds": 1e300}], "out of range: .*byte_seconds"),
        ([GOOD | {"peak_bytes": -1}], "out of range: .*peak"),
        ([GOOD | {"peak_bytes": 10**30}], "out of range: .*peak"),
        ([{"output": "a", "wall_s": 1, "peak_gb": 1e300}], "out of range"),
        ([{"output": "a", "wall_s": 1, "peak_mb": 1e308}], "out of range"),
        ([GOOD | {"threads": -1}], "out of range: .*threads"),
        ([GOOD | {"threads": 10**30}], "out of range: .*threads"),
        ([GOOD | {"threads": 10**400}], "out of range: .*threads"),
        ([GOOD | {"input_bytes": 10**30}], "out of range: .*input_bytes"),
        ([GOOD | {"wall_s": "soon"}], "not a trace"),
        ([GOOD | {"profile": [10, 101]}], "not a trace"),
        ([GOOD | {"profile": [-1]}], "not a trace"),
        ([GOOD | {"profile": [0.5]}], "not a trace"),
        ([GOOD | {"role": "cook"}], "not a trace"),
        ([GOOD | {"needs": ["b"]}, GOOD | {"output": "b", "needs": ["a"]}], "need each other"),
    ],
)
def test_what_is_wrong_is_said(steps: list[dict[str, object]], words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        read(*steps)
    assert str(error.value).startswith("t.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"steps": 3}', b"null"])
def test_what_is_no_trace_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="not a trace"):
        read_trace(content, "t.json")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(UsageError):
        read_trace(content, "t.json")


@settings(max_examples=30)
@given(make.builds())
def test_what_is_written_is_read_again(steps: tuple[StepRecord, ...]) -> None:
    assert read_trace(write_trace(Trace(what="w", steps=steps)), "t").steps == steps


def test_everything_of_a_step_is_kept() -> None:
    step = Step(
        key="k",
        role=Role.CUDA,
        source="s.cu",
        output="o",
        directory="/x/build",
        compiler="nvcc",
        flags=("-O3", "--threads=2"),
        archs=("80", "90a"),
        threads=2,
        input_bytes=5,
    )
    full = StepRecord(
        step=step,
        wall_s=1.5,
        cpu_s=2.5,
        peak_bytes=10,
        byte_seconds=12.0,
        profile=(0, 100, 40),
        needs=("n",),
    )
    need = make.record("n")
    trace = Trace(what="w", steps=(need, full), notes=("x",))
    again = read_trace(write_trace(trace), "t")
    assert again.steps == trace.steps
    assert again.what == "w"
