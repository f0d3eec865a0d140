"""The command line: help, errors, exit statuses, pipes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import Need, Stoker
from stoker import __version__
from stoker.cli import COMMANDS
from stoker.cli.root import command as stoker_command
from stoker.model.errors import ExitStatus


def test_version(stoker: Stoker) -> None:
    done = stoker("--version")
    assert (done.returncode, done.stdout) == (0, f"stoker {__version__}\n")


def test_version_imports_nothing_heavy(stoker: Stoker) -> None:
    done = stoker("--version", PYTHONPROFILEIMPORTTIME="1")
    assert "stoker.cli" in done.stderr
    for heavy in ("msgspec", "archspec", "pynvml", "stoker.plan", "stoker.machine"):
        assert f" {heavy}\n" not in done.stderr


@pytest.mark.parametrize("command", [(), ("cache",), ("catalogue",)])
def test_a_command_without_arguments_shows_its_help(
    stoker: Stoker, command: tuple[str, ...]
) -> None:
    """It was an error with the help as its message."""
    done = stoker(*command)
    assert done.returncode == ExitStatus.USAGE
    assert not done.stdout
    assert done.stderr == stoker(*command, "--help").stdout


def test_a_missing_choice_is_told_in_one_line(stoker: Stoker) -> None:
    done = stoker("package", "mill.whl")
    assert done.returncode == ExitStatus.USAGE
    assert done.stderr.splitlines()[0] == "stoker: missing option '--mode': pypi, bundle, plain"


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_help_fits_40_columns_and_breaks_no_words(command: tuple[str, ...]) -> None:
    narrow, wide = (
        CliRunner()
        .invoke(stoker_command, [*command, "--help"], prog_name="stoker", env={"COLUMNS": columns})
        .stdout
        for columns in ("40", "80")
    )
    assert wide.startswith(" ".join(["Usage: stoker", *command]))
    assert command or all(name in wide for name in COMMANDS)
    as_words = [re.sub(r"-\n\s+", "-", text).split() for text in (narrow, wide)]
    assert as_words[0] == as_words[1]
    examples = {line for line in narrow.splitlines() if line in wide.splitlines()}
    assert [line for line in narrow.splitlines() if len(line) > 40 and line not in examples] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "nosuch.whl"],
        ["package", "nosuch.whl", "--mode", "plain"],
        ["inspect", "nosuch.whl"],
        ["slim", "nosuch.whl", "--for", "h100"],
        ["catalogue", "publish", "nosuch.whl", "--to", "wheels"],
        ["diagnose", "nosuch.log"],
        ["build", "--from-record", "nosuch.json"],
        ["history", "--import", "nosuch.json"],
        ["simulate", "nosuch.json", "--cpus", "2", "--memory", "2G"],
    ],
)
def test_a_missing_input_file_is_a_usage_error(stoker: Stoker, arguments: list[str]) -> None:
    done = stoker(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no file" in done.stderr or "'nosuch." in done.stderr


@pytest.mark.parametrize("words", [(), ("plan",), ("toolchain", "install"), ("help",)])
def test_help_is_also_a_command(stoker: Stoker, words: tuple[str, ...]) -> None:
    done = stoker("help", *words)
    assert (done.returncode, done.stdout) == (0, stoker(*words, "--help").stdout)


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_a_variant_is_words_or_an_option(stoker: Stoker, command: str) -> None:
    words = stoker(command, "NVIDIA", "GeForce RTX 3090", "--json")
    option = stoker(command, "--variant", "nvidia geforce rtx 3090", "--json")
    assert words.returncode in (0, 1), words.stderr
    assert json.loads(words.stdout)["variant"] == json.loads(option.stdout)["variant"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pla"], "did you mean plan"),
        (["plan", "--list", "."], "'.' is a folder, not a variant\n  `stoker plan --source .`"),
        (["history", "7"], "the history has no run '7'"),
        (["plan", "h101"], "h100"),
        (["plan", "h100", "-D", "USE_CUDDN=1"], "USE_CUDNN"),
        (["plan", "cpu", "-D", "FOO"], "-D FOO has no value"),
        (["plan", "--variant", ""], "a variant needs at least one word"),
        (["plan", ""], "a variant needs at least one word"),
        (["plan", "cpu", "--python", "3.99"], "no Python 3.99"),
        (["plan", "--blas", "openblass"], "choose from: mkl, openblas, blis"),
        (["plan", "--build-type", "fast"], "choose from: Release, Debug, RelWithDebInfo"),
        (["run", "--policy", "greedy", "--", "true"], "choose from: adaptive, fixed"),
        (["plan", "h100", "cpu"], "two values for backend: cuda and cpu"),
        (["plan", "h100", "--nccl", "--no-distributed"], "nccl needs distributed"),
        (["plan", "h100", "--json", "--shell"], "choose one of --json and --shell"),
        (["plan", "h100", "--variant", "a100"], "two variants: 'h100' and --variant 'a100'"),
        (["plan", "h100", "--against", "a100", "--shell"], "cannot be printed as --shell"),
        (["help", "pla"], "did you mean plan"),
        (["help", "nosuch"], "`stoker --help` lists the commands"),
        (["help", "toolchain", "instal"], "did you mean install"),
        (["help", "plan", "h100"], "unknown command 'h100'"),
        (["plan", "--source", "no-such-folder"], "no-such-folder"),
        (["plan", "--options", "--source", "no-such-folder"], "no-such-folder"),
        (["plan", "--no-such-flag"], "there is no option --no-such-flag"),
        (["doctor", "--variant", "cu130-smm90"], "sm90"),
    ],
)
def test_bad_input_ends_with_status_2_and_a_hint(
    stoker: Stoker, arguments: list[str], said: str
) -> None:
    done = stoker(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if "--json" in arguments:
        assert said in json.loads(done.stdout)["error"]["message"]
    else:
        assert done.stdout == ""


@pytest.mark.parametrize(
    "line", ["plan --list", "plan --list --json", "help --completion bash", "--version"]
)
def test_a_closed_pipe_is_no_error(line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [str(Path(sys.executable).with_name("stoker")), *line.split()]
    try:
        done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "plan --source .",
        "plan ./x",
        "build .",
        "verify .",
        "graph .",
        "catalogue publish ./x --to i",
    ],
)
def test_a_folder_that_must_not_be_read(tmp_path: Path, need: Need, line: str) -> None:
    secret = tmp_path / "theirs"
    secret.mkdir(mode=0o000)
    words = [str(Path(sys.executable).with_name("stoker")), *line.replace(".", "theirs").split()]
    if os.geteuid() == 0:  # root may read everything, except without its capabilities
        words = [need("setpriv"), "--bounding-set=-all", "--inh-caps=-all", *words]
        os.chown(secret, 65534, -1)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("stoker: cannot ")
    assert done.stderr.endswith("Permission denied\n")


def test_completion_offers_commands(stoker: Stoker) -> None:
    done = stoker(_STOKER_COMPLETE="bash_complete", COMP_WORDS="stoker do", COMP_CWORD="1")
    assert done.stdout == "plain,doctor\n"
