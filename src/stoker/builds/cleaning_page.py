"""A table of what `stoker clean` removes and what is kept."""

import time
from collections.abc import Iterable

from stoker.builds.cleaning import Cleaning, CleanupItem, CleanupKind
from stoker.model.value import duration, size
from stoker.outside.terminal import Group, Listing, Page, Text

_MOST_OF_A_KIND = 12
_DAY = 86_400


def cleaning_page(cleaning: Cleaning, now: float | None = None) -> Page:
    """Return the page: the largest items of each kind by name, the rest in one line, items in use
    by name.
    """
    now = time.time() if now is None else now
    table = Listing("kind", ">size", ">unused for", "")
    for row in _rows(cleaning.chosen, now):
        table.add(*row)
    lines = [Text(f"in use: {kept.path}") for kept in cleaning.spared if kept.busy]
    lines += [
        Text(f"left alone, a link of your own: {kept.path} -> {kept.link}")
        for kept in cleaning.spared
        if kept.link
    ]
    return Group(table, *lines) if cleaning.chosen else Group(*lines)


def _rows(chosen: Iterable[CleanupItem], now: float) -> Iterable[tuple[str, str, str, str]]:
    for kind in CleanupKind:
        entries = sorted((k for k in chosen if k.kind is kind), key=lambda kept: -kept.size_bytes)
        for kept in entries[:_MOST_OF_A_KIND]:
            name = f"run {kept.name}" if kind is CleanupKind.HISTORY else kept.path
            yield kind.value, size(kept.size_bytes), _age(now - kept.used), name
        if rest := entries[_MOST_OF_A_KIND:]:
            yield (
                kind.value,
                size(sum(kept.size_bytes for kept in rest)),
                "",
                f"and {len(rest)} more",
            )


def _age(seconds: float) -> str:
    days = int(seconds / _DAY)
    return f"{days} d" if days > 1 else duration(max(0.0, seconds))


def nothing_text(cleaning: Cleaning) -> str:
    """Return why there is nothing to remove."""
    if all(entry.link for entry in cleaning.spared):
        return "there is nothing to remove"
    kept = sum(entry.size_bytes for entry in cleaning.spared)
    return f"nothing to remove; {size(kept)} are in use or too new (--older-than, --keep)"
