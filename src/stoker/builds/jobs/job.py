"""The part that one job has in a build of several jobs."""

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import groupby
from pathlib import Path

from stoker.builds.digests import digest
from stoker.builds.jobs.checkpoint import CACHED, Checkpoint
from stoker.builds.jobs.notes import BuildIdentity
from stoker.builds.jobs.shards import Shard, compile_pieces
from stoker.builds.work import Task
from stoker.govern.command_line import build_folder
from stoker.model.caching import FLAGS, NUMBER_OF_JOBS, READ_BY_COMPILERS
from stoker.model.errors import StorageError, UsageError
from stoker.model.govern import Trace
from stoker.model.machine import Cpu
from stoker.model.value import Value
from stoker.model.variant import Backend
from stoker.plan.records import lasting_json
from stoker.source.ninja import Edge, edges_below

_NATIVE = re.compile(rb"=native\b")


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Yield increasing numbers as ``3`` and ``5-8``."""
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        row = [number for _, number in group]
        yield str(row[0]) if len(row) == 1 else f"{row[0]}-{row[-1]}"


class FarmPart(Value, frozen=True, kw_only=True):
    """What a job does with a checkpoint: its shard, or the end of the build, or all of it."""

    checkpoint: Checkpoint
    shard: Shard | None = None
    finish: bool = False


class Job:
    """One job: a build of a known identity that uses a checkpoint."""

    def __init__(self, part: FarmPart, identity: BuildIdentity):
        """Raise an error if the job is to finish a build that the checkpoint does not have."""
        self.shard = part.shard
        self._checkpoint = part.checkpoint
        self._notes = part.checkpoint.notes(identity)
        self._build = Path()
        self._problem: str | None = None
        self._before = self._checkpoint.changed_at()
        if part.finish:
            self._checkpoint.refuse_unknown(identity)
        try:
            self._notes.enter(identity)
        except StorageError as error:
            if self.shard:  # its work would be lost
                raise
            self._problem = error.in_one_line

    def begin(self, build: Path) -> None:
        """Learn what other jobs have measured. ``build`` is the folder of the build tool."""
        self._build = build
        self._notes.learn(build)

    def leave_to_back_end(self, task: Task, environment: MutableMapping[str, str]) -> None:
        """Prepare for a build whose commands are not known before they run: refuse a shard of it,
        and keep its objects apart from those of other CPUs.
        """
        if self.shard:
            raise UsageError(
                f"{task.tree.name} is compiled by its own build back end, which cannot be split",
                hints=["--stop-after with --checkpoint builds it in several jobs, one by one"],
            )
        self._keep_cpus_apart(task.subject.machine.cpu, environment)

    def keep_native_apart(self, task: Task, environment: MutableMapping[str, str]) -> None:
        """Keep objects of other CPUs apart if the build folder compiles for the one at hand."""
        if names_native(self._build):
            self._keep_cpus_apart(task.subject.machine.cpu, environment)

    def _keep_cpus_apart(self, cpu: Cpu, environment: MutableMapping[str, str]) -> None:
        """Give objects for "the CPU at hand" to machines with the same CPU only: ccache knows
        -march=native by its name.
        """
        if "SCCACHE_SERVER_UDS" in environment:
            raise UsageError(
                "the build may compile for the CPU of this machine (-march=native), and sccache "
                "would mix its objects with those of other CPUs",
                hints=["--cache ccache", "or switch -march=native off in the project"],
            )
        sign = digest([cpu.microarchitecture, cpu.features])[:12]
        own = environment.get("CCACHE_NAMESPACE", "")
        environment["CCACHE_NAMESPACE"] = f"{own}-cpu-{sign}".lstrip("-")

    def remarks(self) -> Iterator[str]:
        """Yield what the user should know before the build."""
        if self._problem:
            yield f"the checkpoint is only read: {self._problem}"
        if self.shard:
            return
        of, missing = self._notes.missing()
        if missing:
            shards = ", ".join(_ranges(missing))
            yield f"shards of {of} that have not ended: {shards}; what they lack is compiled here"

    def share(self, edges: Sequence[Edge], target: str) -> tuple[str, ...]:
        """Return the outputs that this shard compiles."""
        assert self.shard is not None
        timings = self._notes.timings()
        pieces = compile_pieces(edges, list(edges_below(edges, target)), timings)
        shares = self._notes.shares(pieces, self.shard.of)
        return shares[self.shard.number - 1]

    def ended(self, steps: int) -> None:
        """Note that the shard has ended."""
        if self.shard:
            self._notes.ended(self.shard, steps)

    def close(self, trace: Trace | None) -> Iterator[str]:
        """Keep what was measured, and yield what the user should know."""
        if trace:
            self._notes.keep(trace, self._build)
            yield from self._losses(trace)
        if deleted := self._checkpoint.prune():
            yield f"{deleted} old objects of the checkpoint were deleted: it had grown too large"

    def _losses(self, trace: Trace) -> Iterator[str]:
        """Yield that objects did not reach the checkpoint. No compile fails then."""
        if self._before is None or self._checkpoint.changed_at() != self._before:
            return
        here = build_folder(str(self._build))  # and not one of CMake's own tests
        compiled = sum(
            record.step.role in CACHED and record.step.directory == here and not record.killed
            for record in trace.steps
        )
        if compiled:
            yield f"the checkpoint got none of the {compiled} objects that were compiled here"


def names_native(build: Path) -> bool:
    """Return whether commands of a build folder compile for the CPU at hand; if in doubt, yes."""
    try:
        texts = [path.read_bytes() for path in build.rglob("*.ninja")]
    except OSError:
        return True
    return not texts or any(map(_NATIVE.search, texts))


def identity_of(task: Task, environment: Mapping[str, str]) -> BuildIdentity:
    """Return what the objects of a build depend on besides the sources."""
    subject, plan = task.subject, task.plan
    toolkit, python = subject.toolkit, subject.toolbox.python
    lasting = lasting_json(plan)
    settings = {**lasting["environment"], **lasting["cmake"]}
    options = {name: value for name, value in settings.items() if name not in NUMBER_OF_JOBS}
    found = {tool.name: tool.version for tool in subject.toolbox.tools if tool.version}
    parts = {
        "project": task.tree.name,
        "variant": plan.name,
        "platform": str(plan.platform),
        "C++ compiler": found.get("cxx"),
        "C compiler": found.get("cc"),
        "CUDA": toolkit.version if toolkit and plan.variant.backend is Backend.CUDA else None,
        "Python": python.version,
        "torch": python.packages.get("torch"),
        "options": digest(options)[:12],
        **{name: environment.get(name) for name in (*FLAGS, *READ_BY_COMPILERS)},
    }
    return BuildIdentity(parts={name: str(value) for name, value in parts.items() if value})
