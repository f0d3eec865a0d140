"""What a run says if its time was over before all steps had ended."""

import time
from collections.abc import Sequence

from stoker.model.errors import StokerError, UnfinishedError
from stoker.model.events import StepTooLate
from stoker.model.govern import TimeLimit
from stoker.model.value import duration


def check_time(limit: TimeLimit | None) -> None:
    """Raise an error if the time of a run is over."""
    if limit and time.monotonic() > limit.ends:
        raise UnfinishedError(f"the {duration(limit.seconds)} of --stop-after are over")


def unfinished(
    late: Sequence[StepTooLate], limit: TimeLimit | None, *, advanced: bool
) -> StokerError:
    """Return the error for steps that were not started, or ended before their end. ``advanced``:
    others have ended well.
    """
    longest = max(late, key=lambda step: step.seconds)
    time_given = duration(limit.seconds) if limit else "its time"
    about = f"{longest.title}, which takes about {duration(longest.seconds)}"
    ended = [step for step in late if step.ran_s]
    if ended:
        longest = max(ended, key=lambda step: step.ran_s)
        about = f"{longest.title}, which ran for {duration(longest.ran_s)}"
    if not (advanced and any(step.fits for step in late)):
        text = f"no step could be started in {time_given}; the longest is {about}"
        if ended:
            text = f"{about}, does not end in {time_given}"
        return StokerError(text, hints=["a longer --stop-after"])
    if ended:
        were = f"{len(ended)} steps were" if len(ended) > 1 else "1 step was"
        return UnfinishedError(
            f"the {time_given} of --stop-after are over: {were} stopped before the end; "
            f"the longest is {about}"
        )
    steps = f"{len(late)} waiting steps were" if len(late) > 1 else "1 waiting step was"
    return UnfinishedError(
        f"the {time_given} of --stop-after are almost over: {steps} not started; the longest is "
        f"{about}"
    )
