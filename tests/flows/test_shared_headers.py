"""Builds of a small project whose sources share precompiled headers: real gcc and ninja."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from governed import STOKER, Build
from stoker.model.headers import HeaderUse
from stoker.model.runs import Run

Need = Callable[[str], str]
PLAIN = ("one", "two", "three", "four", "five", "six", "seven", "eight")
RULE = """
rule cxx
  command = g++ -I../src -Wall $more -MD -MT $out -MF $out.d -o $out -c $in
  depfile = $out.d
  deps = gcc
"""
OPTIONS = ("--shared-headers", "auto")
# A header with a template about which gcc would warn, and a use of it.
SILENT = """
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
template <class T> bool above(T x) { return x > sizeof(int); }
#pragma GCC diagnostic pop
inline int last(int x) { return above(x); }"""


class Project:
    """Sources that include one large header, and a build folder."""

    def __init__(self, build: Build):
        self.build = build
        self.source = build.folder.parent / "src"
        self.source.mkdir()
        self._edges = {"": RULE}
        self.write_header("int last(int);")
        (self.source / "stub.h").write_text("#pragma once\nstruct stub;\n")
        (self.source / "twin.h").write_text("#pragma once\nstruct stub;\n")
        os.utime(self.source / "twin.h", (0, 0))  # gcc itself would ignore a twin of the same age
        for name in PLAIN:
            self.add(name, f"#include <common.h>\nint {name}() {{ return last(declared1(2)); }}\n")

    def write_header(self, last: str) -> None:
        """Write a header that is large enough to be worth precompiling."""
        lines = "".join(f"int declared{n}(int with_a_long_name);\n" for n in range(40_000))
        (self.source / "common.h").write_text(f"#pragma once\n#include <stub.h>\n{lines}{last}\n")

    def add(self, name: str, text: str, *, more: str = "", after: str = "") -> None:
        (self.source / f"{name}.cpp").write_text(text)
        edge = f"build {name}.o: cxx ../src/{name}.cpp{after}\n  more = {more}\n"
        self._edges[name] = edge
        self.write_ninja()

    def write_ninja(self, *others: str) -> None:
        text = "".join((*self._edges.values(), *others))
        (self.build.folder / "build.ninja").write_text(text)

    def make(self) -> HeaderUse | None:
        return self.build.summary("ninja", options=OPTIONS).shared_headers

    def history(self, *words: str) -> str:
        command = [STOKER, "history", *words]
        return subprocess.check_output(command, env=self.build.environment, text=True)

    def results(self) -> dict[str, bytes]:
        """Return the objects, and the dependencies that ninja keeps."""
        folder = self.build.folder
        listed = subprocess.check_output(["ninja", "-t", "deps"], cwd=folder, text=True)
        paths = "\n".join(sorted(line for line in listed.splitlines() if "VALID" not in line))
        objects = {path.name: path.read_bytes() for path in folder.glob("*.o")}
        return objects | {"dependencies": paths.encode()}

    def plain_results(self) -> dict[str, bytes]:
        """Return the same of a build without stoker, which replaces this one."""
        for path in (*self.build.folder.glob("*.o"), *self.build.folder.glob(".ninja*")):
            path.unlink()
        subprocess.run(["ninja"], cwd=self.build.folder, check=True, capture_output=True)
        return self.results()


@pytest.fixture
def project(build: Build, need: Need) -> Project:
    need("g++")
    return Project(build)


def test_objects_and_dependencies_are_those_of_a_build_without(project: Project) -> None:
    project.add("odd", "#define last first\n#include <common.h>\nint odd() { return first(1); }\n")
    project.add("other", "#include <common.h>\nint other() { return last(1); }\n", more="-O1")
    project.add("long", "#include <common.h>\n" + "int long_source();\n" * 20_000)
    text = (project.source / "one.cpp").read_text()
    project.add("one", "#include <common.h>\n#include <twin.h>\n" + text)
    use = project.make()
    assert use is not None
    assert (use.headers, use.used, use.refused) == (1, len(PLAIN), 0)
    assert project.results() == project.plain_results()


def test_the_history_knows_what_shared_headers_brought(project: Project) -> None:
    use = project.make()
    assert use is not None
    assert use.cost_s > 0
    (run,) = msgspec.json.decode(project.history("--json"), type=list[Run])
    assert run.summary is not None
    assert run.summary.shared_headers == use
    assert "shared headers: 8 compiles used 1" in project.history(str(run.id))
    steps = [attempt.record.step for attempt in project.build.attempts()]
    assert {Path(step.source).stem for step in steps if step.shared} == set(PLAIN)


def test_a_warning_of_a_source_appears_once(project: Project) -> None:
    project.add("warns", "#include <common.h>\nstatic int unused() { return last(1); }\n")
    finished = project.build.run("ninja", options=OPTIONS)
    assert finished.out.count(b"-Wunused-function") == 1
    assert "9 compiles used 1" in finished.err
    assert "0 were repeated without" in finished.err


def test_a_source_with_another_warning_about_the_header_is_left_alone_later(
    project: Project,
) -> None:
    """gcc forgets the pragma in the precompiled header."""
    project.write_header(SILENT)
    warns = "#include <common.h>\nbool warns() { return above(1L); }\n"
    project.add("warns", warns)
    finished = project.build.run("ninja", options=OPTIONS)
    assert b"warning" not in finished.out
    assert "8 compiles used 1" in finished.err
    assert "1 were repeated without" in finished.err
    project.add("warns", warns + "// changed\n")
    assert project.make() is None
    assert project.results() == project.plain_results()


def test_always_accepts_another_warning_about_the_header(project: Project) -> None:
    project.write_header(SILENT)
    project.add("warns", "#include <common.h>\nbool warns() { return above(1L); }\n")
    finished = project.build.run("ninja", options=("--shared-headers", "always"))
    assert finished.out.count(b"-Wsign-compare") == 1
    assert "9 compiles used 1" in finished.err


def test_warnings_of_a_header_appear_for_each_source_and_silent_ones_do_not(
    project: Project,
) -> None:
    """gcc gives a warning in each compile that uses a precompiled header whose pragma it forgot."""
    project.write_header(SILENT + "\nstatic int in_header() { return above(1); }")
    finished = project.build.run("ninja", options=OPTIONS)
    assert finished.out.count(b"-Wunused-function") == len(PLAIN)
    assert b"-Wsign-compare" not in finished.out
    assert "8 compiles used 1" in finished.err
    assert "0 were repeated without" in finished.err
    assert project.results() == project.plain_results()


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("#ifndef WRAPPED\n#error do not include this\n#endif\n", id="refuses"),
        pytest.param("struct defined {};\n", id="no guard"),
        pytest.param("#pragma once\nstruct needs : wrapper {};\n", id="needs its includer"),
    ],
)
def test_a_header_that_cannot_be_included_directly_is_left_out(project: Project, part: str) -> None:
    (project.source / "part.h").write_text(part + "int in_part(int);\n")
    for name in PLAIN:
        include = "#include <part.h>\n#include <common.h>\n"
        if "wrapper" in part:
            include = "#include <base.h>\n" + include
            (project.source / "base.h").write_text("#ifdef WRAPPED\nstruct wrapper {};\n#endif\n")
        wrap = f"#pragma once\n#define WRAPPED {name}\n{include}"
        (project.source / f"{name}.h").write_text(wrap)
        project.add(name, f"#include <{name}.h>\nint {name}() {{ return last(in_part(2)); }}\n")
    use = project.make()
    assert use is not None
    assert (use.headers, use.used, use.refused) == (1, len(PLAIN), 0)
    assert project.results() == project.plain_results()


def test_a_changed_header_is_precompiled_again(project: Project) -> None:
    project.make()
    project.write_header("inline int last(int x) { return x + 7; }")
    use = project.make()
    assert use is not None
    assert use.used == len(PLAIN)
    assert project.results() == project.plain_results()


def test_a_header_that_the_build_itself_changes_is_not_used_any_more(project: Project) -> None:
    text = "int last(int); // changed by a step"
    rule = f"rule write\n  command = sleep 0.1; echo '{text}' >> ../src/common.h; touch $out\n"
    for name in PLAIN[1:]:
        content = (project.source / f"{name}.cpp").read_text()
        project.add(name, content, after=" || written")
    project.write_ninja(rule, "build written: write one.o\n")
    use = project.make()
    assert use is not None
    assert use.used == 1
    assert (project.source / "common.h").read_text().endswith(text + "\n")


def test_a_cache_excludes_shared_headers_and_the_run_says_so(
    project: Project, need: Need, tmp_path: Path
) -> None:
    need("ccache")
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    cache = {"STOKER_CACHE": "ccache", "CCACHE_DIR": str(tmp_path / "cache")}
    finished = project.build.run("ninja", options=OPTIONS, **cache)
    assert finished.status == 0
    assert "shared headers are not used: " in finished.err
    assert "--cache none" in finished.err


def test_a_build_that_starts_ccache_itself_is_told_why_nothing_is_shared(
    project: Project, need: Need
) -> None:
    """PyTorch's CMake files do that where ccache is installed."""
    ninja = project.build.folder / "build.ninja"
    ninja.write_text(ninja.read_text().replace("command = ", f"command = {need('ccache')} "))
    finished = project.build.run("ninja", options=OPTIONS)
    assert "commands that start ccache use no shared headers" in finished.err


def test_headers_that_are_too_large_for_the_memory_limit_are_left_out(project: Project) -> None:
    use = project.build.summary("ninja", options=(*OPTIONS, "--memory", "150M")).shared_headers
    assert use is not None
    assert (use.headers, use.used, use.left_out) == (0, 0, 1)
    assert "shared headers left out to save memory: 1" in project.history("1")
