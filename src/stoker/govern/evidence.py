"""Decides whether memory ran out, by evidence, because a driver hides its compiler's death.

gcc and nvcc end normally when the kernel kills the compiler below them, and say so in one of
several ways. That text alone could also mean a `kill -9` by the user, and a refused allocation a
`ulimit -v`. So the text counts only together with what the machine shows.
"""

import re

from stoker.model.value import Value

# How drivers, shells and make report a compiler that was killed.
_KILLED = re.compile(
    rb"Killed signal terminated program"
    rb"|internal compiler error: Killed"
    rb"|died due to signal 9\b"
    rb"|^(?:.*\s)?Killed\s*$"
    rb"|terminated (?:with|by) signal (?:9|SIGKILL)",
    re.MULTILINE,
)
# How compilers and linkers report an allocation that was refused.
_REFUSED = re.compile(
    rb"catastrophic error: out of memory|out of memory allocating|virtual memory exhausted"
    rb"|std::bad_alloc|Cannot allocate memory|LLVM ERROR: out of memory|memory exhausted"
)
_KILL_STATUSES = (9, 137)
_SIGKILL = 9


class Surroundings(Value, frozen=True, kw_only=True):
    """What the machine showed while an attempt ran. Kills are counted in the run's own group;
    ``None`` where no such counter can be read.
    """

    oom_kills: int | None
    least_free: int
    limit: int

    @property
    def was_tight(self) -> bool:
        return self.least_free < max(self.limit // 20, 64 << 20)


def ran_out_of_memory(status: int, signal: int, tail: bytes, surroundings: Surroundings) -> bool:
    """Return whether a failed attempt failed because memory ran out, so that it is repeated."""
    killed = signal == _SIGKILL or status in _KILL_STATUSES or bool(_KILLED.search(tail))
    refused = bool(_REFUSED.search(tail))
    if not (killed or refused):
        return False
    if surroundings.oom_kills is None:
        return surroundings.was_tight
    if surroundings.oom_kills > 0:
        return True
    return refused and surroundings.was_tight
