"""What the governor expects of the steps that ask: their memory, their duration, their path.

The predictor knows what steps needed; what follows from that for this step is decided here.
"""

from msgspec.structs import replace

from stoker.govern.policy.entry import Entry, PathLeft
from stoker.govern.policy.predict import Predictor, usual_duration
from stoker.knowledge.steps import prior_of
from stoker.model.govern import Basis, Pace, Prediction, Request, Step


class Expectations:
    """Predicts steps when they ask, and again when other steps have shown more."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    @property
    def pace(self) -> Pace:
        return self._predictor.pace

    def prediction(self, step: Step, *, restarts: bool) -> Prediction:
        """Return what to expect of a step: if it must not be started twice, the most that it may
        need, from its start to its end. If memory does not suffice for it, nothing can bring it
        back. One that was never measured may need what shipped figures say, whatever similar steps
        needed.
        """
        prediction = self._predictor.predict(step)
        if restarts:
            return prediction
        most = max(prediction.peak, prediction.high)
        if not prediction.learned:
            most = max(most, round(prior_of(step).high))
        return replace(prediction, peak=most, high=most, profile=())

    def path(self, left: PathLeft, prediction: Prediction, step: Step) -> float:
        """Return the critical-path seconds of a step, never less than its own duration. Without any
        measurement the step that usually takes longest comes first.
        """
        usual = 0.0 if prediction.learned else usual_duration(step)
        return max(left(), prediction.seconds or 0.0, usual)

    def seconds(self, entry: Entry) -> float:
        """Return the seconds that a step is expected to take today."""
        seconds = entry.request.prediction.seconds
        return (usual_duration(entry.step) if seconds is None else seconds) * self.pace.usual

    def again(self, entry: Entry, request: Request) -> Request:
        """Return the request of a step that waits or runs, with what was learned since it asked. A
        step that was killed keeps what that has shown, and a mode its own prediction.
        """
        prediction = request.prediction
        fresh = not (request.preemptions or request.ooms or request.mode.is_collector)
        if fresh and request.threads == 1 and prediction.basis is not Basis.EXACT:
            prediction = self.prediction(entry.step, restarts=request.restarts)
        path = self.path(entry.path, prediction, entry.step)
        if prediction == request.prediction and path == request.path:
            return request
        return replace(request, prediction=prediction, path=path)
