"""The steps that have asked and have not ended: which of them wait, and which have a permit."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from stoker.govern.entry import Connection, Entry, StepPhase
from stoker.govern.protocol import ProtocolError
from stoker.govern.queue import Queue
from stoker.model.govern import Request, Running


class OpenSteps:
    """Keeps each step by its number and by its launcher's connection. A step is in ``queue`` while
    it waits, and in ``holding`` while it has a permit, running or being killed. It is in neither if
    it was set aside, or if a command that it has started has its permit.
    """

    def __init__(self) -> None:
        self.queue = Queue()
        self.holding: dict[int, Entry] = {}
        self._by_id: dict[int, Entry] = {}
        self._by_connection: dict[Connection, Entry] = {}

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
        return (self._by_id[request.id] for request in self.queue)

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
        self.queue.add(entry.request)

    def ask_for(self, entry: Entry, request: Request) -> None:
        """Let a step wait, with another request than before."""
        entry.request = request
        self.queue.add(request)

    def permit(self, entry: Entry) -> None:
        self.queue.remove(entry.request.id)
        self.holding[entry.request.id] = entry

    def remove(self, entry: Entry) -> None:
        """Forget a step; its permit is taken back separately, because that frees memory."""
        self.queue.remove(entry.request.id)
        self._by_id.pop(entry.request.id, None)
        self._by_connection.pop(entry.connection, None)
