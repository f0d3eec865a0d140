"""Shared by all tests: stoker's folders stay in a temporary place; tools are asked for by name."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

PROJECTS = Path(__file__).parent / "projects"


@pytest.fixture(autouse=True)
def stoker_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own folders."""
    home = tmp_path_factory.mktemp("stoker-home")
    monkeypatch.setenv("STOKER_HOME", str(home))
    return home


@pytest.fixture
def need() -> Callable[[str], str]:
    """``need("nvcc")`` is its path; without it the test skips, or fails in CI."""

    def find(tool: str) -> str:
        if path := shutil.which(tool):
            return path
        missing(f"{tool} is not on the PATH")

    return find


def missing(what: str) -> NoReturn:
    """Something the test needs is not on this machine."""
    if os.environ.get("STOKER_REQUIRE_TOOLS"):
        pytest.fail(f"required by STOKER_REQUIRE_TOOLS: {what}")
    pytest.skip(what)
