"""`stoker build`: from whatever names a source to a checked wheel, and a record of how."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker import __version__
from stoker.build.acquire.store import acquired
from stoker.build.run_folder import RunFolder
from stoker.build.stages import Echo, StageError, Stages, Tell
from stoker.build.work import Work, held, in_tree_folder, locked, work_folder
from stoker.flows.diagnosing import excerpt
from stoker.flows.governed import RunOptions, Session, Show, session
from stoker.flows.in_memory import Growing, growing, placed
from stoker.flows.planning import survey
from stoker.flows.repeating import Recorded
from stoker.flows.simulating import find_trace
from stoker.flows.staging import Staging
from stoker.govern.trace import write_trace
from stoker.model.build import BuildRecord, BuildRequest
from stoker.model.errors import StorageError, UsageError
from stoker.model.events import AnyEvent
from stoker.model.plan import Plan
from stoker.model.secrets import redacted, without_login
from stoker.model.source import SourceKind, SourceTree
from stoker.model.value import Value
from stoker.outside import process
from stoker.plan.estimate import estimate
from stoker.plan.planning import make_plan
from stoker.plan.record import plan_json, without_secrets
from stoker.plan.subject import Subject
from stoker.settings.declared import CommandLine
from stoker.source.git_state import read_git_state


class Watcher(Value, frozen=True, kw_only=True):
    """Whoever looks on: at events, at stages that have ended, at remarks, at all output."""

    show: Show
    tell: Tell
    say: Callable[[str], None]
    echo: Echo | None = None
    shell_on_failure: bool = False


class Built(Value, frozen=True, kw_only=True):
    record: BuildRecord
    folder: str  # of the run


def build(
    asked: CommandLine,
    request: BuildRequest,
    options: RunOptions,
    watcher: Watcher,
    *,
    recorded: Recorded | None = None,
) -> Built:
    """``recorded``: a build that is to be repeated, whatever this machine would have chosen."""
    check_writable(Path(request.out))
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
        subject = survey(replace(asked, options={**asked.options, "source": source.path}))
        plan = make_plan(subject, estimate(subject))
        if recorded:
            plan = _repeated(subject, plan, recorded, watcher)
        work = stack.enter_context(held(_work_folder(subject)))
        folder = stack.enter_context(RunFolder(f"{_tree(subject).name}-{subject.name}"))
        case = _Case(asked, request, watcher, subject, plan, work, folder)
        watcher.say(f"{case.title}; run folder {folder.path}")
        where = growing(work, plan, in_ram=request.in_ram)
        governed = stack.enter_context(
            session(
                options,
                what=f"stoker build {folder.path.name}",
                show=case.show,
                folder=where.folder,
                growth=where.growth,
            )
        )
        return case.build(governed, where)


def _repeated(subject: Subject, plan: Plan, recorded: Recorded, watcher: Watcher) -> Plan:
    repeated, differences = recorded.applied(subject, plan)
    for line in differences:
        watcher.say(line)
    return repeated


def _tree(subject: Subject) -> SourceTree:
    assert subject.tree is not None  # a source was named
    return subject.tree


def _work_folder(subject: Subject) -> Path:
    tree, python = _tree(subject), subject.toolbox.python
    return work_folder(
        Path(tree.path),
        name=tree.name,
        variant=subject.name,
        python=f"{python.executable} {python.version}",
    )


def check_writable(out: Path) -> None:
    """Now, not after an hour."""
    nearest = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        why = "we may not write there" if nearest.is_dir() else f"{nearest} is not a folder"
        raise StorageError(f"cannot write in {out}: {why}", hints=["another folder: --out DIR"])


class _Case:
    """A build with everything that it is about."""

    def __init__(
        self,
        asked: CommandLine,
        request: BuildRequest,
        watcher: Watcher,
        subject: Subject,
        plan: Plan,
        work: Work,
        folder: RunFolder,
    ):
        tree = _tree(subject)
        self._asked = asked
        self._request = request
        self._watcher = watcher
        self._subject = subject
        self._plan = plan
        self._work = work
        self._folder = folder
        self._git = read_git_state(Path(tree.path))
        self.title = f"{tree.name} {tree.version or ''}".strip() + f" for {plan.name}"

    def show(self, event: AnyEvent) -> None:
        self._folder.keep(event)
        self._watcher.show(event)

    def build(self, governed: Session, where: Growing) -> Built:
        watcher = self._watcher
        if self._request.fresh:
            self._work.start_over()
        stages = Stages(
            self._work, self._folder, tell=watcher.tell, echo=watcher.echo, excerpt=excerpt
        )
        staging = Staging(
            subject=self._subject,
            plan=self._plan,
            request=self._request,
            git=self._git,
            work=self._work,
            stages=stages,
            governed=governed,
        )
        record = self._record(staging)
        self._folder.write(record)
        outputs: tuple[Path, ...] = ()
        status = 1
        try:
            with _alone_in(staging):
                if self._request.fresh:
                    staging.start_over()
                with placed(staging.way.build, self._work, where, governed):
                    outputs = staging.run()
            status = 0
        except StageError:
            if watcher.shell_on_failure:
                self._shell(staging)
            raise
        finally:
            record = replace(
                record,
                stages=tuple(stages.results),
                outputs=tuple(map(str, outputs)),
                summary=governed.finish(status),
            )
            self._complete(record)
        return Built(record=record, folder=str(self._folder.path))

    def _record(self, staging: Staging) -> BuildRecord:
        plan = without_secrets(self._plan)
        page = msgspec.json.format(msgspec.json.encode(plan_json(plan)))
        self._folder.attach("plan.json", page)
        tools = self._subject.toolbox.tools
        return BuildRecord(
            stoker=__version__,
            began=time.time(),
            request=self._request,
            options=redacted(self._asked.options),
            features=self._asked.features,
            defines=redacted(self._asked.defines),
            tree=staging.tree.path,
            work=str(self._work.path),
            plan=plan,
            environment=redacted(staging.environment),
            tools={tool.name: f"{tool.version} {tool.path}" for tool in tools if tool.version},
            git=self._git,
        )

    def _complete(self, record: BuildRecord) -> None:
        """A disk that is full now must not hide why the build failed, nor that it did not."""
        try:
            self._folder.write(record)
            self._attach_steps(record)
        except StorageError as error:
            self._watcher.say(f"the record is not complete: {error}")

    def _attach_steps(self, record: BuildRecord) -> None:
        """Add the steps that the governor measured to the run folder, if there are any."""
        summary = record.summary
        if summary is not None and summary.run is not None:
            with suppress(UsageError):
                self._folder.attach("steps.json", write_trace(find_trace(str(summary.run))))

    def _shell(self, staging: Staging) -> None:
        shell = os.environ.get("SHELL", "/bin/sh")
        self._watcher.say(f"a shell as the stage had it, in {staging.folder}; `exit` ends it")
        process.start([shell], env=staging.environment, cwd=staging.folder).wait()


def _alone_in(staging: Staging) -> AbstractContextManager[None]:
    """A tree that is built in place serves one build at a time, of whatever variant."""
    if not staging.way.in_tree:
        return nullcontext()
    return locked(in_tree_folder(staging.way.tree))
