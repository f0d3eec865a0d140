"""Every kind of change makes the object of a plain compile, with ccache as stoker uses it."""

import time
from pathlib import Path

import pytest

from changed_project import Cell, Project
from changes import CHANGES
from conftest import Need
from governed import Build


@pytest.mark.timeout(900)  # 150 compiles, which took 290 s at a load of 55 on two CPUs
@pytest.mark.parametrize("names", [False, True], ids=["contents", "names"])
def test_a_cache_returns_the_object_of_a_plain_compile(
    build: Build, need: Need, tmp_path: Path, names: bool
) -> None:
    """With -MMD, which does not list headers of the system. benchmarks/cache_truth.py does all."""
    need("ccache")
    compiler = "gcc"
    need(compiler)
    cells = [
        Cell(name, "-MMD")
        for name, change in CHANGES.items()
        if compiler in change.compilers and bool(change.only) is names
    ]
    project = Project(build.folder / "project", compiler, cells)
    references = project.references()
    environment = {"STOKER_CACHE": "ccache", "CCACHE_DIR": str(tmp_path / "cache")}
    wrong = []
    for number, state in enumerate((0, 0, 2, 0)):
        command = project.prepare(state)
        began = time.strftime("%H:%M:%S").encode()
        done = build.run("sh", "-c", 'cd project && "$@"', "sh", *command, **environment)
        assert done.status == 0, done.err
        for cell, made in project.objects().items():
            right = began <= made_at(made) if cell.what.timed else made == references[state][cell]
            if not right:
                wrong.append(f"{cell.change} in run {number}")
    assert wrong == []


def test_a_new_header_of_sources_outside_of_the_current_folder(
    build: Build, need: Need, tmp_path: Path
) -> None:
    """The names of these headers are in no key, so the search for them is repeated."""
    need("ccache")
    need("gcc")
    sources = tmp_path / "sources"
    for name in ("first", "second"):
        (sources / name).mkdir(parents=True)
    (sources / "second/said.h").write_text("int said = 1;\n")
    (sources / "a.c").write_text("#include <said.h>\n")
    words = (f"-I{sources}/first", f"-I{sources}/second", "-MD", "-c", f"{sources}/a.c")
    environment = {"STOKER_CACHE": "ccache", "CCACHE_DIR": str(tmp_path / "cache")}
    objects = []
    for said in (None, None, 2):
        if said:
            (sources / "first/said.h").write_text(f"int said = {said};\n")
        done = build.run("sh", "-c", '"$@"', "sh", "gcc", *words, "-o", "a.o", **environment)
        assert done.status == 0, done.err
        objects.append((build.folder / "a.o").read_bytes())
    assert objects[0] == objects[1] != objects[2]


def made_at(made: bytes) -> bytes:
    """Return the time in an object of the change that has one."""
    return next(word for word in made.split(b"\0") if len(word) == 8 and word.count(b":") == 2)
