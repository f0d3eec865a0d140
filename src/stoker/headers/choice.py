"""Chooses the headers that compiles share. Pure.

A shared header is what some source includes first. Sources that include the same, in almost the
same order and with little else before it, can use it: gcc then makes the same of them as without.
Some such beginnings are chosen, and each source uses the largest one that fits it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import accumulate, pairwise

from stoker.knowledge.shared_headers import Tolerance, header_rules
from stoker.model.headers import Inclusion, Scan, SharedHeader
from stoker.model.value import Value

Items = frozenset[str]


class Source:
    """A scan, with the place of each header and the size of all up to each place."""

    def __init__(self, scan: Scan):
        self.scan = scan
        self.order = tuple(inclusion.item for inclusion in scan.inclusions)
        self.places = {item: place for place, item in enumerate(self.order)}
        self.sizes = _Sizes(scan.inclusions)

    def finished(self) -> Iterator[Inclusion]:
        """Yield the inclusions in the order in which they end."""
        still_open: list[Inclusion] = []
        for inclusion in self.scan.inclusions:
            while still_open and still_open[-1].item != inclusion.parent:
                yield still_open.pop()
            still_open.append(inclusion)
        yield from reversed(still_open)

    def can_be_last(self, inclusion: Inclusion) -> bool:
        """Return whether a shared header can end with an inclusion: the files around it have no
        declarations before it, and are not the system's, whose parts cannot be included directly.
        """
        while inclusion.leading and inclusion.parent in self.places:
            inclusion = self.scan.inclusions[self.places[inclusion.parent]]
            if inclusion.of_system:
                return False
        return inclusion.leading


class _Sizes:
    """How much text of the project and of the system is in the first inclusions."""

    def __init__(self, inclusions: Sequence[Inclusion]):
        own = (0 if inclusion.of_system else inclusion.size for inclusion in inclusions)
        system = (inclusion.size if inclusion.of_system else 0 for inclusion in inclusions)
        self.own = tuple(accumulate(own, initial=0))
        self.system = tuple(accumulate(system, initial=0))


class _Beginning:
    """Inclusions at the beginning of a source, or those of a shared header."""

    def __init__(self, inclusions: Sequence[Inclusion]):
        self.items = frozenset(inclusion.item for inclusion in inclusions)
        self.last = inclusions[-1].item if inclusions else ""
        self.project = tuple(i.item for i in inclusions if not i.of_system)
        sizes = _Sizes(inclusions)
        self.own, self.system = sizes.own[-1], sizes.system[-1]

    @property
    def size(self) -> int:
        return self.own + self.system

    def is_near(self, source: Source, tolerance: Tolerance) -> bool:
        """Return whether a source includes all of it, almost in this order, and little before.

        Order decides about details of an object, such as the order of functions. That of the
        system's headers among themselves hardly matters.
        """
        place = source.places.get(self.last)
        if place is None or not self._is_early(place, source, tolerance):
            return False  # quickly: most beginnings fit few sources
        if not source.places.keys() >= self.items:
            return False
        place = max(map(source.places.__getitem__, self.items))
        if not self._is_early(place, source, tolerance):
            return False
        return _displaced([source.places[item] for item in self.project]) <= tolerance.displaced

    def _is_early(self, place: int, source: Source, tolerance: Tolerance) -> bool:
        """Return whether little else comes up to a place in a source."""
        own, system = source.sizes.own[place + 1], source.sizes.system[place + 1]
        return own - self.own <= tolerance.project and system - self.system <= tolerance.system


class Offer:
    """Shared headers, of which each source uses the largest one that fits it."""

    def __init__(self, headers: Iterable[SharedHeader], tolerance: Tolerance):
        self._tolerance = tolerance
        by_size = sorted(headers, key=lambda header: header.scan.size, reverse=True)
        self._headers = [(header, _Beginning(header.scan.inclusions)) for header in by_size]

    def largest(self, source: Source) -> SharedHeader | None:
        """Return the largest header that a source can use: it includes all of it, with the same
        text, before any declaration, and under no macro that the header mentions.
        """
        for header, beginning in self._headers:
            near = beginning.is_near(source, self._tolerance)
            if near and _may_lead(beginning.items, header, source):
                return header
        return None


def choose_beginnings(
    sources: Sequence[Source], served: Sequence[int], *, most: int, tolerance: Tolerance
) -> Iterator[Scan]:
    """Yield up to ``most`` beginnings of sources that are worth precompiling. ``served`` is the
    size of the header that each source can use already.

    Greedy: each is the one that saves most in addition to those before it.
    """
    best, least = list(served), header_rules().limits
    candidates: list[tuple[Scan, int, list[int]]] = []
    for scan in _common_beginnings(sources):
        beginning = _Beginning(scan.inclusions)
        if beginning.size >= least.bytes:
            users = [n for n, each in enumerate(sources) if beginning.is_near(each, tolerance)]
            if len(users) >= least.users:
                candidates.append((scan, beginning.size, users))
    for _ in range(most):
        gains = [_gain(size, users, best) for _, size, users in candidates]
        if max(gains, default=0) <= 0:
            return
        scan, size, users = candidates[gains.index(max(gains))]
        for number in users:
            best[number] = max(best[number], size)
        yield scan


class Candidate(Value, frozen=True, kw_only=True):
    """A header that may be offered, the size of its file, and the numbers of the sources that can
    use it.
    """

    header: SharedHeader
    bytes: int
    users: frozenset[int]


def within_memory(
    candidates: Iterable[Candidate], *, room: int, at_once: int
) -> list[SharedHeader]:
    """Return the headers of which any ``at_once``, as compiles can use at the same time, fit into
    ``room`` bytes of memory.

    Greedy: each is the one that saves most for its size in addition to those before it.
    """
    left, chosen = list(candidates), list[Candidate]()
    best: dict[int, int] = {}  # the size of the largest header that a source can use

    def worth(one: Candidate) -> float:
        saved = (max(0, one.header.scan.size - best.get(user, 0)) for user in one.users)
        return sum(saved) / one.bytes

    while left:
        one = max(left, key=worth)
        left.remove(one)
        if sum(nlargest(at_once, (each.bytes for each in (*chosen, one)))) <= room:
            chosen.append(one)
            best |= {n: max(best.get(n, 0), one.header.scan.size) for n in one.users}
    return [each.header for each in chosen]


def header_names(scan: Scan, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the names by which to include all headers of a scan, in their order.

    A header that others include needs no name, and one that can be found only beside its source has
    none. Headers inside the system's own ones cannot be included directly, and neither can those
    that follow declarations of the file around them.
    """
    items = {inclusion.item: inclusion for inclusion in scan.inclusions}
    names = [
        _spelled(inclusion.path, folders)
        for inclusion in scan.inclusions
        if inclusion.parent not in items and (inclusion.leading or inclusion.of_system)
    ]
    return tuple(dict.fromkeys(filter(None, names)))


def twins(header: SharedHeader, scan: Scan) -> tuple[str, ...]:
    """Return what a source includes besides the header with the text of a file in it."""
    own = {inclusion.item for inclusion in header.scan.inclusions}
    texts = {inclusion.text for inclusion in header.scan.inclusions}
    return tuple(i.path for i in scan.inclusions if i.item not in own and i.text in texts - {""})


def _common_beginnings(sources: Sequence[Source]) -> Iterator[Scan]:
    """Yield what at least two sources include first."""
    numbers: dict[str, int] = {}
    ended = [tuple(each.finished()) for each in sources]
    keys = [tuple(numbers.setdefault(i.item, len(numbers)) for i in each) for each in ended]
    found: set[tuple[int, ...]] = set()
    for one, other in pairwise(sorted(range(len(sources)), key=keys.__getitem__)):
        count = _common_length(keys[one], keys[other])
        while count and not sources[one].can_be_last(ended[one][count - 1]):
            count -= 1
        if keys[one][:count] not in found:
            found.add(keys[one][:count])
            items = {inclusion.item for inclusion in ended[one][:count]}
            scan = sources[one].scan
            yield Scan(inclusions=tuple(i for i in scan.inclusions if i.item in items))


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _displaced(places: Sequence[int]) -> int:
    """Return how many of the places must be left out so that the rest increases."""
    if places == sorted(places):
        return 0
    increasing: list[int] = []
    for place in places:
        if not increasing or place > increasing[-1]:
            increasing.append(place)
        else:
            increasing[bisect_left(increasing, place)] = place
    return len(places) - len(increasing)


def _may_lead(items: Items, header: SharedHeader, source: Source) -> bool:
    """Return whether a header can come before all else of a source that includes it."""
    inclusions, places = source.scan.inclusions, source.places
    if not all(_is_leading(inclusions[places[item]], items, source) for item in items):
        return False
    last = max(map(places.__getitem__, items))
    return not any(
        macros.position <= last
        and macros.owner not in items
        and not header.words.isdisjoint(macros.names)
        for macros in source.scan.macros
    )


def _is_leading(inclusion: Inclusion, items: Items, source: Source) -> bool:
    """Return whether nothing but headers of the set precedes a header. A file that is in the set
    itself precedes it there, too. Headers of the system do not depend on what precedes them.
    """
    if inclusion.of_system:
        return True
    while inclusion.leading and inclusion.parent not in items and inclusion.parent in source.places:
        inclusion = source.scan.inclusions[source.places[inclusion.parent]]
    return inclusion.leading or inclusion.parent in items


def _gain(size: int, users: Iterable[int], best: Sequence[int]) -> float:
    """Return what a header saves beyond what its users save already, less the cost of making it."""
    cost = header_rules().cost
    saved = sum(max(0, size - best[number]) for number in users)
    return (1 - cost.use) * saved - cost.make * size


def _spelled(path: str, folders: Iterable[str]) -> str | None:
    """Return the name by which a search in the folders finds a header."""
    above = [folder for folder in folders if path.startswith(folder.rstrip("/") + "/")]
    if not above:
        return None
    return path[len(max(above, key=len).rstrip("/")) + 1 :]
