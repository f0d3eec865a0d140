"""How the work on a wheel is spread over threads."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Todo = TypeVar("Todo")
Done = TypeVar("Done")

_MOST_THREADS = 32  # bounds memory too: each thread works on about a megabyte


def threads() -> int:
    """Return the number of threads to use: the CPUs that this process may run on, limited."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(allowed or 1, _MOST_THREADS)


def map_in_order(
    work: Callable[[Todo], Done], tasks: Iterable[Todo], workers: int
) -> Generator[Done, None, None]:
    """Map tasks on several threads; take tasks only as fast as results are consumed.

    Threads suffice, because compressing, decompressing and hashing release the interpreter's lock.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="stoker-engine")
    pending: deque[Future[Done]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
