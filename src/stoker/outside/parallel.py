"""Work for all cores, results in order, only so much of it under way.

Threads: compressing, inflating and hashing all let go of the interpreter's lock.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MOST = 32  # bounds memory too: each has work of about a megabyte in hand

Task = TypeVar("Task")
Result = TypeVar("Result")


def threads() -> int:
    """How many of the CPUs that this process may run on to use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(allowed or 1, _MOST)


def in_order(
    work: Callable[[Task], Result], tasks: Iterable[Task], workers: int
) -> Generator[Result, None, None]:
    """``map`` on several threads that takes tasks only as fast as the results are taken."""
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
