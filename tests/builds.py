"""Run `stoker build` on copies of the test projects and inspect what it did."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from conftest import PROJECTS, Stoker

TIMEOUT_S = 280.0  # generous, because the machine may be busy


class Project:
    """A copy of a test project that a test can change and build."""

    def __init__(self, stoker: Stoker, folder: Path, name: str):
        self.tree = folder / name
        self.out = folder / "out"
        self._stoker = stoker
        shutil.copytree(PROJECTS / name, self.tree)

    def build(
        self, *options: str, command: str = "build", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        if command == "build" and "--out" not in options:
            options = ("--out", str(self.out), *options)
        return self._stoker(
            command,
            str(self.tree),
            "--variant",
            "cpu",
            "--json",
            *options,
            **environment,
        )

    def built(self, *options: str, command: str = "build", **environment: str) -> "Record":
        """Build the project; fail the test if the build fails. Return the record."""
        done = self.build(*options, command=command, **environment)
        assert done.returncode == 0, done.stderr
        return Record(json.loads(done.stdout))

    def change(self, file: str, old: str, new: str) -> None:
        path = self.tree / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Record:
    """The record that `stoker build --json` prints."""

    def __init__(self, printed: dict[str, Any]):
        self.folder = Path(printed["folder"])
        self.record = printed["record"]

    @property
    def ends(self) -> dict[str, str]:
        return {stage["stage"]: stage["end"] for stage in self.record["stages"]}

    @property
    def wheel(self) -> Path:
        (path,) = self.record["outputs"]
        return Path(path)

    def log(self, stage: str) -> str:
        (log,) = (one["log"] for one in self.record["stages"] if one["stage"] == stage)
        return Path(log).read_text()

    def compiled(self) -> list[str]:
        """Return the names of all sources that were compiled, in any stage."""
        steps = self.folder / "steps.json"
        if not steps.exists():
            return []
        events = (self.folder / "events.jsonl").read_text().splitlines()
        titles = [json.loads(line).get("title", "") for line in events if '"ends"' in line]
        sources = (".c", ".cc", ".cpp", ".cu")
        return sorted(
            Path(title).name
            for title in titles
            if title.endswith(sources)
            and "/CMake" not in title  # without the test programs of CMake
        )
