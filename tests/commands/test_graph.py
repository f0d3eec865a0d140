"""`stoker graph` on a real CMake project: its answer is compared with what ninja really does."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from browser import Browser
from conftest import Need, Stoker
from stoker.source.ninja import read_discovered

STOKER = str(Path(sys.executable).with_name("stoker"))
CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(demo CXX)
set(gen ${CMAKE_CURRENT_BINARY_DIR}/gen)
add_custom_command(OUTPUT ${gen}/ops.h ${gen}/ops.cpp
  COMMAND ${CMAKE_COMMAND} -DOUT=${gen} -P ${CMAKE_CURRENT_SOURCE_DIR}/gen.cmake
  DEPENDS ops.txt gen.cmake)
add_custom_target(generate DEPENDS ${gen}/ops.h)
add_custom_command(OUTPUT ${gen}/same.h
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${CMAKE_CURRENT_SOURCE_DIR}/same.txt ${gen}/same.h
  DEPENDS same.txt)
add_library(base STATIC src/base.cpp ${gen}/same.h)
target_include_directories(base PUBLIC inc ${gen})
add_library(ops SHARED src/use.cpp ${gen}/ops.cpp)
add_dependencies(ops generate)
target_link_libraries(ops PUBLIC base)
add_executable(tool src/main.cpp)
target_link_libraries(tool PRIVATE ops)
add_executable(extra EXCLUDE_FROM_ALL src/extra.cpp)
target_link_libraries(extra PRIVATE base)
"""
FILES = {
    "CMakeLists.txt": CMAKE_LISTS,
    "gen.cmake": 'file(WRITE ${OUT}/ops.h "int op();\\n")\n'
    'file(WRITE ${OUT}/ops.cpp "#include \\"ops.h\\"\\nint op() { return 1; }\\n")\n',
    "ops.txt": "add\n",
    "same.txt": "// same\n",
    "inc/base.h": "int base();\n",
    "src/base.cpp": '#include "base.h"\n#include "same.h"\nint base() { return 1; }\n',
    "src/use.cpp": '#include "base.h"\n#include "ops.h"\nint use() { return op() + base(); }\n',
    "src/main.cpp": "int use();\nint main() { return use(); }\n",
    "src/extra.cpp": '#include "base.h"\nint main() { return base(); }\n',
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source tree that was configured and built; the build folder is ``b``."""
    tree = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    query = tree / "b/.cmake/api/v1/query"
    query.mkdir(parents=True)
    (query / "codemodel-v2").touch()
    _run("cmake", "-S", tree, "-B", tree / "b", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    _run("ninja", "-C", tree / "b")
    return tree


pytestmark = pytest.mark.usefixtures("stoker_home")


@pytest.fixture(autouse=True)
def _tools(need: Need) -> None:
    need("ninja")
    need("cmake")


def _run(*words: "str | Path") -> str:
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True
    ).stdout


def _graph(stoker: Stoker, *words: "str | Path") -> Any:
    done = stoker("graph", *map(str, words), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _impact(stoker: Stoker, build: Path, file: "str | Path") -> list[str]:
    impact = _graph(stoker, build, "--impact", file)["impact"]
    return sorted(step["output"] for step in impact["steps"])


def _written_by(build: Path) -> list[str]:
    """Build, and return the first output of each command that ninja ran."""
    log = build / ".ninja_log"
    before = log.read_text().splitlines()
    _run("ninja", "-C", build)
    lines = [line.split("\t") for line in log.read_text().splitlines()[len(before) :]]
    # A command has a line for each of its outputs, with the same times and hash.
    first = {(fields[0], fields[1], fields[4]): fields[3] for fields in reversed(lines)}
    return sorted(first.values())


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("inc/base.h", 5),
        ("src/base.cpp", 4),
        ("src/main.cpp", 2),
        ("ops.txt", 5),
        ("gen.cmake", 5),
        ("src/extra.cpp", 0),
    ],
)
def test_the_impact_is_what_ninja_rebuilds(
    project: Path, stoker: Stoker, file: str, count: int
) -> None:
    build = project / "b"
    _run("ninja", "-C", build)
    expected = _impact(stoker, build, project / file)
    assert len(expected) == count
    (project / file).touch()
    told = _run("ninja", "-C", build, "-n")
    steps = re.findall(r"^\[\d+/(\d+)\]", told, re.MULTILINE)
    assert len(steps) == count
    assert _written_by(build) == expected


def test_a_generator_that_writes_the_same_again_saves_the_steps_after_it(
    project: Path, stoker: Stoker
) -> None:
    build = project / "b"
    _run("ninja", "-C", build)
    expected = _impact(stoker, build, "same.txt")
    assert len(expected) == 5
    (project / "same.txt").touch()
    assert set(_written_by(build)) < set(expected)


def test_headers_are_read_as_ninja_reads_them(project: Path) -> None:
    told = _run("ninja", "-C", project / "b", "-t", "deps")
    listed: dict[str, list[str]] = {}
    for record in told.strip().split("\n\n"):
        head, *files = record.splitlines()
        listed[head.partition(":")[0]] = [file.strip() for file in files]
    assert {name: list(files) for name, files in read_discovered(project / "b").items()} == listed


def test_names_are_the_same_without_an_answer_of_cmake(
    project: Path, stoker: Stoker, tmp_path: Path
) -> None:
    def names(graph: Any) -> set[tuple[str, str, tuple[str, ...]]]:
        return {(each["name"], each["kind"], tuple(each["needs"])) for each in graph["targets"]}

    without = tmp_path / "b"
    shutil.copytree(project / "b", without)
    shutil.rmtree(without / ".cmake")
    asked, guessed = _graph(stoker, project / "b"), _graph(stoker, without)
    assert (asked["has_reply"], guessed["has_reply"]) == (True, False)
    assert names(asked) == names(guessed)
    found = {name for name, _, _ in names(asked)}
    assert found == {"base", "base: generated code", "generate", "ops", "tool"}


def test_memory_comes_from_the_history(project: Path, stoker: Stoker) -> None:
    (project / "b/CMakeFiles/tool.dir/src/main.cpp.o").unlink()
    subprocess.run([STOKER, "run", "--", "ninja"], cwd=project / "b", check=True)
    targets = _graph(stoker, project / "b")["targets"]
    peaks = {each["name"]: each["peak_bytes"] for each in targets}
    assert peaks["tool"] > 0
    assert peaks["base"] is None  # it was built without stoker


def test_pages(project: Path, stoker: Stoker, tmp_path: Path, browser: Browser) -> None:
    page, drawing = tmp_path / "graph.html", tmp_path / "graph.svg"
    stoker("graph", str(project / "b"), "--impact", "base.h", "-o", str(page))
    stoker("graph", str(project / "b"), "-o", str(drawing))
    boxes = ElementTree.fromstring(drawing.read_text()).iter("{http://www.w3.org/2000/svg}a")
    assert len(list(boxes)) == 5
    browser.open(page)
    browser.settle()
    assert browser.texts("a.hit .name") == ["base", "ops", "tool"]
    assert browser.console() == []
    assert browser.requests() == [page.as_uri()]
    browser.find("a.hit").click()
    browser.settle()
    assert browser.texts("tr:target td:first-child") == ["base"]
    browser.open(drawing)
    assert browser.console() == []


def test_mistakes_are_explained(project: Path, stoker: Stoker, tmp_path: Path) -> None:
    def told(*words: "str | Path") -> tuple[int, str]:
        done = stoker("graph", *map(str, words))
        return done.returncode, done.stderr

    assert told(tmp_path / "nowhere") == (2, f"stoker: there is no folder {tmp_path}/nowhere\n")
    status, text = told(tmp_path)
    assert status == 2
    assert "there is no build.ninja in" in text
    assert "there is no file nothing.h" in told(project / "b", "--impact", "nothing.h")[1]
    assert "the kind of x.png is unknown" in told(project / "b", "-o", "x.png")[1]


@pytest.mark.slow
def test_a_source_tree_stands_for_the_build_that_stoker_made(
    stoker: Stoker, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(Path(__file__).parents[1] / "projects/mini-cmake", tree)
    _run(STOKER, "build", tree, "--variant", "cpu", "--target", "all", "--out", tmp_path / "o")
    graph = _graph(stoker, tree)
    assert graph["has_reply"] is True
    assert str(graph["folder"]).startswith(os.environ["STOKER_HOME"])
