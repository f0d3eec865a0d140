"""Whether memory ran out for a step, and what a step that was killed asks for next.

gcc and nvcc end normally when the kernel kills the compiler below them, and say so in one of
several ways. That text alone could also mean a `kill -9` by the user, and a refused allocation a
`ulimit -v`. So the text counts only together with what the machine shows.
"""

import re
from signal import SIGKILL

from msgspec.structs import replace

from stoker.model.govern import CompileMode, Prediction, Request, Running
from stoker.model.value import Value

MAXIMAL_OOMS = 3
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
    killed = SIGKILL in (signal, status, status - 128) or bool(_KILLED.search(tail))
    refused = bool(_REFUSED.search(tail))
    if not (killed or refused):
        return False
    if surroundings.oom_kills is None:
        return surroundings.was_tight
    if surroundings.oom_kills > 0:
        return True
    return refused and surroundings.was_tight


def after_preemption(step: Running) -> Request:
    """Return the next request of a step that the policy has killed.

    It asks for at least what it was seen to use. A step that stayed within its prediction only met
    others at the wrong time. If that happens again, or if it was paused before the kill, its
    profile cannot be relied on, so its peak is reserved throughout.
    """
    request, known = step.request, step.request.prediction
    if step.peak > known.peak or request.preemptions or step.is_paused:
        request = replace(request, prediction=_raised(known, step.peak))
    request = replace(request, preemptions=request.preemptions + 1)
    if request.ooms:
        return request
    request = request.in_mode(CompileMode.DEFAULT)  # the policy chooses again
    return replace(request, faster=()) if step.request.threads > 1 else request


def after_oom(step: Running, observed: int, *, alone: bool = False) -> Request | None:
    """Return the next request of a step that ran out of memory: twice as much, then the whole
    machine, then ``None``. ``observed`` is its peak as measured at the end.

    With the whole machine it runs in the mode that needs the least memory, if it has one. A step
    that was ``alone`` when it ran out gets that at once, because more free memory cannot help it. A
    step that ran with several threads or in the mode fast runs without them.
    """
    request, ooms = step.request, step.request.ooms + 1
    if request.threads > 1:  # one thread needs less; what was observed says little about it
        request, observed = replace(request.in_mode(CompileMode.DEFAULT), faster=()), 0
        step = replace(step, peak=0)
    if request.mode is CompileMode.FAST:
        request = request.in_mode(CompileMode.DEFAULT)
    if ooms >= MAXIMAL_OOMS:
        return None
    least = max(2 * request.prediction.high, observed, step.peak)
    request = replace(request, prediction=_raised(request.prediction, least), ooms=ooms)
    if ooms == MAXIMAL_OOMS - 1 or (alone and request.effects):
        smallest = request.effects[-1].mode if request.effects else request.mode
        request = replace(request, slots=0, mode=smallest)
    return request


def _raised(prediction: Prediction, least: int) -> Prediction:
    """Return the prediction with at least this peak throughout, because the step did not follow its
    profile.
    """
    peak = max(prediction.peak, least)
    high = max(prediction.high, peak)
    raised = prediction.raised or peak > prediction.peak
    return replace(prediction, peak=peak, high=high, profile=(), raised=raised)
