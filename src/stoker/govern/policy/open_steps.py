"""The steps that have asked and have not ended: those that wait, in the order of their urgency, and
those that have a permit.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import overload

from stoker.govern.policy.entry import Connection, Entry, StepPhase
from stoker.govern.protocol import ProtocolError
from stoker.model.govern import Request, Running

# A second of waiting counts as this many seconds of critical path, so that no step starves
# [pytorch-2G-known-scattered 1.05 with 0].
_AGING = 0.1


def urgency(request: Request) -> tuple[float, int]:
    """Return a sort key: a long critical path and a long wait come first."""
    return _AGING * request.asked - request.path, request.id


class Queue(Sequence[Request]):
    """The waiting steps, most urgent first. The place of a step is found by bisection."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._keys: list[tuple[float, int]] = []  # of the requests, in the same order
        self._by_id: dict[int, tuple[float, int]] = {}

    def add(self, request: Request) -> None:
        """Add a request, or replace the one with its id."""
        key = urgency(request)
        known = self._by_id.get(request.id)
        if known == key:
            self._requests[bisect_left(self._keys, key)] = request
            return
        if known is not None:
            self.remove(request.id)
        place = bisect_left(self._keys, key)
        self._requests.insert(place, request)
        self._keys.insert(place, key)
        self._by_id[request.id] = key

    def remove(self, identity: int) -> Request | None:
        """Remove and return the request with this id, if there is one."""
        key = self._by_id.pop(identity, None)
        if key is None:
            return None
        place = bisect_left(self._keys, key)
        del self._keys[place]
        return self._requests.pop(place)

    def joined_by(self, others: Sequence[Request]) -> Sequence[Request]:
        """Return its requests and others that are in the same order."""
        if not others:
            return self
        joined = list(self._requests)
        for each in reversed(others):
            joined.insert(bisect_left(self._keys, urgency(each)), each)
        return joined

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    @overload
    def __getitem__(self, index: int) -> Request: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Request]: ...
    def __getitem__(self, index: int | slice) -> Request | Sequence[Request]:
        return self._requests[index]


class OpenSteps:
    """Keeps each step by its number and by its launcher's connection. While it waits, a step is in
    ``queue``, or in ``jobs`` if it is a job that is no compile; it is in ``holding`` while it has a
    permit, running or being killed. It is in none of them if it was set aside.
    """

    def __init__(self) -> None:
        self.queue, self.jobs = Queue(), Queue()
        self.holding: dict[int, Entry] = {}
        self._by_id: dict[int, Entry] = {}
        self._by_connection: dict[Connection, Entry] = {}
        self._inner: set[int] = set()  # steps inside others

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __getitem__(self, identity: int) -> Entry:
        return self._by_id[identity]

    def of_run(self, run: int) -> list[Entry]:
        return [entry for entry in self._by_id.values() if entry.run == run]

    def of_launcher(self, connection: Connection) -> Entry | None:
        return self._by_connection.get(connection)

    def permitted(self, connection: Connection) -> Entry:
        """Return the step of a launcher; it is a protocol error if the step has no permit."""
        entry = self._by_connection.get(connection)
        if entry is None or entry.phase is StepPhase.WAITING:
            raise ProtocolError("a report about a step that has no permit")
        return entry

    def waiting(self) -> Iterator[Entry]:
        """Yield the waiting steps, most urgent first."""
        return (self._by_id[each.id] for each in merge(self.queue, self.jobs, key=urgency))

    def waiting_inside(self) -> Iterator[Entry]:
        """Yield the waiting steps inside others, most urgent first."""
        inner = (self._by_id[identity] for identity in self._inner if identity not in self.holding)
        return iter(sorted(inner, key=lambda entry: urgency(entry.request)))

    def around(self, entry: Entry) -> Entry | None:
        """Return the step that has started this one, if it has a permit."""
        return self.holding.get(entry.request.within)

    def running(self, run: int | None = None) -> tuple[Running, ...]:
        """Return the steps with a permit, of one run or of all."""
        holding = self.holding.values()
        return tuple(entry.running for entry in holding if run is None or entry.run == run)

    def running_by_run(self) -> Mapping[int, Sequence[Running]]:
        found: defaultdict[int, list[Running]] = defaultdict(list)
        for entry in self.holding.values():
            found[entry.run].append(entry.running)
        return found

    def add(self, entry: Entry) -> None:
        """Take in a step that asks."""
        self._by_id[entry.request.id] = self._by_connection[entry.connection] = entry
        self.wait(entry.request)
        if entry.request.within:
            self._inner.add(entry.request.id)

    def wait(self, request: Request) -> None:
        """Let a step wait, or change the request of one that does."""
        (self.queue if request.jobs is None else self.jobs).add(request)

    def set_aside(self, identity: int) -> None:
        """Let a step wait no longer."""
        self.queue.remove(identity)
        self.jobs.remove(identity)

    def ask_for(self, entry: Entry, request: Request) -> None:
        """Let a step wait, with another request than before."""
        entry.request = request
        self.wait(request)

    def permit(self, entry: Entry) -> None:
        self.set_aside(entry.request.id)
        self.holding[entry.request.id] = entry
        if outer := self.around(entry):
            outer.inner += 1
            outer.lend()

    def release(self, identity: int) -> Entry | None:
        """Take back the permit of a step, and return the step if it had one."""
        entry = self.holding.pop(identity, None)
        if entry and (outer := self.around(entry)):
            outer.inner -= 1
            outer.lend()
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget a step; its permit is taken back separately, because that frees memory."""
        self.set_aside(entry.request.id)
        self._by_id.pop(entry.request.id, None)
        self._by_connection.pop(entry.connection, None)
        self._inner.discard(entry.request.id)
