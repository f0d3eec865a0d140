"""`stoker matrix`: every variant of stoker.toml across Python versions, built or slimmed.

One failure does not stop the rest. What is finished is in matrix.json after each variant, so that
a matrix that was killed continues where it stopped.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker import __version__
from stoker.builds.acquire.store import acquired
from stoker.builds.building import Built, Watcher, build, check_writable
from stoker.builds.graph import file_digest
from stoker.builds.matrix_jobs import (
    FORMAT,
    MatrixEnd,
    MatrixJob,
    MatrixManifest,
    MatrixResult,
    WheelFrom,
    build_sharing,
    cache_order,
    distinct_labels,
    matrix_label,
    names_of_one_variant,
)
from stoker.builds.matrix_slims import Slim, earlier_seconds, plan_slim, slim_one
from stoker.govern.session import RunOptions
from stoker.govern.trace import read_trace
from stoker.machine.system import read_machine
from stoker.model.build import BuildRequest, Isolation, StageEnd
from stoker.model.errors import StokerError, Terminated, UnfinishedError, UsageError
from stoker.model.events import AnyEvent, Overview
from stoker.model.govern import Role
from stoker.model.plan import OriginKind
from stoker.model.secrets import redact
from stoker.model.value import Value
from stoker.outside import locks
from stoker.outside.files import folder_of_process, read_json, write_whole
from stoker.outside.folders import current_folder
from stoker.plan.planning import make_plan
from stoker.plan.survey import chosen_variant, estimated, survey
from stoker.settings.declared import CommandLine
from stoker.settings.toml import SettingsFile, find_file, read_file, variant_names
from stoker.settings.user_options import UserOptions, read_user_options
from stoker.wheel.revision import new_version

MANIFEST = "matrix.json"
_LOCK = ".stoker-matrix.lock"
_ASIDE = ".stoker-matrix-"
_COMPILES = (Role.C, Role.CXX, Role.CUDA, Role.FORTRAN, Role.RUST, Role.REMOTE)

Governing = Callable[[UserOptions], RunOptions]


class MatrixWanted(Value, frozen=True, kw_only=True):
    """What the command line asks for. ``pythons`` replace those of the file."""

    asked: CommandLine
    out: Path
    only: str = ""
    pythons: tuple[str, ...] = ()


class Planned(Value, frozen=True, kw_only=True):
    """A job, and how to do it: a build, or a slimming if ``slim`` is given."""

    job: MatrixJob
    asked: CommandLine
    chosen: UserOptions
    slim: Slim | None = None
    apart: str = ""  # its name, if the file has the same variant with other options


class MatrixWatcher(Value, frozen=True, kw_only=True):
    """Receives the start and the end of each job, with the error of one that failed. ``build``
    receives what happens during a build.
    """

    begin: Callable[[int, int, MatrixJob], None]
    end: Callable[[MatrixResult, StokerError | None], None]
    build: Watcher


# -- planning --------------------------------------------------------------------------------------


def plan_matrix(wanted: MatrixWanted) -> tuple[Planned, ...]:
    """Return the jobs in the order in which they are done.

    Every variant is planned before the first one is made, so that one that cannot work is refused
    at once.
    """
    path = Path(wanted.asked.file) if wanted.asked.file else find_file(current_folder())
    names = variant_names(path, wanted.only)
    assert path is not None  # variant_names refuses it
    file = read_file(path)
    before = read_manifest(wanted.out)
    with ExitStack() as stack:
        planner = _Planner(wanted.asked, stack)
        planned = [
            planner.plan(name, python, file)
            for name in names
            for python in planner.pythons(name, file, wanted.pythons)
        ]
        told_apart = _told_apart(planned, planner.others(names, file))
    done = {item.job.key: _with_earlier(item, before) for item in told_apart}
    return tuple(done[job.key] for job in cache_order([item.job for item in told_apart]))


class _Planner:
    """Plans the jobs of one file; each source is fetched once."""

    def __init__(self, asked: CommandLine, stack: ExitStack):
        self._asked = asked
        self._stack = stack
        self._trees: dict[str, str] = {}

    def chosen(self, name: str, file: SettingsFile) -> UserOptions:
        return read_user_options(self._request(name, None, file))

    def pythons(
        self, name: str, file: SettingsFile, asked: Sequence[str]
    ) -> tuple[str | None, ...]:
        """Return the versions that are asked for, by the command line, the variable or the file."""
        chosen = self.chosen(name, file)
        found = chosen.values.get("python")
        if _is_one_wheel(chosen):
            return (None,)  # a wheel is for the Python that it is for
        if asked or found is None:
            return tuple(dict.fromkeys(asked)) or (None,)
        if found.origin.kind is not OriginKind.FILE:
            return (found.value,)
        if _names_python(chosen):
            return (None,)  # settings of the file fill only what the words leave open
        listed = file.variants[name].pythons or file.defaults.pythons
        return tuple(dict.fromkeys(python.value for python in listed))

    def plan(self, name: str, python: str | None, file: SettingsFile) -> Planned:
        asked = self._request(name, python, file)
        chosen = read_user_options(asked)
        try:
            if WheelFrom(str(chosen.value("from"))) is WheelFrom.SLIM:
                job, slim = plan_slim(name, python, chosen)
                return Planned(job=job, asked=asked, chosen=chosen, slim=slim)
            return Planned(job=self._build(name, python, asked, chosen), asked=asked, chosen=chosen)
        except UsageError as error:
            where = error.where or file.variants[name].where
            message = f"variant '{name}': {error.message}"
            raise UsageError(message, hints=error.hints, where=where) from error

    def others(self, names: Sequence[str], file: SettingsFile) -> Iterator[Planned]:
        """Yield the other variants of the file, unless they are wrong: they are not asked for."""
        for name in file.variants:
            if name not in names:
                with suppress(StokerError):
                    yield self.plan(name, None, file)

    def _request(self, name: str, python: str | None, file: SettingsFile) -> CommandLine:
        options = {**self._asked.options, "variant": name}
        if python:
            options["python"] = python
        return replace(self._asked, options=options, file=file.path)

    def _build(
        self, name: str, python: str | None, asked: CommandLine, chosen: UserOptions
    ) -> MatrixJob:
        given = chosen.text("source") or "."
        tree = self._tree(given)
        subject = survey(replace(asked, options={**asked.options, "source": tree}))
        planned = make_plan(subject, estimated(subject))
        return MatrixJob(
            name=name,
            variant=planned.name,
            label=matrix_label(planned.variant),
            made_from=WheelFrom.BUILD,
            given=given,
            python=python or planned.variant.python,
            sharing=build_sharing(subject, given),
            seconds=planned.estimate.wall_s,
            wheel_bytes=planned.estimate.wheel_bytes,
        )

    def _tree(self, given: str) -> str:
        if given not in self._trees:
            source = self._stack.enter_context(acquired(given, say=lambda _: None))
            self._trees[given] = source.path
        return self._trees[given]


def _is_one_wheel(chosen: UserOptions) -> bool:
    wheel = chosen.text("wheel") or ""
    return chosen.text("from") == WheelFrom.SLIM and "==" not in wheel


def _names_python(chosen: UserOptions) -> bool:
    """Tell whether the words of the variant name a Python."""
    with suppress(UsageError):  # the plan of this variant reports it
        origin = chosen_variant(chosen, read_machine(()))[1].get("python")
        return origin is not None and origin.kind is OriginKind.VARIANT
    return False


def _told_apart(planned: Sequence[Planned], others: Iterable[Planned]) -> list[Planned]:
    """Return the jobs with labels and folders of their own. All variants of the file count, also
    those that --only leaves out, so that a wheel has the same name in every run.
    """
    all_of_file = [*others, *planned]
    labels = distinct_labels({item.job.name: _label(item) for item in all_of_file})
    alike = names_of_one_variant(
        {item.job.name: (item.job.given, item.job.label) for item in all_of_file}
    )
    return [
        replace(
            item,
            job=replace(item.job, label=labels[item.job.name]),
            apart=item.job.name if item.job.name in alike else "",
        )
        for item in planned
    ]


def _label(item: Planned) -> tuple[str, str]:
    """Return what a job makes, and the label that is asked for."""
    text = str(item.chosen.text("label") or "auto")
    if text != "auto":
        new_version("0", text)  # raises an error if it is no label
    return item.job.given, item.job.label if text == "auto" else text


def _with_earlier(item: Planned, before: MatrixManifest) -> Planned:
    """Return the job with the time of an earlier slimming. Builds have their own records."""
    result = before.result(item.job)
    if item.slim and result and result.end is MatrixEnd.DONE:
        return replace(item, job=replace(item.job, seconds=earlier_seconds(result)))
    return item


# -- making ----------------------------------------------------------------------------------------


def run_matrix(
    planned: Sequence[Planned], out: Path, governing: Governing, watcher: MatrixWatcher
) -> MatrixManifest:
    """Make all wheels, and return the results of these jobs."""
    check_writable(out)
    with _alone(out), folder_of_process(out, _ASIDE) as aside:
        manifest = _without_removed(read_manifest(out), planned)
        results = []
        for number, item in enumerate(planned, start=1):
            watcher.begin(number, len(planned), item.job)
            running = _Running(item, out, aside, manifest, watcher, f"{number} of {len(planned)}")
            for result in running.results(governing):
                manifest = _with_result(manifest, result)
                _write(out, manifest)
                results.append(result)
    return replace(manifest, results=tuple(results))


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    lock = out / _LOCK
    with ExitStack() as stack:
        try:
            stack.enter_context(locks.held(lock))
        except locks.BusyError:
            hints = ["wait for it, or choose another folder with --out"]
            raise StokerError(f"another matrix is at work in {out}", hints=hints) from None
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()


class _Running:
    """One job in progress."""

    def __init__(
        self,
        item: Planned,
        out: Path,
        aside: Path,
        manifest: MatrixManifest,
        watcher: MatrixWatcher,
        place: str,
    ):
        self._item = item
        self._out = out
        self._aside = aside
        self._manifest = manifest
        self._watcher = watcher
        self._place = place
        self._began = time.monotonic()

    def results(self, governing: Governing) -> Iterator[MatrixResult]:
        """Yield the result, also of an interrupted job, before the interrupt is passed on."""
        error = None
        try:
            result = self._slim() if self._item.slim else self._build(governing)
        except (KeyboardInterrupt, Terminated, UnfinishedError):
            result = self._failed(MatrixEnd.INTERRUPTED, "interrupted")
            yield result
            self._watcher.end(result, None)
            raise
        except StokerError as failure:
            error = failure
            result = self._failed(MatrixEnd.FAILED, redact(str(failure)))
        result = replace(result, wall_s=time.monotonic() - self._began)
        self._watcher.end(result, error)
        yield result

    def _failed(self, end: MatrixEnd, error: str) -> MatrixResult:
        seconds = time.monotonic() - self._began
        return MatrixResult(job=self._item.job, end=end, wall_s=seconds, error=error)

    def _slim(self) -> MatrixResult:
        assert self._item.slim is not None
        return slim_one(
            self._item.job,
            self._item.slim,
            self._manifest.result(self._item.job),
            out=self._out,
            aside=self._aside,
            say=self._watcher.build.say,
        )

    def _build(self, governing: Governing) -> MatrixResult:
        chosen, job = self._item.chosen, self._item.job
        isolation = chosen.value("isolation")
        request = BuildRequest(
            source=job.given,
            out=str(self._out),
            label=job.label,
            mode=str(chosen.value("mode")),
            isolation=Isolation(str(isolation)) if isolation else None,
        )
        watcher = replace(self._watcher.build, show=self._show)
        built = build(self._item.asked, request, governing(chosen), watcher, apart=self._item.apart)
        return _built_result(job, built)

    def _show(self, event: AnyEvent) -> None:
        if isinstance(event, Overview):
            stage = f"{self._place}: {self._item.job.name} {event.stage}".rstrip()
            event = replace(event, stage=stage)
        self._watcher.build.show(event)


def _built_result(job: MatrixJob, built: Built) -> MatrixResult:
    record = built.record
    skipped = all(stage.end is StageEnd.SKIPPED for stage in record.stages)
    hits, compiles = _compiles(built)
    wheel = next((path for path in map(Path, record.outputs) if path.suffix == ".whl"), None)
    return MatrixResult(
        job=job,
        end=MatrixEnd.UNCHANGED if skipped else MatrixEnd.DONE,
        wall_s=0.0,
        wheel=wheel.name if wheel else None,
        sha256=file_digest(wheel) if wheel else None,
        size_bytes=record.wheel_bytes,
        compiles=compiles,
        cache_hits=hits,
        verified=wheel is not None,  # a build whose wheel has errors fails
        folder=built.folder,
    )


def _compiles(built: Built) -> tuple[int | None, int | None]:
    """Return the hits of the cache, and all compiles. A hit never becomes a step."""
    hits = built.record.summary.cache_hits if built.record.summary else None
    steps = Path(built.folder) / "steps.json"
    if not hits and not any("cache" in word for word in _launchers(built)):
        return None, None
    ran = 0
    with suppress(OSError, UsageError):  # nothing was compiled
        trace = read_trace(steps.read_bytes(), steps.name)
        ran = sum(record.step.role in _COMPILES for record in trace.steps)
    return hits, (hits or 0) + ran


def _launchers(built: Built) -> list[str]:
    found = built.record.environment.items()
    return [value for name, value in found if name.endswith("_COMPILER_LAUNCHER")]


# -- the manifest ----------------------------------------------------------------------------------


def read_manifest(out: Path) -> MatrixManifest:
    """Return the manifest of a folder; an empty one if there is none that this stoker can read."""
    found = read_json(out / MANIFEST, MatrixManifest)
    return found if found and found.format == FORMAT else MatrixManifest(stoker=__version__)


def _without_removed(manifest: MatrixManifest, planned: Sequence[Planned]) -> MatrixManifest:
    """Return the manifest without variants that are no longer in the file."""
    file = read_file(Path(planned[0].asked.file or "")) if planned else None
    kept = tuple(r for r in manifest.results if file and r.job.name in file.variants)
    return replace(manifest, stoker=__version__, results=kept)


def _with_result(manifest: MatrixManifest, result: MatrixResult) -> MatrixManifest:
    """Return the manifest with a result. That of an interrupted job does not replace a wheel of an
    earlier run.
    """
    earlier = manifest.result(result.job)
    if result.end is MatrixEnd.INTERRUPTED and earlier and earlier.ok:
        return manifest
    others = (one for one in manifest.results if one.job.key != result.job.key)
    return replace(manifest, results=(*others, result))


def _write(out: Path, manifest: MatrixManifest) -> None:
    write_whole(out / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
