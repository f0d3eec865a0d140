"""Runs the stages of a build. Each has a log and a result, and is skipped if nothing changed.

Does not know what a stage does.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from stoker.builds.work import Work
from stoker.model.build import BuildStage, StageEnd, StageResult
from stoker.model.errors import CommandError, StokerError, Terminated, UnfinishedError
from stoker.outside.folders import unwritable
from stoker.plan.run_folder import RunFolder

Tell = Callable[[StageResult], None]
Echo = Callable[[bytes], None]
Excerpt = Callable[[Path], str]


class StageError(CommandError):
    """A stage failed. Holds the error from its log; the exit status is that of the cause."""

    def __init__(self, stage: BuildStage, log: Path, cause: StokerError, excerpt: Excerpt):
        output = cause.output if isinstance(cause, CommandError) else ""
        if isinstance(cause, CommandError) and not output:
            output = excerpt(log)
        super().__init__(
            f"{stage} failed: {cause}", output=output, hints=[*cause.hints, f"whole log: {log}"]
        )
        self.status = cause.status
        self.log = log
        self.of_command = isinstance(cause, CommandError)


class StageLog:
    """The log file of a stage, which `--verbose` also copies to the terminal."""

    def __init__(self, path: Path, stream: BinaryIO, echo: Echo | None):
        self._path = path
        self._stream = stream
        self._echo = echo

    def text(self) -> str:
        """Return everything that was written so far."""
        return self._path.read_text(errors="replace")

    def write(self, chunk: bytes) -> None:
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise unwritable(self._path, error) from error
        if self._echo:
            self._echo(chunk)

    def line(self, text: str) -> None:
        self.write(f"{text}\n".encode())


class Stages:
    """Runs stages one after another.

    ``tell`` is called when a stage starts and when it ends, also when it fails or is interrupted.
    ``excerpt`` finds the error in a log. A stage counts as done only after it has succeeded:
    the next build repeats one that failed or was killed. ``check_time`` raises UnfinishedError if
    no further stage may begin.
    """

    def __init__(
        self,
        work: Work,
        folder: RunFolder,
        *,
        tell: Tell,
        echo: Echo | None,
        excerpt: Excerpt,
        check_time: Callable[[], None] = lambda: None,
    ):
        self.results: list[StageResult] = []
        self.running: BuildStage | None = None
        self._work = work
        self._folder = folder
        self._tell = tell
        self._echo = echo
        self._excerpt = excerpt
        self._check_time = check_time

    def do(
        self,
        stage: BuildStage,
        act: Callable[[StageLog], tuple[Path, ...]],
        inputs: Callable[[], Mapping[str, str]],
        *,
        inputs_change: bool = False,
    ) -> tuple[Path, ...]:
        """Run a stage unless its inputs are unchanged; return its outputs in both cases.

        ``inputs_change``: the stage itself changes its inputs, so they are read after it has run.
        """
        before: dict[str, str] = {}

        def reason() -> str | None:
            before.update(inputs())  # inside the stage, so that an unreadable input fails it
            return self._work.reason(stage, before)

        def stamped(log: StageLog) -> tuple[Path, ...]:
            self._work.begin(stage)
            made = act(log)
            self._work.done(stage, inputs() if inputs_change else before, made)
            return made

        self.do_if(stage, stamped, reason=reason)
        return self._work.outputs(stage)

    def do_if(
        self,
        stage: BuildStage,
        act: Callable[[StageLog], object],
        *,
        reason: Callable[[], str | None],
    ) -> None:
        """Run a stage if there is a reason to."""
        began = time.monotonic()
        path = self._folder.log(stage)
        end, why = StageEnd.FAILED, ""
        self.running = stage
        try:
            with path.open("wb", buffering=0) as stream:
                log = StageLog(path, stream, self._echo)
                if why := reason() or "":
                    log.line(f"stoker: {stage}: {why}")
                    self._check_time()
                    self._tell(_result(stage, StageEnd.RUNNING, path, why=why))
                    act(log)
            end = StageEnd.DONE if why else StageEnd.SKIPPED
        except (KeyboardInterrupt, Terminated):
            end, why = StageEnd.INTERRUPTED, ""
            raise
        except UnfinishedError as error:
            end, why = StageEnd.INTERRUPTED, error.message
            raise
        except StokerError as error:
            why = error.message
            raise StageError(stage, path, error, self._excerpt) from error
        except OSError as error:
            cause = unwritable(Path(error.filename or path), error, doing="use")
            why = cause.message
            raise StageError(stage, path, cause, self._excerpt) from error
        finally:
            result = _result(stage, end, path, seconds=time.monotonic() - began, why=why)
            self.running = None
            self.results.append(result)
            self._tell(result)


def _result(
    stage: BuildStage, end: StageEnd, log: Path, *, seconds: float = 0.0, why: str = ""
) -> StageResult:
    return StageResult(stage=stage, end=end, wall_s=seconds, log=str(log), why=why)
