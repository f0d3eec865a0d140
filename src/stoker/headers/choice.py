"""Chooses the headers that compiles share. Pure.

A shared header is the set of headers that some sources have in common: the intersection of what
they include, so that none of its users gets a declaration that it would not have without it. Some
such sets are chosen, and each source uses the largest one that fits it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from stoker.knowledge.shared_headers import header_rules
from stoker.model.headers import Inclusion, Scan, SharedHeader
from stoker.model.value import Value

Items = frozenset[str]


def choose_sets(
    scans: Sequence[Scan], served: Sequence[int], *, most: int, ordered: bool
) -> Iterator[tuple[Items, Scan]]:
    """Yield up to ``most`` sets of headers, each with the scan of a source that includes all of
    them. ``served`` is the size of the header that each source can use already; ``ordered`` asks
    for users that include the set in the same order.

    Greedy: each set is the one that saves most in addition to those before it. The sources that
    include a given header are the candidates for users of a set.
    """
    masks = _users_by_item(scans)
    best, candidates = list(served), list(_candidates(scans, masks, ordered=ordered))
    for _ in range(most):
        gains = [_gain(candidate, best) for candidate in candidates]
        if max(gains, default=0) <= 0:
            return
        chosen = candidates[gains.index(max(gains))]
        for number in chosen.users:
            best[number] = max(best[number], chosen.size)
        yield chosen.items, _typical(chosen.items, [scans[number] for number in chosen.users])


def header_names(items: Items, scan: Scan, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the names by which to include a set of headers, in the order of a source that has them
    all.

    A header that others of the set include needs no name, and one that can be found only beside its
    source has none. Headers inside the system's own ones cannot be included directly, and neither
    can those that follow declarations of the file around them.
    """
    of_system = {inclusion.item for inclusion in scan.inclusions if inclusion.of_system}
    names = [
        _spelled(inclusion.path, folders)
        for inclusion in scan.inclusions
        if inclusion.item in items
        and inclusion.parent not in items
        and (inclusion.parent not in of_system if inclusion.of_system else inclusion.leading)
    ]
    return tuple(dict.fromkeys(filter(None, names)))


def fits(header: SharedHeader, scan: Scan, *, ordered: bool) -> bool:
    """Return whether a source can use the header: it includes all of it, with the same text, before
    any declaration, and under no macro that the header mentions.

    Order decides about details of an object, such as which template is instantiated before a class
    has its attributes. ``ordered`` asks for the same one.
    """
    inclusions = {inclusion.item: inclusion for inclusion in scan.inclusions}
    items = {inclusion.item for inclusion in header.scan.inclusions}
    if not items <= inclusions.keys():
        return False
    if ordered and _order(items, scan) != _order(items, header.scan):
        return False
    if not all(_is_leading(inclusions[item], items, inclusions) for item in items):
        return False
    last = max(n for n, inclusion in enumerate(scan.inclusions) if inclusion.item in items)
    return not any(
        macros.position <= last and macros.owner not in items and header.words & {*macros.names}
        for macros in scan.macros
    )


def twins(header: SharedHeader, scan: Scan) -> tuple[str, ...]:
    """Return what a source includes besides the header with the text of a file in it."""
    own = {inclusion.item for inclusion in header.scan.inclusions}
    texts = {inclusion.text for inclusion in header.scan.inclusions}
    return tuple(i.path for i in scan.inclusions if i.item not in own and i.text in texts - {""})


def largest(headers: Iterable[SharedHeader], scan: Scan, *, ordered: bool) -> SharedHeader | None:
    """Return the largest header that a source can use."""
    by_size = sorted(headers, key=lambda header: header.scan.size, reverse=True)
    return next((header for header in by_size if fits(header, scan, ordered=ordered)), None)


def _is_leading(inclusion: Inclusion, items: set[str], inclusions: Mapping[str, Inclusion]) -> bool:
    """Return whether nothing but headers of the set precedes a header. A file that is in the set
    itself precedes it there, too. Headers of the system do not depend on what precedes them.
    """
    if inclusion.of_system:
        return True
    while inclusion.leading and inclusion.parent not in items and inclusion.parent in inclusions:
        inclusion = inclusions[inclusion.parent]
    return inclusion.leading or inclusion.parent in items


def _users_by_item(scans: Sequence[Scan]) -> dict[str, int]:
    """Return the sources that include each item, as a set of bits."""
    masks: dict[str, int] = {}
    for number, scan in enumerate(scans):
        for inclusion in scan.inclusions:
            if inclusion.leading or inclusion.parent:
                masks[inclusion.item] = masks.get(inclusion.item, 0) | 1 << number
    return masks


def _sizes_by_mask(scans: Sequence[Scan], masks: Mapping[str, int]) -> dict[int, int]:
    """Return the size of all items together that the same sources include."""
    sizes: dict[int, int] = {}
    seen: set[str] = set()
    for scan in scans:
        for inclusion in scan.inclusions:
            mask = masks.get(inclusion.item)
            if mask and inclusion.item not in seen:
                seen.add(inclusion.item)
                sizes[mask] = sizes.get(mask, 0) + inclusion.size
    return sizes


class _Candidate(Value, frozen=True, kw_only=True):
    """A set of headers and the numbers of the sources that could use it."""

    items: Items
    users: tuple[int, ...]
    size: int


def _candidates(
    scans: Sequence[Scan], masks: Mapping[str, int], *, ordered: bool
) -> Iterator[_Candidate]:
    """Yield the sets that are shared most; if ``ordered``, one for each order of inclusion."""
    limits, sizes = header_rules().limits, _sizes_by_mask(scans, masks)
    large = [users for users in sizes if users.bit_count() >= limits.users]
    weights = {u: u.bit_count() * _size_of_common(u, sizes) for u in large}
    heaviest = sorted(weights, key=weights.__getitem__, reverse=True)
    for mask in heaviest[: limits.orders if ordered else limits.candidates]:
        size = _size_of_common(mask, sizes)
        if size < limits.bytes:
            continue
        items = frozenset(item for item, users in masks.items() if users & mask == mask)
        groups: dict[Items | tuple[str, ...], list[int]] = {}
        for number in _numbers(mask):
            key = _order(items, scans[number]) if ordered else items
            groups.setdefault(key, []).append(number)
        for users in groups.values():
            if len(users) >= limits.users:
                yield _Candidate(items=items, users=tuple(users), size=size)


def _order(items: Collection[str], scan: Scan) -> tuple[str, ...]:
    """Return the order in which a source includes the items. That of the system's is no matter."""
    return tuple(i.item for i in scan.inclusions if i.item in items and not i.of_system)


def _size_of_common(users: int, sizes: Mapping[int, int]) -> int:
    return sum(size for mask, size in sizes.items() if mask & users == users)


def _typical(items: Items, scans: Sequence[Scan]) -> Scan:
    """Return a scan with the most usual order of the items."""
    orders = [_order(items, scan) for scan in scans]
    usual, _ = Counter(orders).most_common(1)[0]
    return scans[orders.index(usual)]


def _gain(candidate: _Candidate, best: Sequence[int]) -> float:
    """Return what a set saves beyond what its users save already, less the cost of making it."""
    cost = header_rules().cost
    saved = sum(max(0, candidate.size - best[number]) for number in candidate.users)
    return (1 - cost.use) * saved - cost.make * candidate.size


def _numbers(users: int) -> Iterator[int]:
    while users:
        lowest = users & -users
        yield lowest.bit_length() - 1
        users ^= lowest


def _spelled(path: str, folders: Iterable[str]) -> str | None:
    """Return the name by which a search in the folders finds a header."""
    above = [folder for folder in folders if path.startswith(folder.rstrip("/") + "/")]
    if not above:
        return None
    return path[len(max(above, key=len).rstrip("/")) + 1 :]
