"""A matrix: the variants of stoker.toml across Python versions, and what became of each."""

from enum import StrEnum

from stoker.model.plan import Quantity
from stoker.model.value import Value

FORMAT = 1  # of matrix.json


class WheelFrom(StrEnum):
    """What a wheel is made from."""

    BUILD = "build"  # the source
    SLIM = "slim"  # an existing wheel


class MatrixJob(Value, frozen=True, kw_only=True):
    """One wheel to make. ``sharing`` says what its compiles depend on, in levels: two jobs share
    more of a compiler cache, the more of their first levels are equal.
    """

    name: str  # of the table in stoker.toml
    variant: str  # in the words of the grammar
    label: str  # local version of the wheel
    made_from: WheelFrom
    given: str  # the source or the wheel, as the user names it
    python: str | None = None  # None: that of this machine
    sharing: tuple[str, ...] = ()
    seconds: Quantity
    wheel_bytes: Quantity

    @property
    def key(self) -> tuple[str, str | None]:
        """What no two jobs of a matrix share."""
        return self.name, self.python

    @property
    def title(self) -> str:
        return f"{self.name} for Python {self.python}" if self.python else self.name


class MatrixEnd(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"  # an earlier run made the same wheel
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class MatrixResult(Value, frozen=True, kw_only=True):
    """How a job ended. A wheel is in the folder if `stoker verify` found no error in it, or only
    errors that are in the original, too.
    """

    job: MatrixJob
    end: MatrixEnd
    wall_s: float
    wheel: str | None = None  # file name
    sha256: str | None = None
    size_bytes: int | None = None
    before_bytes: int | None = None  # of the wheel that was slimmed
    compiles: int | None = None  # with those that the cache answered
    cache_hits: int | None = None
    verified: bool = False
    original_errors: tuple[str, ...] = ()  # of verify, in the wheel that was slimmed as well
    inputs: str = ""  # digest of everything that a slimmed wheel depends on
    folder: str | None = None  # run folder of a build
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.end in (MatrixEnd.DONE, MatrixEnd.UNCHANGED)


class MatrixManifest(Value, frozen=True, kw_only=True):
    """matrix.json: the results so far, also those of earlier runs for other variants."""

    format: int = FORMAT
    stoker: str
    results: tuple[MatrixResult, ...] = ()

    def result(self, job: MatrixJob) -> MatrixResult | None:
        return next((found for found in self.results if found.job.key == job.key), None)
