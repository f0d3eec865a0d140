"""The critical path after each step, read from ninja's files."""

import subprocess
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from conftest import PROJECTS
from stoker.govern.server.graph import Graphs, longest_paths
from stoker.source.ninja import Edge, read_durations, read_edges


def edge(output: str, *needs: str, rule: str = "cc") -> Edge:
    return Edge(outputs=(output,), rule=rule, needs=needs)


def test_paths_add_up_to_the_end() -> None:
    edges = (edge("a.o", "a.c"), edge("b.o", "b.c"), edge("lib", "a.o", "b.o"), edge("exe", "lib"))
    paths = longest_paths(edges, {"a.o": 5.0, "b.o": 1.0, "lib": 2.0, "exe": 3.0})
    assert paths == {"a.o": 10.0, "b.o": 6.0, "lib": 5.0, "exe": 3.0}


def test_phony_costs_nothing_and_unknown_counts_one() -> None:
    edges = (edge("a.o"), edge("all", "a.o", rule="phony"))
    assert longest_paths(edges, {}) == {"a.o": 1.0, "all": 0.0}


def test_compiles_that_never_ran_count_with_what_such_sources_usually_take() -> None:
    names = ("a.c", "a.cpp", "large.cpp", "gen/VariableType_0.cpp", "src/flash_fwd_hdim64.cu")
    rules = cycle(["CXX_COMPILER__x", "cxx"])  # of CMake; of GN and of files written by hand
    edges = tuple(edge(f"{name}.o", name, rule=next(rules)) for name in names)
    size = {"large.cpp": 100_000}
    paths = longest_paths(edges, {"known.o": 1.0}, lambda path: size.get(path, 1000))
    assert sorted(paths, key=lambda output: paths[output]) == [
        f"{name}.o" for name in ("a.c", "a.cpp", "large.cpp", *names[3:])
    ]


def test_a_step_that_makes_no_object_is_no_compile() -> None:
    edges = (edge("large.json", "large.cpp", rule="scan"),)
    assert longest_paths(edges, {}, lambda _: 100_000) == {"large.json": 1.0}


def test_a_cycle_does_not_hang() -> None:
    assert longest_paths((edge("a", "b"), edge("b", "a")), {}) == {"a": 0.0, "b": 0.0}


def test_what_the_governor_saw_counts_more_than_ninjas_log(tmp_path: Path) -> None:
    """The log has the time that a step waited for its permit."""
    (tmp_path / "build.ninja").write_text(
        "build a.o: CXX_COMPILER__x a.cpp\nbuild b.o: CXX_COMPILER__x b.cpp\n"
        "build lib: CXX_SHARED_LIBRARY_LINKER__x a.o b.o\n"
    )
    (tmp_path / ".ninja_log").write_text(
        "# ninja log v5\n0\t90000\t0\ta.o\t1\n0\t30000\t0\tb.o\t2\n0\t2000\t0\tlib\t3\n"
    )
    seen: dict[str, dict[str, float]] = {}
    graphs = Graphs(seen)
    seen[str(tmp_path)] = {"a.o": 5.0}  # known before the folder is, not before the graphs are
    assert read_by(graphs, tmp_path) == {"a.o": 5.0, "b.o": 30.0, "lib": 2.0}
    paths = [graphs.path(1, str(tmp_path), output, None) for output in ("a.o", "b.o", "lib")]
    assert paths == [7.0, 32.0, 2.0]
    assert graphs.path(1, str(tmp_path), "", None) == 32.0  # a custom command


def test_another_projects_output_of_the_same_name_says_nothing(tmp_path: Path) -> None:
    output = "CMakeFiles/main.dir/main.cpp.o"
    folders = [tmp_path / name / "build" for name in ("seen", "logged", "new")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "build.ninja").write_text(f"build {output}: CXX_COMPILER__x main.cpp\n")
    (folders[1] / ".ninja_log").write_text(f"# ninja log v5\n0\t3000\t0\t{output}\t1\n")
    graphs = Graphs({str(folders[0]): {output: 600.0}})
    left = [read_by(graphs, folder)[output] for folder in folders]
    assert left == [600.0, 3.0, None]


def test_a_folder_that_pip_makes_for_every_build_is_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pip-install-ab12cd" / "kiln_0123456789abcdef0123456789abcdef" / "build"
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text("build a.o: CXX_COMPILER__x a.cpp\n")
    assert read_by(Graphs({"kiln/build": {"a.o": 5.0}}), folder) == {"a.o": 5.0}


def read_by(graphs: Graphs, folder: Path) -> dict[str, float | None]:
    """Return what is left to do, with measured seconds, once it was read."""
    deadline = time.monotonic() + 60
    graphs.path(1, str(folder), "", None)
    while time.monotonic() < deadline:
        for _, left in graphs.news():
            return {
                output: expected.seconds if expected.kind == "measured" else None
                for output, expected in left.items()
            }
        time.sleep(0.01)
    raise AssertionError("the folder was not read in a minute")


def test_escapes_and_kinds_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text(
        "rule cc\n  command = true\n"
        "build with$ space.o | extra.d: cc a$:b.c | header.h || order $\n  more\n  x = 1\n"
    )
    (found,) = read_edges(tmp_path)
    assert found.outputs == ("with space.o", "extra.d")
    assert found.needs == ("a:b.c", "header.h")
    assert found.after == ("order", "more")


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "build.ninja").write_text(f"build {text}\n", errors="replace")
        Path(folder, ".ninja_log").write_text(f"# ninja log v5\n{text}\n", errors="replace")
        read_edges(Path(folder))
        read_durations(Path(folder))


def test_a_real_build_folder(need: Callable[[str], str], tmp_path: Path) -> None:
    cmake, ninja = need("cmake"), need("ninja")
    source = PROJECTS / "mini-cmake"
    subprocess.run(
        [cmake, "-S", source, "-B", tmp_path, "-G", "Ninja"], check=True, capture_output=True
    )
    edges = read_edges(tmp_path)
    targets = subprocess.run(
        [ninja, "-C", tmp_path, "-t", "targets", "all"], check=True, capture_output=True, text=True
    ).stdout
    listed = {line.rpartition(": ")[0] for line in targets.splitlines()}
    assert {output for each in edges for output in each.outputs} >= listed
    assert not read_durations(tmp_path)
    subprocess.run([ninja, "-C", tmp_path], check=True, capture_output=True)
    made = read_durations(tmp_path)
    assert made
    assert set(made) <= {output for each in edges for output in each.outputs}
