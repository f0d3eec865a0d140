"""`stoker build`: from a source to a checked wheel and the record of the build."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from stoker import __version__
from stoker.ask.asking import ask_for_build
from stoker.ask.values import Asked
from stoker.builds.acquire.kept_sources import acquired
from stoker.builds.context import BuildContext
from stoker.builds.repeating import RecordedBuild
from stoker.builds.stages import Echo, StageError, Stages, Tell
from stoker.builds.staging import run_stages, start_over
from stoker.builds.work import (
    Growing,
    Task,
    growing,
    held_work,
    in_tree_folder,
    locked,
    placed,
    work_folder,
)
from stoker.cache.run_cache import run_cache
from stoker.govern.client.broadcast import Broadcast
from stoker.govern.client.opening import session
from stoker.govern.client.session import RunOptions, Session, Show
from stoker.govern.history.past_runs import trace_of_run
from stoker.govern.history.trace import write_trace
from stoker.model.build import BuildRecord, BuildRequest, StageResult
from stoker.model.caching import Chain
from stoker.model.errors import StokerError, StorageError, UnfinishedError, UsageError
from stoker.model.events import AnyEvent, Overview, StageChanges
from stoker.model.govern import Trace
from stoker.model.plan import Plan
from stoker.model.runs import build_command
from stoker.model.secrets import redact, redacted, without_login
from stoker.model.source import SourceKind
from stoker.model.terms import TimeLimit
from stoker.model.value import Value, duration, indented_json
from stoker.outside import process
from stoker.outside.files import folder_problem
from stoker.plan.records import plan_json, without_secrets
from stoker.plan.run_folder import RunFolder, run_name
from stoker.plan.subject import Subject
from stoker.plan.survey import plan_of, survey
from stoker.settings.declared import CommandLine
from stoker.source.git_state import read_git_state
from stoker.wheel.zip.revision import new_version

if TYPE_CHECKING:
    from stoker.builds.jobs.job import FarmPart, Job


class Built(Value, frozen=True, kw_only=True):
    """A build that has ended, and its run folder."""

    record: BuildRecord
    folder: str


class Watcher(Value, frozen=True, kw_only=True):
    """Receives what happens during a build: the governor's events (``show``), the start and end of
    each stage (``tell``), remarks (``say``), all output (``echo``), and at the end the record,
    also of a build that failed or was interrupted (``end``).
    """

    show: Show
    tell: Tell
    say: Callable[[str], None]
    end: Callable[[Built], None]
    echo: Echo | None = None
    shell_on_failure: bool = False


def build(
    asked: CommandLine,
    request: BuildRequest,
    options: RunOptions,
    watcher: Watcher,
    *,
    recorded: RecordedBuild | None = None,
    apart: str = "",
    part: "FarmPart | None" = None,
) -> Built:
    """Build a source and return the record.

    One build at a time works on a tree and variant; a second one is refused. A build that ended
    early, for whatever reason, is resumed by the next call with the same source and variant.
    ``recorded``: the build to repeat, with its settings instead of those for this machine.
    ``apart`` keeps the folders of builds apart that differ in more than the variant.
    ``part``: the checkpoint that this job shares with others, and what it does of the build.
    """
    check_writable(Path(request.out))
    if request.label != "auto":
        new_version("0", request.label)  # refuses an invalid label
    with ExitStack() as stack:
        source = stack.enter_context(acquired(request.source, tag=request.tag, say=watcher.say))
        for note in source.notes:
            watcher.say(note)
        is_folder = source.kind is SourceKind.FOLDER
        request = replace(
            request, source=source.path if is_folder else without_login(request.source)
        )
        if recorded:
            asked = replace(asked, options={**asked.options, "variant": recorded.variant})
        said = replace(asked, options={**asked.options, "source": source.path})
        subject, answer = _asked_subject(said, request, watcher, repeats=recorded is not None)
        plan = _repeated_plan(subject, recorded, watcher)
        tree, python = subject.tree, subject.toolbox.python
        assert tree is not None  # the options name the source
        place = work_folder(
            Path(tree.path),
            name=tree.name,
            variant=f"{subject.name}-{apart}" if apart else subject.name,
            python=f"{python.executable} {python.version}",
        )
        task = Task(
            subject=subject,
            plan=plan,
            request=request,
            git=read_git_state(Path(tree.path)),
            work=stack.enter_context(held_work(place)),
        )
        folder = stack.enter_context(RunFolder(run_name(tree.name, subject.name)))
        if answer:
            folder.attach("asked.json", msgspec.json.encode(answer))
        cache = run_cache(part.checkpoint.wanted(options.chain) if part else options.chain)
        job = _job(part, cache.chain, task, watcher) if part else None
        what = build_command(folder.path.name)
        broadcast = stack.enter_context(Broadcast(what, source.path))
        watcher = replace(watcher, show=broadcast.through(watcher.show))
        run = _BuildRun(asked, task, watcher, folder, options.time_limit, job)
        title = f"{tree.name} {tree.version or ''}".strip()
        watcher.say(f"{title} for {plan.name}; run folder {folder.path}")
        where = growing(task)
        governed = stack.enter_context(
            session(
                options,
                cache,
                what=what,
                show=run.show,
                folder=where.folder,
                growth=where.growth,
                targets=None if request.accept_targets else plan.targets,
            )
        )
        built = run.build(governed, where)
        broadcast.end(built.record.summary)
        return built


def _asked_subject(
    said: CommandLine, request: BuildRequest, watcher: Watcher, *, repeats: bool
) -> tuple[Subject, Asked | None]:
    """Return what is built, and what its own build answered if it was asked. One that is repeated
    is not asked again.
    """
    subject = survey(said)
    if request.accept_targets:
        subject = replace(subject, keep_targets=True)
    wish = False if request.accept_targets and request.ask is None else request.ask
    answer = None if repeats else ask_for_build(subject, wish, watcher.say)
    return (answer.subject, answer.asked) if answer else (subject, None)


def _repeated_plan(subject: Subject, recorded: RecordedBuild | None, watcher: Watcher) -> Plan:
    plan = plan_of(subject)
    if recorded:
        plan, differences = recorded.applied(subject, plan)
        for line in differences:
            watcher.say(line)
    return plan


def _job(part: "FarmPart", chain: Chain, task: Task, watcher: Watcher) -> "Job":
    from stoker.builds.jobs.job import Job, identity_of  # most builds are one job

    part.checkpoint.check(chain)
    job = Job(part, identity_of(task, os.environ))
    for text in job.remarks():
        watcher.say(text)
    return job


def _excerpt(log: Path) -> str:
    from stoker.diagnose.diagnosing import excerpt  # only a stage that failed needs it

    return excerpt(log)


def check_writable(out: Path) -> None:
    """Raise StorageError if the output folder cannot be written, before anything is built."""
    if problem := folder_problem(out):
        raise StorageError(problem, hints=["another folder: --out DIR"])


class _BuildRun:
    """One build: runs its stages under the governor and writes its record."""

    def __init__(
        self,
        asked: CommandLine,
        task: Task,
        watcher: Watcher,
        folder: RunFolder,
        limit: TimeLimit | None,
        job: "Job | None",
    ):
        self._asked = asked
        self._task = task
        self._watcher = watcher
        self._folder = folder
        self._job = job
        self._began = time.monotonic()

        def check_time() -> None:
            if limit and time.monotonic() > limit.ends:
                raise UnfinishedError(f"the {duration(limit.seconds)} of --stop-after are over")

        self._stages = Stages(
            task.work,
            folder,
            tell=self._tell,
            echo=watcher.echo,
            excerpt=_excerpt,
            check_time=check_time,
        )

    def show(self, event: AnyEvent) -> None:
        self._folder.keep(event)
        if isinstance(event, Overview):
            event = replace(event, stage=self._stages.running or "")
        self._watcher.show(event)

    def _tell(self, result: StageResult) -> None:
        self._watcher.tell(result)
        at = time.monotonic() - self._began
        self._watcher.show(
            StageChanges(at=at, stage=result.stage, end=result.end, seconds=result.wall_s)
        )

    def build(self, governed: Session, where: Growing) -> Built:
        task, watcher = self._task, self._watcher
        if task.request.fresh:
            task.work.start_over()
        context = BuildContext(task, self._stages, governed, watcher.say, self._job)
        route = context.route
        record = self._record(context)
        self._folder.write(record)
        outputs: tuple[Path, ...] = ()
        problem: str | None = "interrupted"
        try:
            # Only one build of any variant can use a tree that is built in place.
            with locked(in_tree_folder(route.tree)) if route.in_tree else nullcontext():
                if task.request.fresh:
                    start_over(route.build)
                with placed(route.build, task.work, where, governed):
                    outputs = run_stages(context)
            problem = None
        except StokerError as error:
            problem = str(error)
            if isinstance(error, StageError) and watcher.shell_on_failure:
                folder = context.execution.folder
                told = f"a shell with the environment of the stage, in {folder}"
                watcher.say(f"{told}; `exit` ends it")
                shell = os.environ.get("SHELL", "/bin/sh")
                process.start([shell], env=context.environment, cwd=folder).wait()
            raise
        finally:
            record = replace(
                record,
                stages=tuple(self._stages.results),
                outputs=tuple(map(str, outputs)),
                wheel_bytes=next((path.stat().st_size for path in outputs if path.is_file()), None),
                summary=governed.finish(1 if problem else 0),
                kernels=dict(sorted(governed.kernels.items())),
                error=redact(problem) if problem else None,
            )
            built = self._completed(record)
            watcher.end(built)
        return built

    def _record(self, context: BuildContext) -> BuildRecord:
        task = self._task
        plan = without_secrets(task.plan)
        self._folder.attach("plan.json", indented_json(plan_json(plan)))
        tools = task.subject.toolbox.tools
        return BuildRecord(
            stoker=__version__,
            started=time.time(),
            request=task.request,
            options=redacted(self._asked.options),
            features=self._asked.features,
            defines=redacted(self._asked.defines),
            tree=task.tree.path,
            work=str(task.work.path),
            plan=plan,
            environment=redacted(context.environment),
            tools={tool.name: f"{tool.version} {tool.path}" for tool in tools if tool.version},
            git=task.git,
        )

    def _completed(self, record: BuildRecord) -> Built:
        """Write the record. A full disk must not hide how the build itself ended."""
        say = self._watcher.say
        steps: Trace | None = None
        try:
            if record.summary and record.summary.run is not None:
                with suppress(UsageError):  # the history may have lost the run
                    steps = trace_of_run(str(record.summary.run))
            if steps:
                largest = max(step.peak_bytes for step in steps.steps)
                record = replace(record, largest_step_bytes=largest)
                self._folder.attach("steps.json", write_trace(steps))
            self._folder.write(record)
        except StorageError as error:
            say(f"the record is not complete: {error.in_one_line}")
        try:
            for text in self._job.close(steps) if self._job else ():
                say(text)
        except StorageError as error:
            say(f"the checkpoint is not complete: {error.in_one_line}")
        return Built(record=record, folder=str(self._folder.path))
