"""Arguments that cannot be right: the message says what is wrong and names the next step."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoker.cli.root import command
from stoker.govern.history.store import History
from stoker.model.errors import UsageError


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder contains folders, one of them with the name of a variant."""
    for name in ("pytorch", "my tree", "cpu", "fleet"):
        (tmp_path / name).mkdir()
    (tmp_path / "stoker.toml").write_text('[variants.fleet]\nvariant = "h1000"\n')
    monkeypatch.chdir(tmp_path)


def _error(*arguments: str) -> UsageError:
    error = CliRunner().invoke(command, arguments).exception
    assert isinstance(error, UsageError)
    return error


@pytest.mark.parametrize(
    ("arguments", "source", "variant"),
    [
        (("plan", "pytorch"), "pytorch", None),
        (("plan", "./pytorch"), "./pytorch", None),
        (("plan", "."), ".", None),
        (("plan", "./cpu"), "./cpu", None),
        (("plan", "cpu-py312", "pytorch"), "pytorch", "cpu-py312"),
        (("plan", "pytorch", "--variant", "cpu-py312"), "pytorch", "cpu-py312"),
        (("plan", "cpu", "--variant", "cpu-py312"), "cpu", "cpu-py312"),
        (("plan", "my tree"), "my tree", None),
        (("doctor", "pytorch"), "pytorch", None),
    ],
)
def test_a_folder_among_the_words_is_the_source(
    arguments: tuple[str, ...], source: str, variant: str | None
) -> None:
    Path(source, "CMakeLists.txt").write_text("project(mine CXX)\n")
    options = ["--source", source, *(["--variant", variant] if variant else [])]
    named = CliRunner().invoke(command, [arguments[0], *options, "--json"])
    found = CliRunner().invoke(command, [*arguments, "--json"])
    assert '"variant"' in found.stdout
    # doctor says how much memory is free at that moment
    without_memory = [re.sub(r"[\d.]+ GiB", "", said.stdout) for said in (found, named)]
    assert without_memory[0] == without_memory[1]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("plan", "--list", "pytorch"), "`stoker plan --source pytorch`"),
        (("plan", "pytorch", "--source", "cpu"), "`stoker plan --source pytorch`"),
    ],
)
def test_a_folder_is_not_a_variant(arguments: tuple[str, ...], hint: str) -> None:
    Path("cpu/CMakeLists.txt").write_text("project(mine CXX)\n")
    error = _error(*arguments)
    assert (error.message, error.hints) == ("'pytorch' is a folder, not a variant", (hint,))


@pytest.mark.parametrize("others", [("--list",), ("--source", "pytorch")])
def test_a_source_that_is_no_folder_is_not_a_variant_either(others: tuple[str, ...]) -> None:
    said = "'h5py==3.14.0' is a source, not a variant"
    assert _error("plan", "h5py==3.14.0", *others).message == said


def test_a_path_that_is_no_source_tree_is_not_taken_for_a_variant() -> None:
    Path("notes.txt").write_text("see the README\n")
    assert "neither a folder nor an archive" in _error("plan", "notes.txt").message
    assert "there is no folder" in _error("plan", "./nosuch").message
    assert "there is no folder" in _error("doctor", "h100", "../nosuch").message


def test_a_variant_may_have_the_name_of_a_folder() -> None:
    assert CliRunner().invoke(command, ["plan", "--list", "cpu"]).exit_code == 0
    assert "unknown word 'h1000'" in _error("plan", "--list", "fleet").message


@pytest.mark.parametrize("words", [["plan"], ["plan", "--list"]])
def test_a_misspelt_variant_of_stoker_toml(words: list[str]) -> None:
    assert _error(*words, "fleeet").hints[0] == "did you mean fleet of stoker.toml?"


@pytest.mark.parametrize(
    "line", ["matrix cpu", "verify cpu", "package cpu --mode plain", "history --import cpu"]
)
def test_a_folder_is_not_a_file(line: str) -> None:
    error = _error(*line.split())
    assert (error.message, error.hints) == ("'cpu' is a folder, not a file", ("name a file in it",))


def test_a_settings_file_that_is_missing() -> None:
    assert _error("matrix", "nosuch.toml").message == "there is no file 'nosuch.toml'"


@pytest.mark.parametrize(
    "line", ["build cpu --label a%b", "build cpu/a.cpp", "build --tag v1 cpu", "build cpu@v1"]
)
def test_a_build_that_cannot_work_is_refused_at_once(line: str) -> None:
    Path("cpu/a.cpp").write_text("int main() {}\n")
    error = _error(*line.split())
    assert error.message in (
        "'a%b' is not a local version label",
        "a.cpp is neither a folder nor an archive",
        f"{Path('cpu').resolve()} is not a git repository, so it has no tags",
    )
    assert not Path("dist").exists()


def test_a_misspelt_option_of_run_is_not_a_command() -> None:
    done = CliRunner().invoke(command, ["run", "--memry", "8G", "--", "true"])
    assert done.exit_code == 2
    assert "No such option '--memry'" in done.stderr
    assert "--memory" in done.stderr


@pytest.mark.parametrize("line", ["history pytorch", "history 7", "history fleet --step a"])
def test_a_run_that_the_history_lacks(line: str) -> None:
    with History() as history:
        history.start_run("ninja", "/build")
    error = _error(*line.split())
    assert error.message == f"the history has no run '{line.split()[1]}'"


def test_a_folder_behind_options_is_the_source() -> None:
    assert "pytorch is an empty folder" in _error("plan", "--options", "pytorch").message
    assert "not a source tree" in _error("plan", "--options", "cudnn").message
