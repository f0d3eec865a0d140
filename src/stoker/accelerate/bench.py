"""Runs the steps of a sample in several ways, round after round, and compares what they write."""

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from stoker.accelerate.advice import order_of, trial_command, trials_of
from stoker.accelerate.linkage import differences, read_linkage
from stoker.govern.client.session import Session
from stoker.govern.command_line import moved, step_of
from stoker.govern.history.store import History
from stoker.govern.server.build_files import BuildFiles
from stoker.model.errors import ArtifactError, StorageError, Terminated, UsageError
from stoker.model.tuning import BASELINE, Measurement, Sampled, Topic, TuningTrial
from stoker.model.value import Value
from stoker.outside.deleting import remove_tree
from stoker.outside.files import sha256_of
from stoker.outside.long_work import Say
from stoker.outside.processes import children_cpu_s
from stoker.wheel.elf import fatbin
from stoker.wheel.elf.elf import Elf
from stoker.wheel.reader import open_file

_LONGEST_LINE = 100_000  # bytes of words above which they go into a response file
_TAIL = 4000  # bytes of output that a failed command keeps
_SHORTEST_S = 0.5  # the launcher samples memory too rarely to know the peak of a shorter step


class TuneOptions(Value, frozen=True, kw_only=True):
    """``steps`` compiles are measured in ``rounds`` rounds, for about ``budget`` seconds."""

    steps: int = 6
    rounds: int = 3
    budget: float = 300.0
    seed: int = 0


class Bench:
    """Runs every step of the sample in every way, round after round, until the budget is spent."""

    def __init__(
        self,
        sample: Sequence[Sampled],
        commands: Sequence[tuple[str, str]],
        installed: frozenset[str],
        temporary: Path,
        wanted: TuneOptions,
        say: Say,
    ):
        files = BuildFiles()
        collectors = [
            step_of(step.command, step.directory, step.directory, files).collector
            for step in sample
        ]
        self.sample = sample
        self.ways = [
            trials_of(step, collector, installed)
            for step, collector in zip(sample, collectors, strict=True)
        ]
        self.trials = tuple({t.name: t for ways in self.ways for t in ways}.values())
        self.measurements: list[Measurement] = []
        self.differences: dict[tuple[int, str], tuple[str, ...]] = {}
        self.notes: list[str] = []
        self._commands = commands
        self._temporary = temporary
        self._wanted = wanted
        self._say = say
        self._outputs: list[str] = []  # of the measurements
        self._failing: set[tuple[int, str]] = set()

    def measure(self, governed: Session) -> None:
        governing = governed.environment(os.environ)
        # The user's own settings of ccache do not count.
        environment = {n: v for n, v in governing.items() if not n.startswith("CCACHE_")}
        environment["CCACHE_CONFIGPATH"] = "/dev/null"
        deadline = time.monotonic() + self._wanted.budget
        rounds = range(self._wanted.rounds)
        # Links come first: they are few, and the budget may not suffice for all steps.
        order = sorted(range(len(self.sample)), key=lambda index: not self.sample[index].is_link)
        for number, index in product(rounds, order):
            self._say(f"round {number + 1} of {len(rounds)}: {self.sample[index].title}")
            for trial in order_of(self.ways[index], number):
                if time.monotonic() > deadline:
                    budget = f"the budget of {self._wanted.budget:g} s"
                    self.notes.append(f"{budget} ended in round {number + 1} of {len(rounds)}")
                    return
                if not self._failing & {(index, trial.name), (index, BASELINE.name)}:
                    self._try(governed, environment, index, trial, number)
                if governed.stopped_by:
                    raise Terminated(governed.stopped_by)

    def _try(
        self,
        governed: Session,
        environment: Mapping[str, str],
        index: int,
        trial: TuningTrial,
        number: int,
    ) -> None:
        step = self.sample[index]
        place = self._temporary / f"{index}-{number}-{trial.name}"
        place.mkdir()
        there = moved(trial_command(trial, step.command), str(place))
        assert there is not None  # only such steps are candidates
        words, output = there
        env = {**environment, "CCACHE_DIR": str(self._temporary / f"ccache-{index}-{number}")}
        found = self._run(
            governed, _shortened(words, place), env, Path(step.directory), Path(output)
        )
        found = replace(found, step=index, trial=trial.name, round=number)
        if found.problem:
            self._failing.add((index, trial.name))
            if trial is BASELINE:
                self.notes.append(f"{step.title} cannot be measured: {found.problem}")
        elif trial.topic is Topic.LINKER and number == 0:
            self._compare(index, trial, Path(output))
        self.measurements.append(found)
        self._outputs.append(output)
        if not (step.is_link and trial is BASELINE and number == 0):  # others are compared with it
            remove_tree(place)

    def _run(
        self,
        governed: Session,
        words: Sequence[str],
        env: Mapping[str, str],
        directory: Path,
        output: Path,
    ) -> Measurement:
        said = bytearray()
        cpu, began = children_cpu_s(), time.monotonic()
        status = governed.run(words, env=env, cwd=directory, output=said.extend)
        wall, cpu = time.monotonic() - began, children_cpu_s() - cpu
        empty = Measurement(step=0, trial="", round=0)
        if status or not output.is_file():
            return replace(empty, problem=_first_error(bytes(said[-_TAIL:])))
        size, digest = output.stat().st_size, _device_code(output) or sha256_of(output)
        return replace(empty, wall_s=wall, cpu_s=cpu, size_bytes=size, digest=digest)

    def take_peaks(self, run: int | None) -> None:
        """Take what the governor has measured out of the history, where it would change predictions
        of builds: the peak of each step, and its time without waits.
        """
        if run is None:
            return
        records = {}
        with suppress(StorageError), History() as history:
            attempts = history.attempts(run)
            records = {attempt.record.step.output: attempt.record for attempt in attempts}
            history.forget([run])
        short = {
            found.step
            for found, output in zip(self.measurements, self._outputs, strict=True)
            if output in records and records[output].wall_s < _SHORTEST_S
        }
        for number, output in enumerate(self._outputs):
            if record := records.get(output):
                found = replace(self.measurements[number], wall_s=record.wall_s)
                peak = 0 if found.step in short else record.peak_bytes
                self.measurements[number] = replace(found, peak_bytes=peak)

    def _compare(self, index: int, trial: TuningTrial, output: Path) -> None:
        """Compare a link with that of the default linker, which is the first of each round 0."""
        before = self._temporary / f"{index}-0-{BASELINE.name}" / output.name
        try:
            found = differences(read_linkage(before), read_linkage(output))
        except (ArtifactError, UsageError) as error:
            found = (f"it cannot be compared: {error}",)
        self.differences[index, trial.name] = found


def _shortened(words: Sequence[str], place: Path) -> Sequence[str]:
    """Put the words of a long command into a response file, as its build tool did."""
    if sum(map(len, words)) < _LONGEST_LINE:
        return words
    program, *rest = words
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in rest)
    file = place / "words.rsp"
    file.write_text("".join(f'"{word}"\n' for word in quoted), errors="surrogateescape")
    return [program, f"@{file}"]


def _device_code(path: Path) -> str:
    """Return a digest of the device code of a CUDA object, whose host half has names of temporary
    files; empty if there is none.
    """
    found = hashlib.sha256()
    with suppress(ArtifactError), open_file(path) as reader:
        sections = Elf(reader).named(*fatbin.SECTIONS)
        for _, section in sections:
            for chunk in reader.chunks(section.offset, section.size):
                found.update(chunk)
        return found.hexdigest() if sections else ""
    return ""


def _first_error(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else "it failed")
