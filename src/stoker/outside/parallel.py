"""Runs work on all cores in threads, with results in order and a limit on pending work.

Threads suffice, because compressing, decompressing and hashing release the interpreter's lock.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MOST = 32  # bounds memory too: each thread works on about a megabyte

Task = TypeVar("Task")
Result = TypeVar("Result")


def threads() -> int:
    """Return the number of threads to use: the CPUs that this process may run on, limited."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(allowed or 1, _MOST)


def in_order(
    work: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Generator[Result, None, None]:
    """Map tasks on several threads; take tasks only as fast as results are consumed."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="stoker-engine")
    pending: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
