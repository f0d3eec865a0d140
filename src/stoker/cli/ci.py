"""Tells the CI system that runs this job what happened; does nothing on other machines."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.model.errors import StorageError
from stoker.model.visible import visible
from stoker.outside.streams import CiSystem, ci_system

if TYPE_CHECKING:
    from stoker.builds.building import Built
    from stoker.diagnose.values import Diagnosis
    from stoker.govern.client.running import Finished
    from stoker.model.build import StageResult

_SUMMARY = "GITHUB_STEP_SUMMARY"  # names the file that GitHub shows on the page of the job


class CiReport:
    """``write`` is for the log of the job, with control sequences that fold it. A file that cannot
    be written is a warning there.
    """

    def __init__(self, write: Callable[[str], None], *, junit: Path | None = None):
        from stoker.report.ci import Sections

        self._write = write
        self._junit = junit
        self._system = ci_system(os.environ)
        self._sections = Sections(self._system)

    def stage(self, result: "StageResult") -> None:
        self._write(self._sections.text(result, time.time()))

    def built(self, built: "Built", diagnosis: "Diagnosis | None") -> None:
        from stoker.report.ci import build_summary, junit

        self._tell(build_summary(built.record, diagnosis), diagnosis)
        if self._junit:
            from stoker.outside.files import write_named

            self._safely(
                lambda path: write_named(path, junit(built.record, diagnosis)), self._junit
            )

    def ran(self, command: str, finished: "Finished", diagnosis: "Diagnosis | None") -> None:
        from stoker.report.ci import run_summary

        self._tell(run_summary(command, finished.status, finished.summary, diagnosis), diagnosis)

    def diagnosed(self, diagnosis: "Diagnosis") -> None:
        from stoker.report.ci import cause_summary

        self._tell(cause_summary(diagnosis), diagnosis)

    def _tell(self, summary: str, diagnosis: "Diagnosis | None") -> None:
        from stoker.report.ci import annotation

        if self._system is not CiSystem.GITHUB:
            return
        if diagnosis:
            self._write(visible(annotation(diagnosis, os.environ.get("GITHUB_WORKSPACE", ""))))
        if page := os.environ.get(_SUMMARY):
            self._safely(lambda path: _append(path, summary), Path(page))

    def _safely(self, act: Callable[[Path], None], path: Path) -> None:
        try:
            act(path)
        except (OSError, StorageError) as error:
            self._write(visible(f"stoker: cannot write {path}: {error}\n"))


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write(text)
