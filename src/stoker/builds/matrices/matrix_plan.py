"""Plans the jobs of a matrix: every variant, before the first one is made."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec.structs import replace

from stoker import __version__
from stoker.builds.acquire.kept_sources import acquired
from stoker.builds.matrices.decisions import (
    build_sharing,
    cache_order,
    distinct_labels,
    matrix_label,
    names_of_one_variant,
)
from stoker.builds.matrices.matrix import FORMAT, MatrixEnd, MatrixJob, MatrixManifest, WheelFrom
from stoker.builds.matrices.slims import Slim, earlier_seconds, plan_slim
from stoker.machine.system import read_machine
from stoker.model.errors import StokerError, UsageError
from stoker.model.setting import OriginKind
from stoker.model.value import Value
from stoker.outside.files import read_json
from stoker.outside.folders import current_folder
from stoker.plan.survey import Surveyor, chosen_variant, plan_of
from stoker.settings.declared import CommandLine
from stoker.settings.toml import SettingsFile, find_file, read_file, variant_names
from stoker.settings.user_options import UserOptions, read_user_options
from stoker.wheel.zip.revision import new_version

MANIFEST = "matrix.json"


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
    done = {item.job.key: item for item in told_apart}
    for item in told_apart:  # a slimming takes as long as the last one; builds have records
        result = before.result(item.job)
        if item.slim and result and result.end is MatrixEnd.DONE:
            timed = replace(item.job, seconds=earlier_seconds(result))
            done[item.job.key] = replace(item, job=timed)
    return tuple(done[job.key] for job in cache_order([item.job for item in told_apart]))


class _Planner:
    """Plans the jobs of one file. Each source is fetched once, and the machine is read once."""

    def __init__(self, asked: CommandLine, stack: ExitStack):
        self._asked = asked
        self._stack = stack
        self._trees: dict[str, str] = {}
        self._surveyor = Surveyor()

    def chosen(self, name: str, file: SettingsFile) -> UserOptions:
        return read_user_options(self._request(name, None, file))

    def pythons(
        self, name: str, file: SettingsFile, asked: Sequence[str]
    ) -> tuple[str | None, ...]:
        """Return the versions that are asked for, by the command line, the variable or the file."""
        chosen = self.chosen(name, file)
        found = chosen.values.get("python")
        wheel = chosen.text("wheel") or ""
        if chosen.text("from") == WheelFrom.SLIM and "==" not in wheel:
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
        if given not in self._trees:
            source = self._stack.enter_context(acquired(given, say=lambda _: None))
            self._trees[given] = source.path
        tree = self._trees[given]
        subject = self._surveyor.survey(replace(asked, options={**asked.options, "source": tree}))
        planned = plan_of(subject)
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


def read_manifest(out: Path) -> MatrixManifest:
    """Return the manifest of a folder; an empty one if there is none that this stoker can read."""
    found = read_json(out / MANIFEST, MatrixManifest)
    return found if found and found.format == FORMAT else MatrixManifest(stoker=__version__)
