"""The values of a diagnosis, with the names of its JSON."""

from enum import StrEnum

from stoker.knowledge.failures import Fix, Stage
from stoker.model.value import Value


class Status(StrEnum):
    FAILED = "failed"
    NOTHING_FAILED = "nothing-failed"
    UNKNOWN = "unknown"  # it failed, and no known cause fits


class Line(Value, frozen=True, kw_only=True):
    """A line as its tool printed it, without colours, time stamps and prefixes of other tools."""

    number: int
    text: str


class Evidence(Value, frozen=True, kw_only=True):
    """``line`` counts from 1; it is 0 for what was measured, or recorded in a ``file``. ``file`` is
    empty for stdin.
    """

    line: int
    text: str
    file: str = ""


class FoundCause(Value, frozen=True, kw_only=True):
    """A cause with its evidence and its fixes, with all parameters filled in."""

    cause: str
    title: str
    stage: Stage
    confidence: float
    evidence: tuple[Evidence, ...]
    why: str
    fix: tuple[Fix, ...]
    links: tuple[str, ...]
    misled_by: tuple[str, ...]


class Diagnosis(Value, frozen=True, kw_only=True):
    """The result. ``findings`` are best first; ``unexplained`` is the first error without a known
    cause.
    """

    status: Status
    findings: tuple[FoundCause, ...] = ()
    unexplained: tuple[Evidence, ...] = ()
    lines: int = 0
