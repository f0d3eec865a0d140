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
from collections.abc import Iterable, Mapping

from stoker.govern.policy.entry import Entry
from stoker.model.govern import Request

_BEYOND = 2  # jobs more than CPUs if the user gave no number: that is ninja's own default


class Places:
    """The places that are taken at one time. ``holding`` are the steps with a permit."""

    def __init__(self, holding: Mapping[int, Entry], cpus: int) -> None:
        self._holding = holding
        self._cpus = cpus
        self._taken: Counter[int] = Counter()  # by run: of steps that run on a place of their own
        self._jobs: Counter[int] = Counter()  # those of them that are no compiles
        for entry in holding.values():
            if not (entry.request.remote or entry.inner):
                self._taken[entry.run] += 1
                self._jobs[entry.run] += entry.request.jobs is not None

    def has_job_left(self, entry: Entry) -> bool:
        """Return whether the user's number of jobs allows a step to start."""
        return self.is_lent_to(entry) or self._jobs[entry.run] < self._most(entry.request)

    def is_lent_to(self, entry: Entry) -> bool:
        """Return whether a step would be the only one that runs inside its job."""
        job = self._holding.get(entry.request.within)
        return job is not None and not (job.inner or job.request.remote)

    def startable(self, waiting: Iterable[Entry]) -> tuple[tuple[Request, ...], frozenset[int]]:
        """Return the waiting steps that may start, in their order, and which need no free CPU."""
        requests, placed, lent, behind = [], set(), set(), set()
        for entry in waiting:
            request = entry.request
            if self.is_lent_to(entry) and request.within not in lent:
                lent.add(request.within)
                placed.add(request.id)
            elif request.jobs is None:
                behind.add(entry.run)
            elif self._jobs[entry.run] >= self._most(request):
                continue
            elif self._taken[entry.run] < self._most(request) and entry.run not in behind:
                placed.add(request.id)
            requests.append(request)
        return tuple(requests), frozenset(placed)

    def _most(self, request: Request) -> float:
        """Return how many jobs that are no compiles may run beside each other."""
        if request.jobs is None:
            return float("inf")
        return request.jobs or self._cpus + _BEYOND
