"""Inputs that once crashed or stalled a reader: each is read again, and every reader is fuzzed a
little. The name of a file in tests/fuzzed begins with that of its reader.
"""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz_targets import REFUSED, TARGETS

TESTS = Path(__file__).parents[1]
KEPT = sorted((TESTS / "fuzzed").iterdir())
HUGE = "9" * 5000  # more digits than Python makes a number of


@pytest.mark.parametrize("path", KEPT, ids=lambda path: str(path.name))
def test_an_input_that_once_failed_is_accepted_or_refused(path: Path, tmp_path: Path) -> None:
    with suppress(*REFUSED):
        TARGETS[path.name.partition("-")[0]](path.read_bytes(), tmp_path)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("words", f"{HUGE}G"),
        ("words", f"cu13{HUGE}"),
        ("words", f"rocm6.{HUGE}"),
        ("words", f"py3.{HUGE}"),
        ("words", f"mill=={HUGE}"),
        ("words", f"{HUGE}h"),
        ("words", "x" * 100_000),
        ("toml", f"[defaults]\nvariant = 'rocm6.{HUGE}'\n"),
        ("toml", f"[defaults]\ndefine.X = {HUGE}\n"),
        ("tree", f"version.txt\x1f\x1f\x1f{HUGE}"),
        ("tree", f"pyproject.toml\x1f\x1f\x1fx = {HUGE}"),
        ("tree", f"pyproject.toml\x1f\x1f\x1f[build-system]\nrequires = ['x>=1,<{HUGE}']"),
        ("tree", f"requirements-build.txt\x1f\x1f\x1fx>=1,<{HUGE}"),
        ("tree", "requirements-build.txt\x1f\x1f\x1fx; " + "(" * 5000),
        ("tree", f".ninja_log\x1f\x1f\x1f0\t{HUGE}\t1\tx.o\tff\n0\t\u00b2\t1\ty.o\tff"),
        ("page", f"<a href='mill-{HUGE}.tar.gz'>x</a>"),
        ("page", f'{{"files": [{{"url": "mill-{HUGE}.tar.gz"}}], "size": {HUGE}}}'),
        ("page", "<a href='http://[x'>x</a>"),
        ("page", "<base href='http://[x'><a href='y'>x</a>"),
        ("wire", f"done\t0\t0\t{HUGE}\t1\t1\t1"),
    ],
)
def test_a_number_beyond_all_measure_is_no_traceback(
    reader: str, text: str, tmp_path: Path
) -> None:
    with suppress(*REFUSED):
        TARGETS[reader](text.encode(), tmp_path)


@pytest.mark.slow
def test_fuzzing_finds_nothing_in_a_few_inputs_of_each_reader(tmp_path: Path) -> None:
    fuzz = TESTS.parent / "benchmarks" / "fuzz.py"
    command = [sys.executable, str(fuzz), "--inputs", "416", "--seed", "7", "--keep", "kept"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
