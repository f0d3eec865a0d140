"""Every entry of knowledge/failures is complete, matches quickly and recognises its own
examples.
"""

from collections.abc import Iterator
from importlib import resources
from io import BytesIO
from pathlib import Path

import pytest

from failure_files import checked
from stoker.diagnose.sieve import read_log
from stoker.diagnose.verdict import diagnose

FOLDER = Path(str(resources.files("stoker.knowledge"))) / "failures"
FILES = sorted(FOLDER.glob("*.toml"))


def examples() -> Iterator[tuple[str, str]]:
    for file in FILES:
        try:
            entry = checked(file.read_bytes(), file.stem)
        except ValueError:
            continue  # said by the test of that file
        for example in entry.example:
            yield entry.name, example.log


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_entry_is_complete_and_its_patterns_end_soon(file: Path) -> None:
    assert checked(file.read_bytes(), file.stem).example


@pytest.mark.parametrize(("name", "log"), list(examples()))
def test_an_example_is_diagnosed_as_its_own_cause_first(name: str, log: str) -> None:
    found = diagnose(read_log(BytesIO(log.encode()))).findings
    assert found, "no sign matches"
    assert found[0].cause == name, [(one.cause, one.confidence) for one in found]
