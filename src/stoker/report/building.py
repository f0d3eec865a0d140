"""A build as it goes and as it ended, in lines."""

from stoker.model.build import BuildRecord, StageEnd, StageResult
from stoker.model.units import duration

_WIDTH = max(len("configure"), len("prepare"))


def stage_line(result: StageResult) -> str:
    """``  compile    12 s``."""
    match result.end:
        case StageEnd.DONE:
            what = duration(result.seconds)
        case StageEnd.SKIPPED:
            what = "as before"
        case StageEnd.FAILED:
            what = f"failed after {duration(result.seconds)}"
    return f"  {result.stage:<{_WIDTH}}  {what}\n"


def end_lines(record: BuildRecord, folder: str) -> str:
    """What was made, for a reader who waited for it."""
    seconds = sum(result.seconds for result in record.stages)
    made = "".join(f"  {path}\n" for path in record.outputs)
    return f"stoker: built in {duration(seconds)}; record and logs in {folder}\n{made}"
