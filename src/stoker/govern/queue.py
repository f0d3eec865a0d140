"""The waiting steps in the order of their urgency."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import overload

from stoker.model.govern import Request

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
