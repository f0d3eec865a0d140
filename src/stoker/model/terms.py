"""The terms of a run: what its user has set, what it may use, and what it tells the governor.

Memory is in bytes, time in seconds.
"""

from enum import StrEnum

from stoker.model.govern import CompileMode
from stoker.model.value import Value
from stoker.model.variant import PlannedTargets

_SHARE_OF_GRACE = 1 / 20  # of the time of a run
_MOST_GRACE = 300.0  # seconds


class Gc(StrEnum):
    """The user's setting: where modes may be used."""

    AUTO = "auto"  # where the output is the same
    OFF = "off"
    ALWAYS = "always"  # also where debug information or the like records the parameters


class NvccThreads(StrEnum):
    """The user's setting: who chooses the threads of nvcc."""

    AUTO = "auto"  # the governor, if the command does not
    OFF = "off"


class GovernorOptions(Value, frozen=True, kw_only=True):
    """The options of a governor. The run that starts it sets them; later runs use it as it is, but
    ``cpus`` and ``cap`` are those of each run (``RunShare``).
    """

    socket: str
    policy: str
    cpus: int
    cap: int | None = None
    keep_free: int = 0
    gc: Gc = Gc.AUTO
    nvcc_threads: NvccThreads = NvccThreads.AUTO


class RunShare(Value, frozen=True, kw_only=True):
    """What one run may use of the machine beside other runs of the same governor."""

    cpus: int
    cap: int | None = None  # bytes for its own steps
    weight: float = 1.0  # its CPUs over those of another run, while both have waiting steps
    history: str = ""  # the file of its history; that of the governor if empty


class TimeLimit(Value, frozen=True, kw_only=True):
    """The time of a run. ``ends`` is a reading of the monotonic clock; steps that run ``grace``
    seconds later are ended.
    """

    ends: float
    seconds: float
    grace: float

    @classmethod
    def starting_at(cls, now: float, seconds: float, grace: float | None) -> "TimeLimit":
        """Return the limit of a run that starts now; the default grace is a part of its time."""
        if grace is None:
            grace = min(_MOST_GRACE, seconds * _SHARE_OF_GRACE)
        return cls(ends=now + seconds, seconds=seconds, grace=grace)


class RunTerms(Value, frozen=True, kw_only=True):
    """What a run tells the governor about itself. ``seconds`` is its time, of which
    ``seconds_left`` are left; ``grace`` is as in ``TimeLimit``.
    """

    linker: CompileMode = CompileMode.DEFAULT
    targets: PlannedTargets | None = None
    seconds: float | None = None
    seconds_left: float = 0.0
    grace: float = 0.0
    share: RunShare | None = None
