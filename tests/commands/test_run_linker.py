"""`stoker run --linker`: another linker, without a change to the build."""

import os
from pathlib import Path

import pytest

from builds import Project
from conftest import Need, Stoker
from governed import Build

LINK = ("gcc", "-shared", "-o", "liba.so", "a.o")
GOLD = b".note.gnu.gold-version"


def prepared(build: Build, need: Need) -> Path:
    need("gcc")
    need("ld.gold")
    (build.folder / "a.c").write_text("int f(void) { return 1; }\n")
    assert build.run("gcc", "-fPIC", "-c", "a.c").status == 0
    return build.folder / "liba.so"


def test_links_use_the_linker_and_the_summary_says_so(build: Build, need: Need) -> None:
    library = prepared(build, need)
    done = build.run(*LINK, options=["--linker", "gold"])
    assert (done.status, done.err.count("links: 1 gold (--linker gold)")) == (0, 1)
    assert GOLD in library.read_bytes()
    assert build.run(*LINK).status == 0
    assert GOLD not in library.read_bytes()


def test_a_link_that_only_the_default_linker_can_make_uses_that(build: Build, need: Need) -> None:
    library = prepared(build, need)
    only = (*LINK, "-Wl,--force-group-allocation")
    done = build.run(*only, options=["--linker", "gold", "--explain"])
    assert done.status == 0
    assert GOLD not in library.read_bytes()
    assert "links: default linker (--linker gold)" in done.err
    assert "liba.so was repeated: the link failed with another linker" in done.err
    assert "unrecognized option" not in done.err  # the message of the first attempt


def test_a_missing_linker_is_an_error_that_says_how_to_install_it(build: Build) -> None:
    done = build.run("touch", "begun", options=["--linker", "mold"], PATH="/nowhere")
    assert done.status == 4
    assert "there is no program 'ld.mold'" in done.err
    assert "to link by default: --linker default" in done.err
    assert not (build.folder / "begun").exists()


@pytest.mark.slow
def test_develop_switches_the_linker_without_compiling_anything_else(
    stoker: Stoker, tmp_path: Path, need: Need
) -> None:
    need("ld.gold")
    project = Project(stoker, tmp_path, "mini-cmake")
    project.change("CMakeLists.txt", "add_library(sum", "add_library(sum SHARED")
    project.built(command="develop")
    (library,) = Path(os.environ["STOKER_HOME"]).rglob("libsum.so")
    assert GOLD not in library.read_bytes()
    project.change("src/mean.cpp", "\n", "\n\n")
    changed = project.built("--linker", "gold", command="develop")
    assert changed.ends["configure"] == "skipped"
    assert changed.compiled() == ["mean.cpp"]
    assert GOLD in library.read_bytes()
