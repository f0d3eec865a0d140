"""Files of settings that another user may have written."""

import os
from pathlib import Path

import pytest

from conftest import as_root
from stoker.settings.declared import OPTIONS, CommandLine
from stoker.settings.toml import find_file
from stoker.settings.trust import danger, repeat_trust, trust
from stoker.settings.user_options import UserOptions, read_user_options

EVIL = """
[defaults]
cpus = 3
compiler_launcher = "/tmp/evil.sh"
source = "ext::sh -c evil"
[variants.other]
cache_remote = "redis://evil:6379"
distribute = "distcc:evil"
trust_network = true
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is trusted yet, and the current folder is below one with a stoker.toml."""
    folder = tmp_path / "shared/project"
    folder.mkdir(parents=True)
    (tmp_path / "shared/stoker.toml").write_text(EVIL)
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return tmp_path / "shared"


def read(*words: str, **options: str) -> UserOptions:
    return read_user_options(CommandLine(options=options, file=words[0] if words else None), {})


def reached(chosen: UserOptions) -> set[str]:
    names = {"source", *(option.name for option in OPTIONS.values() if option.reaches_out)}
    return {name for name in names if (chosen.text(name) or "none") != "none"}


def test_settings_that_reach_out_are_ignored_until_the_file_is_trusted(home: Path) -> None:
    chosen = read(variant="other")
    assert chosen.text("cpus") == "3"
    assert chosen.file == str(home / "stoker.toml")
    assert reached(chosen) == set()
    (warning,) = chosen.warnings
    assert all(f"stoker.toml:{line}" in warning for line in (4, 5, 7, 8, 9))
    assert f"stoker plan --trust {home / 'stoker.toml'}" in warning
    trust(home / "stoker.toml")
    chosen = read(variant="other")
    assert chosen.warnings == ()
    assert len(reached(chosen)) == 5


def test_trust_ends_when_the_file_changes(home: Path) -> None:
    file = home / "stoker.toml"
    trust(file)
    file.write_text(EVIL + "\n")
    assert reached(read()) == set()
    trust(file)
    assert reached(read()) == {"compiler_launcher", "source"}


def test_trust_is_of_one_place(home: Path) -> None:
    trust(home / "stoker.toml")
    (home / "project/stoker.toml").write_text(EVIL)
    assert reached(read()) == set()
    (home / "project/stoker.toml").unlink()
    assert reached(read()) != set()


def test_a_named_file_needs_trust_too(home: Path) -> None:
    """A user who names a matrix has not read it."""
    assert reached(read(str(home / "stoker.toml"))) == set()


@pytest.mark.parametrize(("name", "taken"), [("tree", True), ("ext::sh", False)])
def test_a_source_that_is_here_needs_no_trust(home: Path, name: str, taken: bool) -> None:
    (home / "project" / name).mkdir()
    (home / "stoker.toml").write_text(f'[defaults]\nsource = "{name}"\n')
    assert reached(read()) == ({"source"} if taken else set())


def test_the_command_line_is_the_users_own() -> None:
    assert reached(read(compiler_launcher="mine")) == {"compiler_launcher"}


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_others_can_write_is_ignored_and_named(home: Path, mode: int) -> None:
    file = home / "stoker.toml"
    file.chmod(mode)
    chosen = read()
    assert (chosen.file, chosen.text("cpus")) == (None, None)
    assert chosen.warnings == (f"{file} is ignored: every user can write it",)
    trust(file)
    assert read().file == str(file)


def test_the_next_file_above_counts_then(home: Path) -> None:
    inner = home / "project/stoker.toml"
    inner.write_text("[defaults]\ncpus = 9\n")
    inner.chmod(0o666)
    chosen = read()
    assert chosen.text("cpus") == "3"
    assert f"{inner} is ignored" in chosen.warnings[0]


def test_a_group_of_the_users_own_may_write(home: Path) -> None:
    """That is usual with a umask of 002."""
    file = home / "stoker.toml"
    file.chmod(0o664)
    assert danger(file) is None


@as_root
@pytest.mark.parametrize("what", ["file", "group", "link"])
def test_a_file_of_another_user_is_ignored(home: Path, what: str) -> None:
    file = home / "stoker.toml"
    if what == "link":
        file.rename(home / "target")
        file.symlink_to("target")
    os.chown(
        file,
        65534 if what != "group" else -1,
        65534 if what == "group" else -1,
        follow_symlinks=False,
    )
    if what == "group":
        file.chmod(0o664)
    assert find_file(home / "project") is None
    assert "65534" in (danger(file) or "")


@as_root
def test_sudo_takes_the_file_of_its_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(home / "stoker.toml", 65534, -1)
    monkeypatch.setenv("SUDO_UID", "65534")
    assert danger(home / "stoker.toml") is None


def test_another_stoker_of_the_user_trusts_the_same(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(home / "stoker.toml")
    repeat_trust(tmp_path / "inside/data")
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "inside"))
    assert reached(read()) == {"compiler_launcher", "source"}


def test_recipes_of_a_file_that_is_not_trusted_are_ignored(home: Path) -> None:
    """They set environment variables and may name commands."""
    recipe = (
        '[[project]]\nname = "x"\npackages = ["x"]\n[project.backends.cpu]\ncommands = ["evil"]\n'
    )
    file = home / "project/stoker.toml"
    file.write_text(recipe)
    chosen = read()
    assert chosen.recipes == ()
    assert "[[project]] of stoker.toml" in chosen.warnings[0]
    trust(file)
    assert [recipe.name for recipe in read().recipes] == ["x"]
