"""The state and the counts of a compiler cache as pages."""

import time

from stoker.model.caching import CacheStatus, CacheUse
from stoker.model.value import duration, size
from stoker.outside.terminal import Listing, Page, Text


def status_page(status: CacheStatus, now: float | None = None) -> Page:
    now = time.time() if now is None else now
    page = Listing("", "")
    page.add("engine", f"{status.engine} ({status.program})")
    page.add("folder", status.folder or "none")
    most = f" of {size(status.most_bytes)}" if status.most_bytes else ""
    files = f" in {status.files} files" if status.files is not None else ""
    page.add("size", f"{size(status.size_bytes)}{most}{files}")
    if status.oldest and status.newest:
        oldest, newest = duration(now - status.oldest), duration(now - status.newest)
        page.add("last use", f"oldest {oldest} ago, newest {newest} ago")
    if status.remote:
        state = status.remote_problem or "answers"
        page.add("remote", f"{status.remote}: {state}")
    if status.problem:
        page.add("problem", Text(status.problem, style="bold"))
    return page


def use_page(use: CacheUse) -> Page:
    page = Listing("language", ">hits", ">misses", ">hit rate")
    for name, row in use.languages.items():
        rate = "" if row.rate is None else f"{row.rate:.1%}"
        page.add(name, str(row.hits), str(row.misses), rate)
    if use.remote_hits or use.errors:
        page.add("from the remote", str(use.remote_hits), "", f"{use.errors} errors")
    return page
