"""Targets, blockers, the critical path and the impact of a change, on small graphs by hand."""

import struct
from pathlib import Path

import pytest

from stoker.model.govern import Timing
from stoker.report.graphs.analysis import find_impact, make_build_graph
from stoker.report.graphs.build_graph import GraphTargetKind
from stoker.report.graphs.owners import Owners
from stoker.report.graphs.steps import NeededSteps
from stoker.source.cmake_api import ask_for_targets, read_targets
from stoker.source.ninja import read_discovered, read_graph

CMAKE = """
build CMakeFiles/gen: phony ops.h
build gen: phony CMakeFiles/gen ops.h
build ops.h: CUSTOM_COMMAND ops.txt
build order_base: phony
build CMakeFiles/base.dir/a.o: CXX_COMPILER__base_Release a.cpp || order_base
build libbase.a: CXX_STATIC_LIBRARY_LINKER__base_Release CMakeFiles/base.dir/a.o
build order_ops: phony || order_base gen
build CMakeFiles/ops.dir/b.o: CXX_COMPILER__ops_Release b.cpp || order_ops
build CMakeFiles/ops.dir/c.o: CXX_COMPILER__ops_Release c.cpp || order_ops
build libops.so: CXX_SHARED_LIBRARY_LINKER__ops_Release CMakeFiles/ops.dir/b.o $
  CMakeFiles/ops.dir/c.o | libbase.a || gen
build CMakeFiles/extra.dir/e.o: CXX_COMPILER__extra_Release e.cpp
build extra: CXX_EXECUTABLE_LINKER__extra_Release CMakeFiles/extra.dir/e.o
build all: phony libbase.a libops.so
build build.ninja: RERUN_CMAKE | CMakeLists.txt
default all
"""
TIMES = {
    "ops.h": 10.0,
    "CMakeFiles/base.dir/a.o": 3.0,
    "libbase.a": 1.0,
    "CMakeFiles/ops.dir/b.o": 5.0,
    "CMakeFiles/ops.dir/c.o": 7.0,
    "libops.so": 2.0,
}
DISCOVERED = {"CMakeFiles/ops.dir/b.o": ("ops.h", "/src/b.h"), "CMakeFiles/base.dir/a.o": ("b.h",)}
Made = tuple[NeededSteps, Owners, dict[str, Timing]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "build.ninja").write_text(CMAKE)
    steps = NeededSteps("/src", read_graph(tmp_path))
    timings = {name: Timing(seconds=seconds, peak=100) for name, seconds in TIMES.items()}
    return steps, Owners(steps, ()), timings


def test_targets_of_the_default_build(made: Made) -> None:
    graph = make_build_graph(*made, folder="/src", has_reply=False)
    kinds = {target.name: target.kind for target in graph.targets}
    assert kinds == {
        "gen": GraphTargetKind.GENERATES,
        "base": GraphTargetKind.STATIC,
        "ops": GraphTargetKind.SHARED,
    }
    ops = graph.targets[-1]
    assert (ops.name, ops.steps, ops.wall_s, ops.peak_bytes) == ("ops", 3, 14.0, 100)
    assert set(ops.needs) == {"gen", "base"}
    assert ops.outputs == ("libops.so",)
    assert (graph.steps, graph.timed, graph.wall_s) == (6, 6, 28.0)


def test_what_blocks_the_start(made: Made) -> None:
    graph = make_build_graph(*made, folder="/src", has_reply=False)
    assert (graph.compiles, graph.ready) == (3, 1)
    assert [(b.target, b.compiles, b.wall_s) for b in graph.blockers] == [("gen", 2, 10.0)]


def test_the_critical_path(made: Made) -> None:
    graph = make_build_graph(*made, folder="/src", has_reply=False)
    assert [step.output for step in graph.path] == ["ops.h", "CMakeFiles/ops.dir/c.o", "libops.so"]
    assert graph.path_s == 19.0


@pytest.mark.parametrize(
    ("file", "outputs", "path_s"),
    [
        ("/src/a.cpp", ["CMakeFiles/base.dir/a.o", "libbase.a", "libops.so"], 6.0),
        ("/src/ops.txt", ["ops.h", "CMakeFiles/ops.dir/b.o", "libops.so"], 17.0),
        (
            "/src/b.h",
            ["CMakeFiles/base.dir/a.o", "libbase.a", "CMakeFiles/ops.dir/b.o", "libops.so"],
            7.0,
        ),
        ("/src/e.cpp", [], 0.0),  # only a target that `all` does not have
    ],
)
def test_the_impact_of_a_change(made: Made, file: str, outputs: list[str], path_s: float) -> None:
    impact = find_impact(*made, file, DISCOVERED)
    assert sorted(step.output for step in impact.steps) == sorted(outputs)
    assert impact.path_s == path_s
    assert impact.wall_s == sum(TIMES[output] for output in outputs)
    assert not impact.configures


def test_a_change_to_a_cmake_file_configures_again(made: Made) -> None:
    assert find_impact(*made, "/src/CMakeLists.txt", {}).configures


def test_steps_without_cmake_belong_to_what_they_become_part_of(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(
        "build a.o: compile a.cpp\nbuild b.o: cuda_compile b.cu\nbuild x.so: link a.o b.o\n"
    )
    steps = NeededSteps("/src", read_graph(tmp_path))
    owners = Owners(steps, ())
    graph = make_build_graph(steps, owners, {}, folder="/src", has_reply=False)
    assert [(target.name, target.steps) for target in graph.targets] == [("x.so", 3)]
    assert (graph.ready, graph.timed, graph.path) == (2, 0, ())


def test_a_cycle_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("build a: cc b\nbuild b: cc a\n")
    assert len(NeededSteps("/src", read_graph(tmp_path))) == 0


def test_a_broken_answer_of_cmake_is_none(tmp_path: Path) -> None:
    ask_for_targets(tmp_path)
    assert (tmp_path / ".cmake/api/v1/query/codemodel-v2").exists()
    assert read_targets(tmp_path) == ()
    reply = tmp_path / ".cmake/api/v1/reply"
    reply.mkdir()
    (reply / "index-1.json").write_text('{"objects": [{"kind": "codemodel", "jsonFile": "x"}]}')
    assert read_targets(tmp_path) == ()


def _path(name: bytes, number: int) -> bytes:
    padded = name + b"\0" * (-len(name) % 4)
    return struct.pack("<I", len(padded) + 4) + padded + struct.pack("<I", ~number & 0xFFFFFFFF)


def test_half_a_record_ends_the_log_of_dependencies(tmp_path: Path) -> None:
    whole = b"# ninjadeps\n\x04\0\0\0" + _path(b"a.o", 0) + _path(b"b.h", 1)
    record = struct.pack("<IIIII", 0x80000010, 0, 0, 0, 1)
    for extra in (b"", b"\x01", struct.pack("<I", 0x80000100) + b"\0\0", b"\xff\xff\xff\x7f"):
        (tmp_path / ".ninja_deps").write_bytes(whole + record + extra)
        assert read_discovered(tmp_path) == {"a.o": ("b.h",)}
    for broken in (b"", b"# ninjadeps\n\x09\0\0\0", whole[:17]):
        (tmp_path / ".ninja_deps").write_bytes(broken)
        assert read_discovered(tmp_path) == {}
    assert read_discovered(tmp_path / "nowhere") == {}
