"""Places of jobs: which steps may start at all, and which of them need no free CPU.

CPUs belong to the jobs of the build tool, and nothing waits for a CPU that is held by something
that waits:

- A holder whose processes use no CPU lends its place, and so does a job while a step inside it
  runs (``Running.lent``). So what holds a CPU uses it.
- The first step inside a job runs on its job's place, so it needs no free CPU.
- A job that is no compile has a place of the number that the user gave the build tool. That many
  run at once without stoker too, so they may be more than there are CPUs, except where a more
  urgent compile waits for one.

Pure.
"""

from collections import Counter
from collections.abc import Sequence
from math import inf

from stoker.govern.policy.entry import Entry
from stoker.govern.policy.open_steps import OpenSteps, urgency
from stoker.model.govern import Reason, Request

_BEYOND = 2  # jobs more than CPUs if the user gave no number: that is ninja's own default


class Places:
    """The places that are taken at one time."""

    def __init__(self, steps: OpenSteps, cpus: int) -> None:
        self._steps = steps
        self._cpus = cpus
        self._taken: Counter[int] = Counter()  # by run: of steps that run on a place of their own
        self._jobs: Counter[int] = Counter()  # those of them that are no compiles
        for entry in steps.holding.values():
            if not (entry.request.remote or entry.inner):
                self._taken[entry.run] += 1
                self._jobs[entry.run] += entry.request.jobs is not None

    def has_job_left(self, entry: Entry) -> bool:
        """Return whether the user's number of jobs allows a step to start."""
        return self._jobs[entry.run] < self._most(entry.request) or self.is_lent_to(entry)

    def is_lent_to(self, entry: Entry) -> bool:
        """Return whether a step would be the only one that runs inside its job."""
        job = self._steps.around(entry)
        return job is not None and not (job.inner or job.request.remote)

    def startable(self) -> tuple[Sequence[Request], frozenset[int]]:
        """Return the waiting steps that may start, in their order, and which need no free CPU."""
        lent = {e.request.within: e.request.id for e in self._lent()}
        placed, jobs, new = set(lent.values()), [], Counter[int]()
        compiles = (each for each in self._steps.queue if not each.remote and each.id not in placed)
        first = next(compiles, None)
        for request in self._steps.jobs:
            entry, most = self._steps[request.id], self._most(request)
            run = entry.run
            if request.id in placed:
                jobs.append(request)
            elif self._jobs[run] + new[run] < most:
                new[run] += entry.clock.held_for is not Reason.MEMORY  # others may pass it
                jobs.append(request)
                if self._taken[run] + new[run] <= most and not _is_behind(request, first):
                    placed.add(request.id)
        return self._steps.queue.joined_by(jobs), frozenset(placed)

    def _lent(self) -> list[Entry]:
        """Return the waiting steps whose jobs lend them their places, least urgent first: of those
        inside one job the last one gets it.
        """
        inner = [entry for entry in self._steps.waiting_inside() if self.is_lent_to(entry)]
        return inner[::-1]

    def _most(self, request: Request) -> float:
        """Return how many jobs that are no compiles may run beside each other."""
        if request.jobs is None:
            return inf
        return request.jobs or self._cpus + _BEYOND


def _is_behind(request: Request, other: Request | None) -> bool:
    return other is not None and urgency(other) < urgency(request)
