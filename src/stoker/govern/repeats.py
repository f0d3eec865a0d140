"""What a step that was killed asks for next."""

from msgspec.structs import replace

from stoker.model.govern import CompileMode, Prediction, Request, Running

MAXIMAL_OOMS = 3
# Request of a killed step, relative to its prediction [a draw of pytorch16th-4cpu-2G-cold of
# tests/scenarios.py: 1.09 and an OOM kill more without].
_LARGER = 1.25


def after_preemption(step: Running) -> Request:
    """Return the next request of a step that the policy has killed.

    It asks for at least what it was seen to use. A step that stayed within its prediction only met
    others at the wrong time, and asks for more if that happens again. If it was paused before the
    kill, its profile cannot be relied on, so its peak is reserved throughout.
    """
    request, known = step.request, step.request.prediction
    if step.peak > known.peak or request.preemptions:
        larger = min(known.high, round(_LARGER * known.peak))
        request = replace(request, prediction=_raised(known, max(larger, step.peak)))
    elif step.is_paused:
        request = replace(request, prediction=_raised(known, known.peak))
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
