"""Files in which compilers record their own phases."""

import json

import pytest

from stoker.model.govern import Role, Step
from stoker.report.phases import PhaseFormat, phase_file, read_phases

STEP = Step(key="1", role=Role.CUDA, source="src/a.cu", output="out/a.cu.o")
# As nvcc 13.0 writes it.
TABLE = """\
source file name , phase name , phase input files , phase output file , arch , tool, metric , unit
src/a.cu , cudafe++ , a.ii  , a.cudafe1.cpp , compute_90 , nvcc , 3740.1179 , ms
src/other.cu , cicc , b.ii , b.ptx , compute_90 , nvcc , 900.0 , ms
src/a.cu , ptxas , a.ptx , a.cubin , sm_90 , nvcc , 129.6880 , ms
src/a.cu , fatbinary , a.cubin , a.fatbin ,  , nvcc , 1.9780 , ms
src/a.cu , broken , x , y , z , nvcc , nan , ms
"""


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], None),
        (["-O2"], None),
        (["-ftime-trace"], (PhaseFormat.TRACE, "out/a.cu.json")),
        (["-ftime-trace=traces"], (PhaseFormat.TRACE, "traces/out/a.cu.json")),
        (["-ftime-trace=t.json"], (PhaseFormat.TRACE, "t.json")),
        (["--time", "times.csv", "-c"], (PhaseFormat.TABLE, "times.csv")),
        (["-time=times.csv"], (PhaseFormat.TABLE, "times.csv")),
        (["--time", "-"], None),
        (["-fdevice-time-trace", "dtt"], (PhaseFormat.TRACE, "dtt.json")),
    ],
)
def test_flags_name_the_file(flags: list[str], expected: tuple[PhaseFormat, str] | None) -> None:
    step = Step(key="1", role=Role.CUDA, output="out/a.cu.o", flags=tuple(flags))
    assert phase_file(step) == expected


def test_phases_of_nvcc_follow_each_other() -> None:
    phases = read_phases(TABLE.encode(), PhaseFormat.TABLE, STEP)
    assert [(phase.name, phase.detail) for phase in phases] == [
        ("cudafe++", "compute_90"),
        ("ptxas", "sm_90"),
    ]
    assert [phase.start for phase in phases] == pytest.approx([0, 3.7401179])


def test_short_phases_and_sums_of_clang_are_left_out() -> None:
    events = [
        {"ph": "X", "name": "Frontend", "ts": 2000, "dur": 9000, "pid": 1, "tid": 1},
        {"ph": "X", "name": "Source", "ts": 2000, "dur": 10, "pid": 1, "tid": 1},
        {"ph": "X", "name": "Total Frontend", "ts": 0, "dur": 9000, "pid": 1, "tid": 2},
        {"ph": "M", "name": "process_name", "args": {"name": "clang"}},
        {},
    ]
    content = json.dumps({"traceEvents": events, "beginningOfTime": 1}).encode()
    (phase,) = read_phases(content, PhaseFormat.TRACE, STEP)
    assert (phase.name, phase.start, phase.seconds) == ("Frontend", 0.002, 0.009)


@pytest.mark.parametrize("form", PhaseFormat)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        b"[" * 100_000,
        b'{"traceEvents": 3}',
        b'{"traceEvents": [{"ts": 1e300}]}',
        b"," * 7 + b"x" * 200_000,
    ],
)
def test_damaged_files_have_no_phases(content: bytes, form: PhaseFormat) -> None:
    assert read_phases(content, form, STEP) == ()
