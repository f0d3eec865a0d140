"""What is read of a room is bounded, whatever was left there."""

import os
from pathlib import Path
from typing import Any

import pytest

from stoker.ask.inside import leftovers


def test_all_that_is_reported_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_MOST_BYTES", 1000)
    monkeypatch.setattr(leftovers, "_MOST_FILE", 500)
    tree, notes, own = tmp_path / "tree", tmp_path / "notes", tmp_path / "tmp"
    for folder in (tree, notes, own):
        folder.mkdir()
    (notes / "a").write_text("n" * 300)
    for number, size in enumerate((501, 400, 200, 200)):
        (tree / str(number)).mkdir()
        (tree / str(number) / "build.ninja").write_text("x" * size)
    (tree / "link").mkdir()
    (tree / "link/build.ninja").symlink_to(notes / "a")
    (tree / "hole").mkdir()
    (tree / "hole/build.ninja").write_bytes(b"a\0b")
    read: Any = leftovers.left  # it has no types, because the room starts it with any Python
    log = os.open(notes / "a", os.O_RDONLY)
    noted = os.open(notes, os.O_RDONLY)
    try:
        config = {"tmp": str(own), "tree": str(tree)}
        found = read(config, log, noted, str(tree), str(tree))
    finally:
        os.close(log)
        os.close(noted)
    assert found["notes"] == found["output"] == "n" * 300
    sizes = sorted(map(len, found["files"].values()))
    assert sizes in ([200, 400], [200, 200])  # in the order of the folder; 700 bytes are left
