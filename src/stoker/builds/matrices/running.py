"""Makes the wheels of a matrix, one job after the other.

One failure does not stop the rest. What is finished is in matrix.json after each variant, so that a
matrix that was killed continues where it stopped.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from stoker import __version__
from stoker.builds.building import Built, Watcher, build, check_writable
from stoker.builds.digests import file_digest
from stoker.builds.matrices.matrix import MatrixEnd, MatrixJob, MatrixManifest, MatrixResult
from stoker.builds.matrices.matrix_plan import MANIFEST, Planned, read_manifest
from stoker.builds.matrices.slims import slim_one
from stoker.govern.client.session import RunOptions
from stoker.govern.history.trace import read_trace
from stoker.model.build import BuildRequest, StageEnd
from stoker.model.errors import StokerError, Terminated, UnfinishedError, UsageError
from stoker.model.events import AnyEvent, Overview
from stoker.model.govern import Role
from stoker.model.secrets import redact
from stoker.model.value import Value, indented_json
from stoker.outside import locks
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_of_process, write_whole
from stoker.settings.declared import BUILD_SETTINGS
from stoker.settings.toml import read_file
from stoker.settings.user_options import UserOptions

_LOCK = ".stoker-matrix.lock"
_ASIDE = ".stoker-matrix-"
_COMPILES = (Role.C, Role.CXX, Role.CUDA, Role.FORTRAN, Role.RUST, Role.REMOTE)

Governing = Callable[[UserOptions], RunOptions]


class MatrixWatcher(Value, frozen=True, kw_only=True):
    """Receives the start and the end of each job, with the error of one that failed. ``build``
    receives what happens during a build.
    """

    begin: Callable[[int, int, MatrixJob], None]
    end: Callable[[MatrixResult, StokerError | None], None]
    build: Watcher


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
                content = indented_json(manifest) + b"\n"
                write_whole(out / MANIFEST, content)
                results.append(result)
    return replace(manifest, results=tuple(results))


def check_made(results: Sequence[MatrixResult], out: Path) -> None:
    """Raise an error that names the variants that failed."""
    failed = [result for result in results if not result.ok]
    if not failed:
        return
    names = ", ".join(result.job.title for result in failed)
    raise StokerError(
        f"{len(failed)} of {len(results)} variants failed: {names}",
        hints=[
            *([f"the other wheels are in {out}"] if len(failed) < len(results) else []),
            f"the errors are above and in {out / MANIFEST}",
            f"the same command tries them again; only one: --only {failed[0].job.name}",
        ],
    )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    lock = out / _LOCK
    hint = "wait for it, or choose another folder with --out"
    with locks.held(lock, busy=f"another matrix is at work in {out}", hint=hint):
        try:
            yield
        finally:
            with suppress(OSError):
                remove_file(lock)


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
        settings = {name: chosen.value(name) for name in BUILD_SETTINGS}
        request = BuildRequest(source=job.given).given(
            settings | {"out": str(self._out), "label": job.label}
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
    variables = built.record.environment.items()
    launchers = [value for name, value in variables if name.endswith("_COMPILER_LAUNCHER")]
    if not hits and not any("cache" in word for word in launchers):
        return None, None
    ran = 0
    steps = Path(built.folder) / "steps.json"
    with suppress(OSError, UsageError):  # nothing was compiled
        trace = read_trace(steps.read_bytes(), steps.name)
        ran = sum(record.step.role in _COMPILES and not record.killed for record in trace.steps)
    return hits, (hits or 0) + ran


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
