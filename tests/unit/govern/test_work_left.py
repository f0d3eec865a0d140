"""The steps that are left in a build, from files and from finished steps."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import PROJECTS
from stoker.govern.server.graph import Expected, Graphs, TimeLeft, WorkLeft, find_ninja, steps_left
from stoker.model.govern import Role
from stoker.source.ninja import Edge, Graph, read_graph

COMPILER, LINKER = "CXX_COMPILER__lib", "CXX_SHARED_LIBRARY_LINKER__lib"
GRAPH = Graph(
    edges=(
        Edge(outputs=("made.cpp",), rule="CUSTOM_COMMAND", needs=("made.py",)),
        Edge(outputs=("ordered",), rule="phony", needs=(), after=("made.cpp",)),
        Edge(outputs=("made.o",), rule=COMPILER, needs=("made.cpp",)),
        Edge(outputs=("a.o",), rule=COMPILER, needs=("a.cpp",), after=("ordered",)),
        Edge(outputs=("lib.so",), rule=LINKER, needs=("a.o", "made.o")),
        Edge(outputs=("b.o",), rule=COMPILER, needs=("b.cpp",)),
        Edge(outputs=("all",), rule="phony", needs=("lib.so",)),
    ),
    defaults=("all",),
)
SOURCES = {"made.py": 1.0, "a.cpp": 1.0, "b.cpp": 1.0}
MADE = {"made.cpp": 2.0, "made.o": 3.0, "a.o": 3.0, "b.o": 3.0, "lib.so": 4.0}


def left(ages: dict[str, float], *targets: str) -> set[str]:
    return set(steps_left(GRAPH, {}, targets, ages.get))


def test_compiles_are_known_by_what_they_make() -> None:
    rules = {"a.o": "cxx", "b.obj": "cuda", "c.json": "scan", "d.o": "CUSTOM_COMMAND"}
    edges = tuple(Edge(outputs=(made,), rule=rule, needs=("a.cu",)) for made, rule in rules.items())
    assert steps_left(Graph(edges=edges), {}, (), lambda _: None).keys() == {"a.o", "b.obj"}


def test_at_first_everything_the_defaults_need_is_left_and_what_never_asks_does_not_count() -> None:
    assert left(SOURCES) == {"made.o", "a.o", "lib.so"}


def test_what_is_newer_than_its_inputs_is_done() -> None:
    assert left(SOURCES | MADE) == set()


def test_a_change_reaches_what_is_made_of_it_and_nothing_beside() -> None:
    assert left(SOURCES | MADE | {"a.cpp": 9.0}) == {"a.o", "lib.so"}


def test_an_order_is_no_dependency() -> None:
    assert left(SOURCES | MADE | {"made.py": 9.0}) == {"made.o", "lib.so"}


def test_only_what_the_targets_need() -> None:
    assert left(SOURCES, "b.o") == {"b.o"}


def test_durations_of_last_time() -> None:
    found = steps_left(GRAPH, {"a.o": 7.0}, ("a.o",), SOURCES.get)
    assert found == {"a.o": Expected(7.0, "measured")}


def test_steps_that_never_ran_are_expected_to_take_as_long_as_is_usual() -> None:
    sources = {"a.o": "x/aten/src/ATen/Operators_0.cpp", "b.o": "b.cpp", "c.o": "c.c"}
    edges = [Edge(outputs=(o,), rule="compile", needs=(s,)) for o, s in sources.items()]
    edges.append(Edge(outputs=("lib",), rule="link", needs=("a.o",)))
    found = steps_left(Graph(edges=tuple(edges)), {}, (), lambda _: None, lambda _: 1000)
    assert [expected.kind for expected in found.values()] == ["known", Role.CXX, Role.C, Role.OTHER]
    assert found["a.o"].seconds > found["b.o"].seconds > found["c.o"].seconds


def test_a_cycle_does_not_hang_the_work_left() -> None:
    edges = tuple(Edge(outputs=(o,), rule="cc", needs=(n,)) for o, n in ("ab", "ba"))
    assert steps_left(Graph(edges=edges), {}, (), lambda _: None) == {}


def measured(seconds: float) -> Expected:
    return Expected(seconds, "measured")


def usual(seconds: float) -> Expected:
    return Expected(seconds, "C++")


def seconds_left(work: WorkLeft, now: float, ages: tuple[float, ...]) -> float | None:
    found = work.time(now, ages)
    return found and found.seconds


def test_seconds_left() -> None:
    work_left = WorkLeft()
    assert seconds_left(work_left, 1.0, ()) is None  # nothing is known to come
    work_left.expect({"a": usual(1.0), "b": measured(6.0), "c": usual(1.0)})
    assert seconds_left(work_left, 1.0, ()) is None  # nothing was seen of how long a step takes
    work_left.finished("a", 4.0)
    assert work_left.steps == 2
    assert seconds_left(work_left, 4.0, ()) == pytest.approx(10.0)  # one at a time
    assert seconds_left(work_left, 2.0, ()) == pytest.approx(5.0)  # two
    assert seconds_left(work_left, 4.0, (2.0,)) == pytest.approx(8.0 / 1.5)
    work_left.finished("b", 6.0)
    work_left.finished("c", 6.0)
    assert seconds_left(work_left, 4.0, ()) is None


def test_steps_that_are_overdue_do_not_hide_those_that_have_not_started() -> None:
    work_left = WorkLeft()
    work_left.expect({name: measured(4.0) for name in "abcd"})
    work_left.finished("a", 4.0)
    # Two more, one at a time; when the one that runs will end is unknown.
    assert work_left.time(40.0, (36.0,)) == TimeLeft(8.0, at_least=True)
    assert work_left.time(6.0, (2.0,)) == TimeLeft(10.0, at_least=False)
    work_left.finished("b", 4.0)
    work_left.finished("c", 4.0)
    assert seconds_left(work_left, 40.0, (36.0,)) is None  # the last one should have ended


def test_the_time_before_the_first_step_does_not_count() -> None:
    work_left = WorkLeft()
    work_left.expect({"a": measured(4.0), "b": measured(4.0)})
    for now in (100.0, 150.0):
        work_left.asked(now)
    work_left.finished("a", 4.0)
    assert seconds_left(work_left, 104.0, ()) == pytest.approx(4.0)


def test_a_real_folder_before_and_after(need: Callable[[str], str], tmp_path: Path) -> None:
    cmake, ninja = need("cmake"), need("ninja")
    configure = [cmake, "-S", str(PROJECTS / "mini-cmake"), "-B", str(tmp_path), "-G", "Ninja"]
    subprocess.run(configure, check=True, capture_output=True)
    graph = read_graph(tmp_path)
    assert graph.defaults == ("all",)

    def age(path: str) -> float | None:
        file = tmp_path / path
        return file.stat().st_mtime if file.exists() else None

    steps = steps_left(graph, {}, (), age)
    assert steps
    assert all((tmp_path / output).suffix != ".a" for output in steps)
    subprocess.run([ninja, "-C", tmp_path], check=True, capture_output=True)
    assert steps_left(graph, {}, (), age) == {}


def test_each_ninja_of_a_run_has_its_own_targets(
    need: Callable[[str], str], tmp_path: Path
) -> None:
    """`stoker build` generates code with one ninja and compiles with another, in one folder."""
    (tmp_path / "build.ninja").write_text(
        "rule compile\n  command = echo $$$$ > $out.new; mv $out.new $out; "
        "until [ -e go ]; do sleep 0.05; done\nbuild one: compile\nbuild two: compile\n"
    )
    graphs = Graphs({})
    lefts: list[list[str]] = []
    for target in ("one", "two"):
        (tmp_path / "go").unlink(missing_ok=True)
        command = [need("ninja"), "-C", str(tmp_path), "-j", "2", "-v", target]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            try:
                while not (tmp_path / target).exists():
                    assert running.poll() is None
                shell = int((tmp_path / target).read_text())
                assert find_ninja(shell) == (running.pid, (target,))
                (tmp_path / target).unlink()
                lefts += ask_until_read(graphs, tmp_path, target, shell)
            finally:
                (tmp_path / "go").touch()
    assert lefts == [["one"], ["two"]]
    assert find_ninja(os.getpid()) is None


def test_a_folder_is_read_once_a_run(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("build a.o: CXX_COMPILER__x a.cpp\n")
    graphs = Graphs({})
    assert ask_until_read(graphs, tmp_path, "a.o", None) == [["a.o"]]
    assert graphs.path(1, str(tmp_path), "a.o", None) > 0
    graphs.forget(1)
    assert ask_until_read(graphs, tmp_path, "a.o", None) == [["a.o"]]


def test_a_folder_that_is_configured_after_its_first_step_is_read_again(tmp_path: Path) -> None:
    """PyTorch compiles a file in its build folder while CMake configures it."""
    graphs = Graphs({})
    assert ask_until_read(graphs, tmp_path, "check", None) == [[]]
    for name in ("a", "b"):  # CMake may also write it again
        (tmp_path / "build.ninja").write_text(f"build {name}.o: CXX_COMPILER__x {name}.cpp\n")
        os.utime(tmp_path / "build.ninja", (ord(name), ord(name)))
        assert ask_until_read(graphs, tmp_path, f"{name}.o", None) == [[f"{name}.o"]]
        assert graphs.path(1, str(tmp_path), f"{name}.o", None) > 0


def ask_until_read(graphs: Graphs, folder: Path, output: str, asker: int | None) -> list[list[str]]:
    """Return what is left to do, for each time that the folder was read."""
    news: list[list[str]] = []
    while not news:
        graphs.path(1, str(folder), output, asker)
        news += [list(left) for _, left in graphs.news()]
    return news


def test_on_a_first_build_the_time_left_is_unknown_until_enough_steps_have_ended() -> None:
    work = WorkLeft()
    work.expect({f"{number}.o": usual(10.0) for number in range(100)})
    for number in range(7):
        work.finished(f"{number}.o", 1.0)
        assert seconds_left(work, 8.0, ()) is None
    work.finished("7.o", 1.0)
    assert seconds_left(work, 8.0, ()) == pytest.approx(92.0)


def test_the_time_left_of_known_steps_is_said_before_one_has_ended() -> None:
    work = WorkLeft()
    work.asked(0.0)
    work.expect({f"{number}.o": Expected(60.0, "known") for number in range(10)})
    assert seconds_left(work, 0.0, ()) is None
    assert seconds_left(work, 10.0, (10.0, 10.0)) == pytest.approx((600 - 20) / 2)


def test_the_time_left_of_a_small_build_is_known_when_a_quarter_of_it_has_ended() -> None:
    work = WorkLeft()
    assert not work.is_known
    work.expect({f"{number}.o": usual(10.0) for number in range(6)})
    assert work.is_known
    work.finished("0.o", 1.0)
    assert seconds_left(work, 1.0, ()) is None
    work.finished("1.o", 1.0)
    assert seconds_left(work, 2.0, ()) == pytest.approx(4.0)


def test_the_time_left_of_overdue_steps_is_unknown_and_not_zero() -> None:
    work = WorkLeft()
    work.expect({"a.o": measured(2.0), "b.o": measured(5.0)})
    work.finished("a.o", 2.0)
    assert seconds_left(work, 4.0, (3.0,)) is not None
    assert seconds_left(work, 9.0, (7.0,)) is None


def test_short_steps_say_nothing_about_long_ones_of_another_kind() -> None:
    """On a first build short steps end first, so their mean is too low for the others."""
    work = WorkLeft()
    work.expect({f"{number}.o": usual(10.0) for number in range(40)})
    work.expect({f"known{number}.o": Expected(60.0, "known") for number in range(10)})
    for number in range(20):
        work.finished(f"{number}.o", 1.0)
    assert work.work == pytest.approx(20 * 1.0 + 10 * 60.0)
    work.finished("known0.o", 90.0)
    assert 9 * 80.0 < work.work - 20 < 9 * 90.0  # one step alone is not trusted entirely


def test_sources_of_one_kind_differ_as_is_usual_for_them() -> None:
    work = WorkLeft()
    work.expect({"small.o": usual(10.0), "large.o": usual(30.0)})
    work.finished("small.o", 2.0)
    assert work.work == pytest.approx(6.0)


def test_steps_that_a_cache_has_are_done_when_their_output_appears(tmp_path: Path) -> None:
    """They never ask. Counting hits instead needs their number when the graph was read."""
    outputs = [f"{number}.o" for number in range(1000)]
    lines = [f"build {output}: CXX_COMPILER__x {output}.cpp" for output in outputs]
    (tmp_path / "build.ninja").write_text("\n".join(lines) + "\n")
    (tmp_path / "999.o").write_text("of an earlier build")
    os.utime(tmp_path / "999.o", (1.0, 1.0))
    (tmp_path / "999.o.cpp").write_text("newer than its output")
    graphs, work = Graphs({}), WorkLeft()
    graphs.path(1, str(tmp_path), "", None)
    while not work.is_known:
        for _, steps in graphs.news():
            work.expect(steps)
    assert (work.steps, work.found) == (1000, 0)
    for output in [*outputs[:400], "999.o"]:
        (tmp_path / output).write_text("from the cache")
    for _ in range(5):  # all files have been looked at then
        work.made(graphs.made(1))
    assert (work.steps, work.found) == (599, 401)
    work.finished("0.o", 1.0)  # it had written its output before it ended
    assert (work.steps, work.found) == (599, 400)
    work.finished("500.o", 1.0)
    (tmp_path / "500.o").write_text("")
    for _ in range(5):
        work.made(graphs.made(1))
    assert (work.steps, work.found) == (598, 400)


def test_a_step_that_is_made_again_is_left_once() -> None:
    """A second ninja in the folder builds what a cache had given to the first one."""
    step, work = {"a.o": Expected(seconds=1.0, kind="measured")}, WorkLeft()
    work.expect(step)
    work.made(["a.o"])
    work.expect(step)
    work.finished("a.o", 1.0)
    assert (work.steps, work.found) == (0, 0)
