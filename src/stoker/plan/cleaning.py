"""What can go: by age and number. Knows neither the clock nor the disk."""

from collections.abc import Iterable

from stoker.model.cleaning import Cleaning, CleanupItem, Kind


def choose(kept: Iterable[CleanupItem], *, before: float, keep: int = 0) -> Cleaning:
    """All last used before a time, except what is busy, a link, or of the ``keep`` newest."""
    chosen: list[CleanupItem] = []
    spared: list[CleanupItem] = []
    seen = dict.fromkeys(Kind, 0)
    for entry in sorted(kept, key=lambda entry: (list(Kind).index(entry.kind), -entry.used)):
        seen[entry.kind] += 1
        free = not entry.busy and not entry.link
        goes = free and entry.used <= before and seen[entry.kind] > keep
        (chosen if goes else spared).append(entry)
    return Cleaning(chosen=tuple(chosen), spared=tuple(spared))
