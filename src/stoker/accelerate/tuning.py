"""`stoker tune`: measure a sample of a build folder's own steps in several ways, into a temporary
folder, one at a time and governed.
"""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from stoker.accelerate.advice import advise, best_linker, choose_sample, results_of
from stoker.accelerate.bench import Bench, TuneOptions
from stoker.accelerate.linkers import TunedLink, keep_links, linker_version
from stoker.accelerate.run_cache import run_cache
from stoker.govern.client.opening import session
from stoker.govern.client.session import RunOptions
from stoker.govern.command_line import compiler_words, link_identity, moved, step_of
from stoker.govern.history.past_runs import timings_of
from stoker.govern.server.build_files import BuildFiles
from stoker.knowledge.compiler_modes import linker_programs
from stoker.knowledge.trials import is_measurable, trials
from stoker.model.caching import CacheEngine, ChainOptions
from stoker.model.errors import StokerError, UsageError, unreadable
from stoker.model.govern import Collector, CompileMode, Role
from stoker.model.terms import Gc, NvccThreads
from stoker.model.tuning import BASELINE, Sampled, Topic, TrialResult, Tuning
from stoker.model.value import UNDECODABLE
from stoker.outside import process
from stoker.outside.files import folder_of_process
from stoker.outside.folders import cache, private_folder
from stoker.outside.long_work import Say
from stoker.source.ninja import CompileCommand, compile_commands, find_build

_COMPILES = (Role.C, Role.CXX, Role.CUDA)
_COMPILE_ONLY = {"-c", "--compile", "-dc", "--device-c"}
_TIMEOUT_S = 120.0


class _Listed(NamedTuple):
    """``plain`` is the command before its response file was written out."""

    entry: CompileCommand
    plain: str = ""


def tune(place: Path, wanted: TuneOptions, run: RunOptions, say: Say) -> Tuning:
    """Measure the steps of ``place``, a build folder or a source tree that was built. Linkers that
    are faster and equivalent are kept for ``--linker auto``. ``say`` gets the progress.
    """
    listed_only = (place / "compile_commands.json").is_file() and not (
        place / "build.ninja"
    ).is_file()
    folder = place.absolute() if listed_only else find_build(place)
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
        commands = tuple((one.entry.directory, one.entry.command) for one in listed)
        bench = Bench(sample, commands, installed, temporary, wanted, say)
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


def _tuning(folder: Path, wanted: TuneOptions, bench: Bench) -> Tuning:
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
    known = {output: timing.seconds for output, timing in timings.items()}
    return tuple(replace(step, wall_s=known.get(step.output)) for step in built)


def _listed(folder: Path) -> Iterator[_Listed]:
    """Yield all commands: those of ninja with their response files written out, else those of the
    compilation database, which has no links.
    """
    database = folder / "compile_commands.json"
    if not (folder / "build.ninja").is_file():
        try:
            text = database.read_text(errors="replace")
        except OSError as error:
            raise unreadable(database, error) from error
        yield from map(_Listed, _decoded(text, folder))
        return
    ask = ["ninja", "-C", str(folder), "-t", "compdb"]
    plain, whole = (
        _decoded(process.check([*ask, *more], timeout=_TIMEOUT_S), folder) for more in ([], ["-x"])
    )
    for before, after in zip(plain, whole, strict=True):
        yield _Listed(after, before.command)


def _decoded(text: str, folder: Path) -> tuple[CompileCommand, ...]:
    try:
        return compile_commands(text)
    except UNDECODABLE as error:
        raise UsageError(f"the commands of {folder} cannot be read: {error}") from error


def _sampled(listed: _Listed, files: BuildFiles) -> Sampled | None:
    entry, plain_text = listed
    words = compiler_words(entry.command) if entry.command else entry.arguments
    if not words or not is_measurable(words) or not moved(words, "/"):
        return None
    plain = compiler_words(plain_text) if plain_text else ()
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
