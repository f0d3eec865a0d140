"""`stoker tune`: measure a sample of a build folder's own steps in several ways, into a temporary
folder, one at a time and governed.
"""

import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.accelerate.advice import (
    advise,
    best_linker,
    choose_sample,
    command_of,
    order_of,
    results_of,
    trials_of,
)
from stoker.accelerate.linkers import (
    TunedLink,
    differences,
    keep_links,
    linker_version,
    read_linkage,
)
from stoker.accelerate.run_cache import run_cache
from stoker.govern.build_files import BuildFiles
from stoker.govern.build_folder import find_build, timings_of
from stoker.govern.command_line import compiler_words, link_identity, moved, step_of
from stoker.govern.history import History
from stoker.govern.opening import RunOptions, session
from stoker.govern.session import Session
from stoker.knowledge.compiler_modes import linker_programs
from stoker.knowledge.trials import is_measurable, trials
from stoker.model.caching import CacheEngine, ChainOptions
from stoker.model.errors import (
    ArtifactError,
    StokerError,
    StorageError,
    Terminated,
    UsageError,
    unreadable,
)
from stoker.model.govern import Collector, CompileMode, Gc, NvccThreads, Role, Timing
from stoker.model.tuning import (
    BASELINE,
    Measurement,
    Sampled,
    Topic,
    Trial,
    TrialResult,
    Tuning,
)
from stoker.model.value import UNDECODABLE, Value
from stoker.outside import process
from stoker.outside.deleting import remove_tree
from stoker.outside.files import folder_of_process, sha256_of
from stoker.outside.folders import cache, private_folder
from stoker.wheel import fatbin
from stoker.wheel.elf import Elf
from stoker.wheel.reader import open_file

Say = Callable[[str], None]

_COMPILES = (Role.C, Role.CXX, Role.CUDA)
_COMPILE_ONLY = {"-c", "--compile", "-dc", "--device-c"}
_LONGEST_LINE = 100_000  # bytes of words above which they go into a response file
_TAIL = 4000  # bytes of output that a failed command keeps
_TIMEOUT_S = 120.0
_SHORTEST_S = 0.5  # the launcher samples memory too rarely to know the peak of a shorter step


class TuneOptions(Value, frozen=True, kw_only=True):
    """``steps`` compiles are measured in ``rounds`` rounds, for about ``budget`` seconds."""

    steps: int = 6
    rounds: int = 3
    budget: float = 300.0
    seed: int = 0


class _Listed(Value, frozen=True, kw_only=True):
    """An entry of a compilation database. ``plain`` is the command before its response file was
    written out.
    """

    directory: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    plain: str = ""


def tune(place: Path, wanted: TuneOptions, run: RunOptions, say: Say) -> Tuning:
    """Measure the steps of ``place``, a build folder or a source tree that was built. Linkers that
    are faster and equivalent are kept for ``--linker auto``. ``say`` gets the progress.
    """
    folder = _find(place)
    listed = list(_listed(folder))
    candidates = _candidates(folder, listed)
    installed = _installed()
    seconds = wanted.budget / wanted.rounds
    sample = choose_sample(candidates, count=wanted.steps, seed=wanted.seed, seconds=seconds)
    options = replace(
        run, gc=Gc.OFF, nvcc_threads=NvccThreads.OFF, chain=ChainOptions(cache=CacheEngine.NONE)
    )
    parent = private_folder(cache() / "tune")
    with folder_of_process(parent, "steps-") as temporary:
        commands = tuple((entry.directory, entry.command) for entry in listed)
        bench = _Bench(sample, commands, installed, temporary, wanted, say)
        bench.notes += _left_out(candidates, sample)
        with session(
            options,
            run_cache(options.chain),
            what=f"stoker tune {folder}",
            show=lambda _: None,
            folder=parent,
        ) as governed:
            try:
                bench.measure(governed)
            finally:
                summary = governed.finish(0)
                bench.take_peaks(summary.run if summary else None)
    return _tuning(folder, wanted, bench)


def _left_out(candidates: Sequence[Sampled], sample: Sequence[Sampled]) -> Iterator[str]:
    """Yield what the budget does not suffice for."""
    for kind in dict.fromkeys(step.kind for step in candidates):
        if kind not in {step.kind for step in sample}:
            yield f"no {kind.value} was measured: each takes too long for this --budget"


def _tuning(folder: Path, wanted: TuneOptions, bench: "_Bench") -> Tuning:
    if all(found.problem for found in bench.measurements):
        raise StokerError("no step of the sample could be measured", hints=bench.notes)
    found = results_of(bench.sample, bench.trials, bench.measurements, bench.differences)
    _keep(folder, bench.sample, found)
    first = [m for m in bench.measurements if m.trial == BASELINE.name and not m.problem]
    return Tuning(
        folder=str(folder),
        seed=wanted.seed,
        rounds=wanted.rounds,
        cpus=len(os.sched_getaffinity(0)),
        sample=tuple(bench.sample),
        baseline_s=sum(m.wall_s for m in first if m.round == 0),
        results=found,
        advice=advise(found),
        notes=tuple(bench.notes),
        measurements=tuple(bench.measurements),
    )


def _keep(folder: Path, sample: Sequence[Sampled], results: Sequence[TrialResult]) -> None:
    """Keep the best linker of each link that was measured."""
    kept = []
    for step in sample:
        ours = (r for r in results if r.topic is Topic.LINKER and r.steps == (step.title,))
        if step.is_link and (best := best_linker(ours)):
            mode = CompileMode(best.trial)
            version = linker_version(mode) or ""
            link = TunedLink(link=step.link, output=step.output, linker=mode, version=version)
            kept.append(link)
    if any(step.is_link for step in sample):
        keep_links(folder, kept)


# -- the steps of a build folder -------------------------------------------------------------------


def _find(place: Path) -> Path:
    if (place / "compile_commands.json").is_file() and not (place / "build.ninja").is_file():
        return place.absolute()
    return find_build(place)


def _candidates(folder: Path, listed: Sequence[_Listed]) -> tuple[Sampled, ...]:
    """Return the compiles and links whose output exists."""
    files, timings = BuildFiles(), timings_of(folder)
    steps = [step for entry in listed if (step := _sampled(entry, files))]
    if not any(not step.is_link for step in steps):
        raise UsageError(
            f"{folder} has no C or C++ compiles that can be measured",
            hints=["name the build folder of a C or C++ project"],
        )
    built = [step for step in steps if Path(step.directory, step.output).is_file()]
    if not any(not step.is_link for step in built):
        raise UsageError(
            f"nothing is compiled in {folder} yet",
            hints=[f"build it first: `stoker run -- ninja -C {shlex.quote(str(folder))}`"],
        )
    return tuple(_timed(step, timings.get(step.output)) for step in built)


def _timed(step: Sampled, timing: Timing | None) -> Sampled:
    return replace(step, wall_s=timing.seconds if timing else None)


def _listed(folder: Path) -> Iterator[_Listed]:
    """Yield all commands: those of ninja with their response files written out, else those of the
    compilation database, which has no links.
    """
    database = folder / "compile_commands.json"
    if not (folder / "build.ninja").is_file():
        try:
            yield from _decoded(database.read_bytes(), folder)
        except OSError as error:
            raise unreadable(database, error) from error
        return
    ask = ["ninja", "-C", str(folder), "-t", "compdb"]
    plain, whole = (
        _decoded(process.check([*ask, *more], timeout=_TIMEOUT_S).encode(), folder)
        for more in ([], ["-x"])
    )
    for before, after in zip(plain, whole, strict=True):
        yield replace(after, plain=before.command)


def _decoded(text: bytes, folder: Path) -> tuple[_Listed, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[_Listed, ...])
    except UNDECODABLE as error:
        raise UsageError(f"the commands of {folder} cannot be read: {error}") from error


def _sampled(entry: _Listed, files: BuildFiles) -> Sampled | None:
    words = compiler_words(entry.command) if entry.command else entry.arguments
    if not words or not is_measurable(words) or not moved(words, "/"):
        return None
    plain = compiler_words(entry.plain) if entry.plain else ()
    link = link_identity(plain, entry.directory)
    step = step_of(words, entry.directory, entry.directory, files)
    if not link and (step.role not in _COMPILES or not _COMPILE_ONLY & set(words)):
        return None
    if step.role is Role.CUDA and (len(step.archs) < 2 or step.collector is Collector.NONE):
        return None  # its targets cannot be compiled at once
    return Sampled(
        title=step.output if link else step.source,
        role=step.role,
        directory=entry.directory,
        command=words,
        output=step.output,
        link=link,
    )


def _installed() -> frozenset[str]:
    """Return the programs and linkers that trials can use."""
    programs = {name for row in trials() for name in (row.wrapper, *row.programs.values()) if name}
    found = {name for name in programs if shutil.which(name)}
    return frozenset(found | {m.value for m, p in linker_programs().items() if shutil.which(p)})


# -- measuring -------------------------------------------------------------------------------------


class _Bench:
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
        environment = _plain(governed.environment(os.environ))
        deadline = time.monotonic() + self._wanted.budget
        rounds = range(self._wanted.rounds)
        for number, index in ((number, index) for number in rounds for index in self._order):
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

    @property
    def _order(self) -> list[int]:
        """Links come first: they are few, and the budget may not suffice for all steps."""
        return sorted(range(len(self.sample)), key=lambda index: not self.sample[index].is_link)

    def _try(
        self,
        governed: Session,
        environment: Mapping[str, str],
        index: int,
        trial: Trial,
        number: int,
    ) -> None:
        step = self.sample[index]
        place = self._temporary / f"{index}-{number}-{trial.name}"
        place.mkdir()
        there = moved(command_of(trial, step.command), str(place))
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
        cpu, began = process.children_cpu_s(), time.monotonic()
        status = governed.run(words, env=env, cwd=directory, output=said.extend)
        wall, cpu = time.monotonic() - began, process.children_cpu_s() - cpu
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

    def _compare(self, index: int, trial: Trial, output: Path) -> None:
        """Compare a link with that of the default linker, which is the first of each round 0."""
        before = self._temporary / f"{index}-0-{BASELINE.name}" / output.name
        try:
            found = differences(read_linkage(before), read_linkage(output))
        except (ArtifactError, UsageError) as error:
            found = (f"it cannot be compared: {error}",)
        self.differences[index, trial.name] = found


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the user's own settings of ccache."""
    kept = {name: v for name, v in environment.items() if not name.startswith("CCACHE_")}
    return kept | {"CCACHE_CONFIGPATH": "/dev/null"}


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
