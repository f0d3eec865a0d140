"""What a policy promises, and the names of those to choose from.

Apart from the policies, because `stoker run` only checks a name.

Pure: the time is in the state, and the same state always gets the same decision.
"""

from typing import Protocol

from stoker.model.errors import UsageError, unknown
from stoker.model.govern import Decision, State
from stoker.model.value import count_of

# Times that the policy and all around it share, in seconds.

# Until a pause or a kill takes effect. A measurement may be older than its step by so much, memory
# in use now stays in use for so long, and a step that ends sooner shows nothing of itself.
# Simulated kills take no time.
REACTION = 0.5
# Within which what follows from a decision is known: a build tool has started all that it can, and
# what a step was given must suffice
# [test_a_step_that_would_end_too_late_waits_while_others_run].
MOMENT = 2.0

NAMES = ("adaptive", "fixed", "levels", "two-phase")


class Policy(Protocol):
    """Decides which steps start, pause, resume and die, and gives the reasons.

    It is asked after every event and every reading, and its decision is carried out before it is
    asked again. A policy admits only waiting steps and kills only running ones. If no step runs and
    some wait, it admits at least one.
    """

    @property
    def name(self) -> str: ...

    def decide(self, state: State) -> Decision: ...


def parse_policy(text: str) -> tuple[str, int | None]:
    """Return the name of a policy and its number of jobs, which only ``fixed:8`` has."""
    name, _, jobs = text.partition(":")
    if name not in NAMES:
        raise unknown("policy", text, NAMES)
    if jobs and (name != "fixed" or not count_of(jobs)):
        raise UsageError(f"'{text}' is not a policy", hints=["a number of jobs: fixed:8"])
    return name, int(jobs) if jobs else None
