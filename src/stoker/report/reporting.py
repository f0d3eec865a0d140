"""`stoker report`: a run of the history with its analysis, its build, and what other machines would
take.
"""

import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from stoker import __version__
from stoker.govern.history.past_runs import measured_run
from stoker.govern.history.simulate import simulate
from stoker.govern.history.simulated_steps import with_cache_hits, with_nvcc_threads
from stoker.govern.policy.policies import make_policy
from stoker.model.build import BuildRecord
from stoker.model.errors import StokerError, UsageError
from stoker.model.govern import StepRecord
from stoker.model.runs import Outcome, run_folder_of
from stoker.model.value import UNDECODABLE, counted, prepared
from stoker.outside.long_work import Say
from stoker.plan.run_folder import RECORD, runs_folder
from stoker.report.analysis import RecordedRun, analyse, records
from stoker.report.comparison import compare_runs
from stoker.report.dependencies import Dependencies
from stoker.report.phases import CompilerPhase, phase_file, read_phases
from stoker.report.reported import (
    BuildFacts,
    LibrarySize,
    Output,
    Report,
    ReportedRun,
    RunAnalysis,
    WhatIf,
)
from stoker.settings.tables import Prices
from stoker.settings.toml import own_prices
from stoker.source.ninja import read_edges
from stoker.wheel.inspect.inspecting import inspect

_LARGEST_PHASES = 256 << 20  # bytes
_CLOCK_TOLERANCE = 2.0  # seconds: the history counts from when the run asked for its governor
# Rows of the what-if table: a name, and factors for CPUs and memory.
_MACHINES = (
    ("the same machine", 1.0, 1.0),
    ("half the memory", 1.0, 0.5),
    ("twice the memory", 1.0, 2.0),
    ("half the CPUs", 0.5, 1.0),
    ("twice the CPUs", 2.0, 1.0),
    ("twice the CPUs and memory", 2.0, 2.0),
)
# And rows on the same machine: the share of compiles that a cache has, and the threads of nvcc.
_HITS = 0.9
_NVCC_THREADS = 4


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A run with everything that was recorded of it."""

    analysis: RunAnalysis
    build: BuildFacts | None
    steps: tuple[StepRecord, ...]  # for simulations


def make_report(
    run: str | None, *, against: str | None = None, what_if: bool = True, say: Say
) -> Report:
    """Return the report of a run. ``run`` and ``against`` are words for ``History.find``; ``say``
    shows which run it is, and progress.
    """
    prices = own_prices()
    shown = _find(run)
    before = _find(against) if against is not None else None
    analysis = shown.analysis
    say(_title(analysis))
    cost = None
    if analysis.cpus and analysis.limit:
        cost = prices.cost(analysis.wall_s, cpus=analysis.cpus, memory=analysis.limit)
    return Report(
        stoker=__version__,
        shown=ReportedRun(run=analysis, build=shown.build),
        what_if=tuple(_what_if(shown, prices, say)) if what_if else (),
        cost=cost,
        currency=prices.currency,
        before=ReportedRun(run=before.analysis, build=before.build) if before else None,
        comparison=compare_runs(before.analysis, analysis) if before else None,
    )


def _title(run: RunAnalysis) -> str:
    when = datetime.fromtimestamp(run.began).strftime("%Y-%m-%d %H:%M")
    return f"run {run.id} of {when}: {run.command}"


def find_phases(run: RunAnalysis) -> dict[int, tuple[CompilerPhase, ...]]:
    """Return the phases that compilers recorded of their steps, by the index of the span.

    A file that was written after its step has ended belongs to a later build.
    """
    found: dict[int, tuple[CompilerPhase, ...]] = {}
    for index, span in enumerate(run.spans):
        named = phase_file(span.step)
        if named and span.outcome is Outcome.DONE:
            form, name = named
            path = Path(run.directory, span.step.directory, name)
            latest = run.began + span.ended + _CLOCK_TOLERANCE
            with suppress(OSError):
                status = path.stat()
                fits = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_PHASES
                if fits and status.st_mtime <= latest:
                    found[index] = read_phases(path.read_bytes(), form, span.step)
    return {index: phases for index, phases in found.items() if phases}


def analyse_run(run: str | None, *, say: Say) -> RunAnalysis:
    """Return the analysis of a run for a trace. An imported run has no times to draw."""
    found = _find(run).analysis
    if not found.timed:
        raise UsageError(
            f"run {found.id} was imported, and a trace needs to know when its steps ran",
            hints=[f"`stoker report {found.id}` shows what its steps needed"],
        )
    say(_title(found))
    return found


def _find(word: str | None) -> _Found:
    measured = measured_run(word)
    run, attempts = measured.run, measured.attempts
    name = run_folder_of(run.command)
    folder, record = runs_folder() / (name or ""), None
    if name is not None:
        with suppress(OSError, *UNDECODABLE):
            record = msgspec.json.decode((folder / RECORD).read_bytes(), type=prepared(BuildRecord))
    machine = record.plan.machine if record else None
    recorded = RecordedRun(
        cpus=machine.cpus if machine else None,
        limit=machine.memory_bytes if machine else None,
    )
    # The graph of each build folder that still exists.
    folders = {str(Path(run.directory, attempt.record.step.directory)) for attempt in attempts}
    edges = {each: found for each in sorted(folders) if (found := read_edges(Path(each)))}
    dependencies = Dependencies(edges)
    analysis = analyse(run, attempts, recorded, dependencies)
    return _Found(
        analysis=analysis,
        build=_build_facts(folder, record) if record else None,
        steps=records(analysis.spans, dependencies, run.directory),
    )


def _build_facts(folder: Path, record: BuildRecord) -> BuildFacts:
    source = record.plan.source
    title = f"{source.name} {source.version or ''}".strip() if source else record.request.source
    return BuildFacts(
        title=title,
        variant=record.plan.name,
        folder=str(folder),
        stoker=record.stoker,
        stages=record.stages,
        settings=(*record.plan.environment, *record.plan.cmake),
        tools=record.tools,
        memory_limit=record.plan.machine.memory_limit,
        commit=record.git.commit if record.git else "",
        outputs=tuple(_output(Path(path)) for path in record.outputs),
    )


def _output(path: Path) -> Output:
    """Return an output with its size; only the name if it cannot be read any more."""
    try:
        facts = inspect(str(path))
    except StokerError:
        return Output(path=str(path))
    libraries = []
    for library in sorted(facts.libraries, key=lambda library: -library.size_bytes):
        by_arch: Counter[str] = Counter()
        for code in library.device_code:
            by_arch[code.arch] += code.size_bytes
        sizes = dict(sorted(by_arch.items()))
        row = LibrarySize(path=library.path, bytes=library.size_bytes, device_code=sizes)
        libraries.append(row)
    return Output(path=str(path), bytes=facts.size_bytes, libraries=tuple(libraries))


def _what_if(found: _Found, prices: Prices, say: Say) -> Iterator[WhatIf]:
    cpus, memory = found.analysis.cpus, found.analysis.limit
    if not (cpus and memory and found.steps):
        return
    machines = [(name, max(1, round(cpus * c)), int(memory * m)) for name, c, m in _MACHINES]
    hours = {name: machine.hour for name, machine in prices.machines.items()}
    machines += [(name, m.cpus, m.memory_bytes) for name, m in prices.machines.items()]
    cases = [(*machine, found.steps) for machine in dict.fromkeys(machines)]
    cases += [(name, cpus, memory, steps) for name, steps in _other_builds(found.steps)]
    for name, count, amount, steps in cases:
        say(f"simulating {counted(len(steps), 'step')}: {name}")
        policy = make_policy("adaptive", cpus=count)
        result = simulate(steps, policy, cpus=count, memory=amount, history=steps)
        cost = prices.cost(result.wall_s, cpus=count, memory=amount)
        if name in hours:
            cost = result.wall_s / 3600 * hours[name]
        yield WhatIf(name=name, result=result, cost=cost)


def _other_builds(steps: tuple[StepRecord, ...]) -> Iterator[tuple[str, tuple[StepRecord, ...]]]:
    """Yield builds of the same source on the same machine that differ in their steps. The names say
    what is assumed.
    """
    hits = with_cache_hits(steps, share=_HITS, seed=1)
    if hits and len(hits) < len(steps):
        yield f"a compiler cache with {_HITS:.0%} hits, which take no time", hits
    threads = with_nvcc_threads(steps, _NVCC_THREADS)
    if threads != steps:
        yield f"nvcc --threads {_NVCC_THREADS} for sources with several GPU targets", threads
