"""One stage after another: begun only where there is a reason, timed, logged, stamped when done."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from stoker.build.run_folder import RunFolder
from stoker.build.work import Work
from stoker.model.build import Stage, StageEnd, StageResult
from stoker.model.errors import CommandError, StokerError, StorageError

Tell = Callable[[StageResult], None]
Echo = Callable[[bytes], None]
Excerpt = Callable[[Path], str]


class StageError(CommandError):
    """A stage that failed, with the error in its log; the status is that of the cause."""

    def __init__(self, stage: Stage, log: Path, cause: StokerError, excerpt: Excerpt):
        output = cause.output if isinstance(cause, CommandError) else ""
        if isinstance(cause, CommandError) and not output:
            output = excerpt(log)
        super().__init__(
            f"{stage} failed: {cause}", output=output, hints=[*cause.hints, f"whole log: {log}"]
        )
        self.status = cause.status
        self.log = log
        self.of_command = isinstance(cause, CommandError)


class Log:
    """The log of a stage, echoed where somebody wants to see it all."""

    def __init__(self, path: Path, stream: BinaryIO, echo: Echo | None):
        self._path = path
        self._stream = stream
        self._echo = echo

    def text(self) -> str:
        """All that was written so far."""
        return self._path.read_text(errors="replace")

    def write(self, chunk: bytes) -> None:
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise StorageError(f"cannot write the log: {error.strerror}") from error
        if self._echo:
            self._echo(chunk)

    def line(self, text: str) -> None:
        self.write(f"{text}\n".encode())


Act = Callable[[Log], tuple[Path, ...]]
Inputs = Callable[[], Mapping[str, str]]


class Stages:
    """``tell`` hears of each when it has ended; ``excerpt`` finds the error in a log."""

    def __init__(
        self, work: Work, folder: RunFolder, *, tell: Tell, echo: Echo | None, excerpt: Excerpt
    ):
        self.results: list[StageResult] = []
        self._work = work
        self._folder = folder
        self._tell = tell
        self._echo = echo
        self._excerpt = excerpt

    def do(
        self,
        stage: Stage,
        act: Act,
        *,
        inputs: Inputs,
        inputs_change: bool = False,
    ) -> tuple[Path, ...]:
        """Unless nothing that goes into it has changed; gives what it made, then or now.

        ``inputs_change``: by the stage itself, so that they count as they are afterwards.
        """
        before: dict[str, str] = {}

        def reason() -> str | None:
            before.update(inputs())  # not earlier: an input that cannot be read fails the stage
            return self._work.reason(stage, before)

        def stamped(log: Log) -> tuple[Path, ...]:
            self._work.begin(stage)
            made = act(log)
            self._work.done(stage, inputs() if inputs_change else before, made)
            return made

        self.do_if(stage, stamped, reason=reason)
        return self._work.outputs(stage)

    def do_if(self, stage: Stage, act: Act, *, reason: Callable[[], str | None]) -> None:
        """Where there is a reason to."""
        began = time.monotonic()
        path = self._folder.log(stage)
        end, why = StageEnd.FAILED, ""
        try:
            with path.open("wb", buffering=0) as stream:
                log = Log(path, stream, self._echo)
                if why := reason() or "":
                    log.line(f"stoker: {stage}: {why}")
                    act(log)
            end = StageEnd.DONE if why else StageEnd.SKIPPED
        except StokerError as error:
            why = error.message
            raise StageError(stage, path, error, self._excerpt) from error
        except OSError as error:
            why = f"{error.filename or path}: {error.strerror or error}"
            raise StageError(stage, path, StorageError(why), self._excerpt) from error
        finally:
            result = StageResult(
                stage=stage, end=end, seconds=time.monotonic() - began, log=str(path), why=why
            )
            self.results.append(result)
            self._tell(result)
