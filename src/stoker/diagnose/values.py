"""The values of a diagnosis, with the names of its JSON."""

from enum import StrEnum

from stoker.knowledge.failures import FailureStage, Shell
from stoker.model.errors import UsageError
from stoker.model.shell import NOTHING, ShellScript
from stoker.model.value import Value


class Status(StrEnum):
    FAILED = "failed"
    NOTHING_FAILED = "nothing-failed"
    UNKNOWN = "unknown"  # it failed, and no known cause is likely enough
    EMPTY = "empty"  # there is no log to read


class FailedRun(Value, frozen=True, kw_only=True):
    """The run whose log is diagnosed; all are empty if it is not known. ``alone`` is what a step
    needed that ran out of memory although no other needed much.
    """

    command: str = ""
    folder: str = ""
    alone: str = ""


class LogEvidence(Value, frozen=True, kw_only=True):
    """``line`` counts from 1; it is 0 for what was measured, or recorded in a ``file``. ``file`` is
    empty for stdin.
    """

    line: int
    text: str
    file: str = ""


class FilledFix(Value, frozen=True, kw_only=True):
    """A fix for this failure on this machine. ``build`` is the command that builds again; it is
    empty if the command of the build is not known. ``edits`` is the file that ``text`` changes.
    """

    text: str
    commands: tuple[ShellScript, ...] = ()
    build: ShellScript = NOTHING
    shell: Shell = Shell.SH
    edits: str = ""


class FoundCause(Value, frozen=True, kw_only=True):
    """A cause with one excerpt as its evidence and its fixes, the best first. A fix has all that
    it takes: commands, or a change of a named file; ``look`` is what helps to find one.
    """

    cause: str
    title: str
    stage: FailureStage
    confidence: float
    evidence: tuple[LogEvidence, ...]
    why: str
    fix: tuple[FilledFix, ...]
    look: tuple[FilledFix, ...]
    links: tuple[str, ...]
    misled_by: tuple[str, ...]

    @property
    def advice(self) -> tuple[FilledFix, ...]:
        """The fixes, and then what helps to find another."""
        return self.fix + self.look


class Suspect(Value, frozen=True, kw_only=True):
    """A tool or library that may be too new for the source. ``released`` is a year and a month."""

    product: str
    version: str
    released: str


class TrialEnd(StrEnum):
    PASSED = "passed"
    SAME = "same-error"
    OTHER = "other-error"  # it came further, or failed in another way
    TIMEOUT = "timeout"


class TriedFix(Value, frozen=True, kw_only=True):
    """The command of a run once more, on copies and with one suspect changed. ``cause`` is what is
    proven if it passed; it is empty for the command as it was.
    """

    cause: str
    text: str
    commands: tuple[ShellScript, ...] = ()
    build: ShellScript = NOTHING
    end: TrialEnd
    wall_s: float


class Diagnosis(Value, frozen=True, kw_only=True):
    """The result. ``findings`` are best first; ``unexplained`` is the first error without a known
    cause. Without a first fix, ``step`` is what failed, and ``suspects`` are newer than the source,
    of month ``source``. ``trials`` are what `--try` ran; if the last one passed, its cause is
    proven. ``succeeded`` is whether the log says that anything ended well.
    """

    status: Status
    succeeded: bool = False
    findings: tuple[FoundCause, ...] = ()
    unexplained: tuple[LogEvidence, ...] = ()
    step: str = ""
    suspects: tuple[Suspect, ...] = ()
    source: str = ""
    trials: tuple[TriedFix, ...] = ()
    lines: int = 0
    run: FailedRun = FailedRun()

    @property
    def is_proven(self) -> bool:
        """Whether the command of the run passed with a suspect changed."""
        return len(self.trials) > 1 and self.trials[-1].end is TrialEnd.PASSED


def what_to_give(problem: str) -> UsageError:
    """Return the error for something that cannot be diagnosed, with what can be."""
    hint = "give a log file, - for standard input, a run folder, or a run of `stoker history`"
    return UsageError(problem, hints=[hint])
