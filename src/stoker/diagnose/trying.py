"""`stoker diagnose --try`: prove a cause by running the failed command again, on copies, with one
suspect changed at a time, until it passes.

Only commands that stoker ran and recorded are run: never what a log from elsewhere names.
"""

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from stoker.diagnose.about import About
from stoker.diagnose.ages import source_month, uploaded_month
from stoker.diagnose.answers import compiled_flags
from stoker.diagnose.kept import KeptRun, kept_run, last_failed
from stoker.diagnose.lines import Texts
from stoker.diagnose.sieve import Log, read_log
from stoker.diagnose.suspicions import Suspicion, suspicions
from stoker.diagnose.values import (
    Diagnosis,
    FilledFix,
    FoundCause,
    LogEvidence,
    Status,
    TrialEnd,
    TriedFix,
    what_to_give,
)
from stoker.diagnose.verdict import diagnose, finding_of, first_error
from stoker.knowledge.failures import failure
from stoker.model.errors import UsageError
from stoker.model.shell import NOTHING, ShellScript, Template, fill, outside, recorded
from stoker.outside.copies import run_on_copies

_MOST = 24  # commands that are run
_DEEPEST = 3  # changes that are tried together: each must have brought the command further
_LEAST_S, _TIMES = 1800.0, 5.0  # how long a command may run, also in times of what it took to fail
_MOST_WRITTEN = 500  # files of a failed run that are set aside before a trial
_ASIDE = Template(
    "find . -type f -newermt @{began} ! -newermt @{ended} ! -path '*/.git/*' ! -path './.failed/*'"
    """ -exec sh -c 'for f; do mkdir -p ".failed/$(dirname "$f")"; mv "$f" ".failed/$f"; done' sh"""
    " {} +"
)
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+|/tmp/\S+")
_OF_STOKER = re.compile(r"stoker: |  (?:line \d+: |Fix: |Age: |measured: )|    \$ ")

Tell = Callable[[str], None]


def try_suspects(what: str | None, tell: Tell) -> Diagnosis:
    """Diagnose a run of stoker, the last one that failed or that with a number, and try what may
    let its command pass. ``tell`` hears of each trial.
    """
    kept = _kept(what)
    command = recorded(kept.failed.command)
    folder = Path(kept.failed.folder)
    if command is None or not folder.is_dir():
        why = "a secret was removed from its command" if folder.is_dir() else f"no {folder}"
        raise UsageError(f"cannot run the command of the run again: {why}")
    return _Trials(kept, command, folder, tell).tried()


def _kept(what: str | None) -> KeptRun:
    if what is not None and not (what.isdecimal() and not Path(what).exists()):
        raise UsageError(
            "--try runs only commands that stoker itself ran and recorded, not those of a log",
            hints=["run the build with `stoker run -- COMMAND`, then `stoker diagnose --try`"],
        )
    kept = kept_run(int(what)) if what else last_failed()
    if kept is None:
        raise what_to_give("no run that failed is kept")
    if kept.build_folder:
        raise UsageError(
            "--try works for commands of `stoker run`, and this was a `stoker build`",
            hints=["stoker run -- COMMAND, with the command of the stage that failed"],
        )
    return kept


class _Trials:
    """The commands that were run for one failure, and what is left to try."""

    def __init__(self, kept: KeptRun, command: ShellScript, folder: Path, tell: Tell):
        took = kept.summary.wall_s if kept.summary else 0.0
        self._limit_s = max(_LEAST_S, _TIMES * took)
        self._run, self._command, self._folder = kept.failed, command, folder
        self._tell = tell
        self._done: list[TriedFix] = []
        self._marks: set[str] = set()
        self._source: str | None = None
        self._aside = _set_aside(folder, kept.began, kept.ended) if kept.began else None

    def tried(self) -> Diagnosis:
        asis = Suspicion(cause="", fix=FilledFix(text="", build=self._command))
        log, end = self._attempt(asis)
        first = diagnose(log, about=About(run=self._run))
        if end is TrialEnd.PASSED:
            return replace(first, status=Status.NOTHING_FAILED, trials=tuple(self._done))
        queue = deque([self._fresh(one)] for one in self._suspicions(first, log))
        while queue and len(self._done) <= _MOST:
            chosen = queue.popleft()
            both = together(chosen)
            log, end = self._attempt(both)
            if end is TrialEnd.PASSED:
                return self._proven(first, both, [one.cause for one in chosen])
            if end is TrialEnd.OTHER and len(chosen) < _DEEPEST:
                queue.extendleft([*chosen, one] for one in reversed(self._next(chosen, log)))
        return replace(first, trials=tuple(self._done))

    def _fresh(self, one: Suspicion) -> Suspicion:
        """Return a change of flags in a tree without what the failed run wrote: results of scripts
        that tested the compiler would stay as they are.
        """
        if not self._aside or not any(map(compiled_flags, one.fix.commands)):
            return one
        commands = (self._aside, *one.fix.commands)
        return Suspicion(cause=one.cause, fix=replace(one.fix, commands=commands))

    def _next(self, chosen: list[Suspicion], log: Log) -> list[Suspicion]:
        """Return what to try besides, where changes brought the command further: only causes that
        the new log shows.
        """
        further = diagnose(log, about=About(run=self._run))
        named = {finding.cause for finding in further.findings} - {one.cause for one in chosen}
        return [one for one in self._suspicions(further, log) if one.cause in named]

    def _suspicions(self, diagnosis: Diagnosis, log: Log) -> Iterator[Suspicion]:
        texts = Texts([line.text for line in log.lines])
        about = About(run=self._run).of_log(log.lines)
        self._source = self._source or source_month(self._run) or uploaded_month(texts)
        return suspicions(diagnosis, about, texts, self._source)

    def _attempt(self, one: Suspicion) -> tuple[Log, TrialEnd]:
        """Run the command with a change on copies of all that it may write, under the governor."""
        script = "\n".join(("set -e", *one.fix.commands, one.fix.build))
        quiet = ("--progress", "quiet")
        governed = [sys.executable, "-m", "stoker", "run", *quiet, "--", "sh", "-c", script]
        joined = ["sh", "-c", 'exec 2>&1; exec "$@"', "sh", *governed]
        own = str(Path(sys.executable).parent)  # for `stoker toolchain`; last, to change nothing
        env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{own}"}
        began = time.monotonic()
        done = run_on_copies(joined, folder=self._folder, timeout=self._limit_s, env=env)
        seconds = round(time.monotonic() - began, 1)
        log = read_log(BytesIO(_without_ours(done.stdout).encode()))
        end = self._end(done.status, _mark(log))
        self._done.append(
            TriedFix(
                cause=one.cause,
                text=one.fix.text,
                commands=one.fix.commands,
                build=one.fix.build,
                end=end,
                wall_s=seconds,
            )
        )
        self._tell(f"{end.value:12} {seconds:6.1f} s  {one.fix.text or 'the command as it was'}")
        return log, end

    def _end(self, status: int | None, mark: str) -> TrialEnd:
        if status == 0:
            return TrialEnd.PASSED
        if status is None:
            return TrialEnd.TIMEOUT
        is_new = bool(self._marks) and mark not in self._marks
        self._marks.add(mark)
        return TrialEnd.OTHER if is_new else TrialEnd.SAME

    def _proven(self, first: Diagnosis, both: Suspicion, causes: list[str]) -> Diagnosis:
        """Return the diagnosis with the causes that were proven first, and the commands that let
        the command pass as their fix.
        """
        evidence = [*(finding.evidence for finding in first.findings[:1]), first.unexplained][0]
        found = [self._finding(name, first, evidence, both.fix) for name in dict.fromkeys(causes)]
        others = [one for one in first.findings if one.cause not in causes]
        return replace(
            first,
            status=Status.FAILED,
            findings=(*found, *others),
            unexplained=(),
            trials=tuple(self._done),
        )

    def _finding(
        self, name: str, first: Diagnosis, evidence: tuple[LogEvidence, ...], fix: FilledFix
    ) -> FoundCause:
        named = {finding.cause: finding for finding in first.findings}
        cause = failure(name)
        about = About(run=self._run).with_groups({}, cause.known)
        found = named.get(name) or finding_of(cause, 1.0, evidence, about)
        return replace(found, confidence=1.0, fix=(fix,), look=())


def _set_aside(folder: Path, began: float, ended: float) -> ShellScript | None:
    """Return the command that moves the files away that a run wrote into its folder; ``None`` if it
    wrote none, or so many that all of them would take long to make again.
    """
    paths = (path for path in folder.rglob("*") if ".git" not in path.parts)
    files = (path.lstat() for path in paths if path.is_file() and not path.is_symlink())
    written = list(islice((one for one in files if began < one.st_mtime < ended), _MOST_WRITTEN))
    if not 0 < len(written) < _MOST_WRITTEN:
        return None
    times = {"began": outside(f"{began:.3f}"), "ended": outside(f"{ended:.3f}")}
    return fill(_ASIDE, times)


def together(chosen: Sequence[Suspicion]) -> Suspicion:
    """Return several changes as one: the commands of all, and the build of the last that has its
    own.
    """
    commands = tuple(dict.fromkeys(line for one in chosen for line in one.fix.commands))
    build = next((one.fix.build for one in reversed(chosen) if one.fix.build), NOTHING)
    text = "; ".join(one.fix.text for one in chosen)
    return Suspicion(
        cause=chosen[-1].cause, fix=FilledFix(text=text, commands=commands, build=build)
    )


def _mark(log: Log) -> str:
    """Return the first error of a log without numbers, to compare it with others."""
    lines = [evidence.text for evidence in first_error(log)]
    errors = [line for line in lines if "rror" in line] or lines[:1]
    return _NUMBERS.sub("0", errors[0]) if errors else ""


def _without_ours(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if not _OF_STOKER.match(line))
