"""The names of headers that are in the key of ccache's direct mode."""

import os
from pathlib import Path

import pytest

from stoker.cache.keys import assembler, header_names, own_folders, project_folder
from stoker.outside import folders


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("src/a.cpp", "include/said.h", "Eigen/Dense"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("name", ["first/said.h", "src/said.hpp", "include/Core", "more.cu"])
def test_a_name_that_may_be_included_counts(tree: Path, name: str) -> None:
    before = header_names(tree)
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    after = header_names(tree)
    assert before != after
    path.write_text("another content")
    assert header_names(tree) == after
    path.unlink()
    assert header_names(tree) == before


@pytest.mark.parametrize(
    "name",
    ["src/a.o", "build/said.h", ".git/said.h", ".venv/said.h", "gen/said.h", "src/config.h", "x.d"],
)
def test_what_builds_generate_does_not_count(tree: Path, name: str) -> None:
    """Otherwise a second build would not find what the first one has kept."""
    (tree / "build").mkdir()
    (tree / "build/CMakeCache.txt").touch()
    (tree / ".gitignore").write_text("# generated\n/gen/\nconfig.h\n*.tmp\n!kept.tmp\n")
    before = header_names(tree)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).touch()
    assert header_names(tree) == before


def test_the_folder_of_a_tree_does_not_count(tree: Path) -> None:
    before = header_names(tree)
    moved = header_names(tree.rename(tree.with_name("moved")))
    assert before
    assert moved
    assert moved.digest == before.digest
    assert (before.tree, moved.tree) == (str(tree), str(tree.with_name("moved")))


def test_a_link_to_another_folder_counts_by_its_name(tree: Path) -> None:
    before = header_names(tree)
    (tree / "linked").symlink_to(tree)  # it is not followed, so it cannot be a circle
    assert header_names(tree) != before


def test_a_build_folder_elsewhere_names_its_sources(tree: Path, tmp_path: Path) -> None:
    (tree / ".git").mkdir()
    build = tmp_path.with_name(f"{tmp_path.name}-build")
    build.mkdir()
    assert project_folder(build) == build
    (build / "CMakeCache.txt").write_text(f"A:BOOL=ON\nCMAKE_HOME_DIRECTORY:INTERNAL={tree}/src\n")
    assert project_folder(build) == tree
    (build / "CMakeCache.txt").write_text("A:BOOL=ON\n")
    assert project_folder(build) == build


def test_too_many_files_have_no_digest(tree: Path) -> None:
    assert header_names(tree, most=5) is None


def test_the_assembler_is_the_first_one_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "folder/as").mkdir(parents=True)
    program = tmp_path / "as"
    program.touch()
    path = f"{tmp_path}/folder:{tmp_path}"
    assert assembler({"PATH": path}) is None
    program.chmod(0o755)
    assert assembler({"PATH": path}) == str(program)


@pytest.mark.parametrize("home", [{"STOKER_HOME": "~/cache"}, {"XDG_CACHE_HOME": "{tree}/cache"}])
def test_caches_in_a_tree_do_not_count(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files have no suffix, as some headers of C++, and are new after each compile."""
    (tmp_path / "a.h").touch()
    monkeypatch.delenv("STOKER_HOME", raising=False)
    for name, value in {"HOME": "{tree}", **home}.items():
        monkeypatch.setenv(name, value.format(tree=tmp_path))
    (tmp_path / "ccache/2").mkdir(parents=True)
    (tmp_path / "ccache/2/CACHEDIR.TAG").touch()
    folders.cache().mkdir(parents=True)
    own = own_folders(os.environ)
    before = header_names(tmp_path, without=own)
    (tmp_path / "ccache/2/0c22a3q6ik0v5722R").touch()
    (folders.cache() / "cpu0").touch()
    assert header_names(tmp_path, without=own) == before
    (tmp_path / "vector").touch()
    assert header_names(tmp_path, without=own) != before
