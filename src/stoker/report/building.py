"""Builds and containers as lines of text."""

from collections.abc import Sequence

from stoker.model.build import BuildRecord, StageEnd, StageResult
from stoker.model.container import KeptContainer
from stoker.model.value import duration

_WIDTH = max(len("configure"), len("prepare"))


def stage_line(result: StageResult) -> str:
    """Return a line such as ``  compile    done in 12 s``."""
    match result.end:
        case StageEnd.RUNNING:
            what = f"started ({result.why})"
        case StageEnd.DONE:
            what = f"done in {duration(result.seconds)}"
        case StageEnd.SKIPPED:
            what = "unchanged"
        case StageEnd.FAILED | StageEnd.INTERRUPTED:
            what = f"{result.end} after {duration(result.seconds)}"
    return f"  {result.stage:<{_WIDTH}}  {what}\n"


def end_line(record: BuildRecord, folder: str) -> str:
    """Return the end of a successful build: its time and its run folder."""
    seconds = sum(result.seconds for result in record.stages)
    return f"stoker: built in {duration(seconds)}; record and logs in {folder}\n"


def containers_text(containers: Sequence[KeptContainer]) -> str:
    if not containers:
        return "no container is kept\n"
    width = max(len(container.name) for container in containers)
    return "".join(f"{c.name:<{width}}  {c.status:<24}  {c.image}\n" for c in containers)
