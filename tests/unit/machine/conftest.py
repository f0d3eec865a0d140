"""Recorded trees: the few files of a machine that matter, written below a folder of their own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stoker.machine.file_tree import FileTree

Record = Callable[[Mapping[str, str]], FileTree]
Script = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """``record({"/proc/meminfo": "..."})`` is a new tree; a name that ends in / is a folder."""

    def make(files: Mapping[str, str]) -> FileTree:
        tree = FileTree(tmp_path_factory.mktemp("root"))
        for name, text in files.items():
            path = tree.path(name)
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_text(text)
        return tree

    return make


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """``script("bin/gcc", "echo 12.2.0")`` is a program."""

    def make(name: str, body: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return make
