"""Numbers of thousands of digits, bad tags and bad versions, wherever a user or a wheel may write
them: an answer in words, never a traceback.
"""

from pathlib import Path

import click
import pytest

import wheel_files
from conftest import Stoker, slow
from stoker.cli.root import command

HUGE = "9" * 5000
LARGE = "9" * 30  # a number to Python, none to SQLite and the kernel


@pytest.mark.parametrize("number", [HUGE, slow(LARGE)])
@pytest.mark.parametrize(
    "line",
    [
        "plan rocm6.{}",
        "plan cu{}",
        "plan sm{}",
        "plan {}.0",
        "plan cpu --python 3.{}",
        "plan cpu --platform linux-{}",
        "plan cpu -D MAX_JOBS={}",
        "plan --list {}",
        "run --memory {}G -- true",
        "run --keep-free {} -- true",
        "run --cpus {} -- true",
        "run --policy fixed:{} -- true",
        "simulate {} --cpus 4 --memory 8G",
        "simulate trace --cpus {} --memory 8G",
        "simulate trace --cpus 4 --memory {}",
        "simulate trace --cpus 4 --memory 8G --policy fixed:{}",
        "simulate trace --cpus 4 --memory 8G --scatter {}",
        "history {}",
        "history {} --export out",
        "diagnose {}",
        "clean --all --older-than {}d --dry-run",
        "build mill=={}",
        "build https://[{}/x.git",
        "toolchain install gcc=={}",
        "package mill-1.2-py3-none-any.whl --dry-run --torch {}",
        "package mill-1.2-py3-none-any.whl --dry-run --cuda {}.1",
        "package mill-1.2-py3-none-any.whl --dry-run --label {}",
        "package mill-1.2-py3-none-any.whl --dry-run --requires x=={}",
        "slim mill-1.2-py3-none-any.whl --for sm{} --dry-run",
        "verify mill-1.2-py3-none-any.whl --variant rocm6.{}",
        "inspect {}",
        "catalogue publish mill-1.2-py3-none-any.whl --to index --variant {}",
        "catalogue select . mill=={}",
        "catalogue select {}",
        "install . mill=={} --print",
        "install mill=={} --slim --for sm{}",
        "catalogue prune . --keep {}",
        "catalogue serve . --port {}",
    ],
)
def test_no_number_is_a_traceback(stoker: Stoker, tmp_path: Path, line: str, number: str) -> None:
    wheel_files.make_wheel(tmp_path)
    (tmp_path / "trace").write_text(
        '{"steps": [{"output": "a.o", "wall_s": 1, "peak_bytes": 1000000}]}'
    )
    assert_that_it_exists(line)
    done = stoker(*line.replace("{}", number).split(), PIP_NO_INDEX="1")
    assert "Traceback" not in done.stderr
    assert done.returncode < 128


def assert_that_it_exists(line: str) -> None:
    """A wrong command or option ends before anything reads the number."""
    found: click.Command = command
    words = line.partition(" -- ")[0].split()
    while isinstance(found, click.Group):
        name = words.pop(0)
        below = found.get_command(click.Context(found), name)
        assert below, f"no command {name} in {line}"
        found = below
    options = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.parametrize("words", ["inspect", "verify", "package --dry-run", "slim --for sm90"])
@pytest.mark.parametrize(
    ("metadata", "wheel"),
    [
        ("Version: 1.2", "Tag: a--c"),
        ("Version: 1.2", "Tag: a-b-c-d"),
        ("Version: 1.2", "Tag: py3 -none-any"),
        ("Version: 1.2", "Tag: .-.-."),
        ("Version: 1.2", "Tag: " + ".".join("ab") * 9999 + "-none-any"),
        (f"Version: {HUGE}", "Tag: py3-none-any"),
        (f"Version: 1.2\nRequires-Dist: torch=={HUGE}", "Tag: py3-none-any"),
        (f"Version: 1.2\nRequires-Dist: torch<3,>={HUGE}", "Tag: py3-none-any"),
        (f"Version: 1.2\nRequires-Python: >=3.{HUGE}", "Tag: py3-none-any"),
        (f"Version: 1.2\nMetadata-Version: {HUGE}", f"Tag: py3-none-manylinux_2_{HUGE}_x86_64"),
        ("Version: 1.2", f"Build: {HUGE}\nTag: cp3{HUGE}-none-any"),
    ],
)
def test_no_metadata_is_a_traceback(
    stoker: Stoker, tmp_path: Path, words: str, metadata: str, wheel: str
) -> None:
    contents = wheel_files.members()
    head = b"Metadata-Version: 2.1\nName: mill\n"
    contents[f"{wheel_files.DIST_INFO}/METADATA"] = head + metadata.encode() + b"\n"
    contents[f"{wheel_files.DIST_INFO}/WHEEL"] = b"Wheel-Version: 1.0\n" + wheel.encode() + b"\n"
    path = wheel_files.make_wheel(tmp_path, wheel_files.wheel_bytes(contents))
    word, *options = words.split()
    done = stoker(word, str(path), *options)
    assert "Traceback" not in done.stderr


def test_a_wheel_file_named_by_a_huge_version(stoker: Stoker, tmp_path: Path) -> None:
    path = wheel_files.make_wheel(tmp_path)
    long = path.rename(tmp_path / f"mill-{'9' * 200}-{'8' * 20}-py3-none-any.whl")
    assert "Traceback" not in stoker("verify", str(long)).stderr
