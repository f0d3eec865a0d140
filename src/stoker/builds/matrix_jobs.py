"""Jobs of a matrix: their order, labels and results, and how they are shown."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from stoker.knowledge.projects import SlimFigures
from stoker.model.errors import UsageError
from stoker.model.plan import Backend, Quantity, Variant
from stoker.model.value import Value, duration, size
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.plan.grammar import label, parts_beside
from stoker.plan.grammar import name as variant_name
from stoker.plan.subject import Subject

# -- matrix ----------------------------------------------------------------------------------------
# A matrix: the variants of stoker.toml across Python versions, and what became of each.


FORMAT = 1  # of matrix.json


class WheelFrom(StrEnum):
    """What a wheel is made from."""

    BUILD = "build"  # the source
    SLIM = "slim"  # an existing wheel


class MatrixJob(Value, frozen=True, kw_only=True):
    """One wheel to make. ``sharing`` says what its compiles depend on, in levels: two jobs share
    more of a compiler cache, the more of their first levels are equal.
    """

    name: str  # of the table in stoker.toml
    variant: str  # in the words of the grammar
    label: str  # local version of the wheel
    made_from: WheelFrom
    given: str  # the source or the wheel, as the user names it
    python: str | None = None  # None: that of this machine
    sharing: tuple[str, ...] = ()
    seconds: Quantity
    wheel_bytes: Quantity

    @property
    def key(self) -> tuple[str, str | None]:
        """What no two jobs of a matrix share."""
        return self.name, self.python

    @property
    def title(self) -> str:
        return f"{self.name} for Python {self.python}" if self.python else self.name


class MatrixEnd(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"  # an earlier run made the same wheel
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class MatrixResult(Value, frozen=True, kw_only=True):
    """How a job ended. A wheel is in the folder if `stoker verify` found no error in it, or only
    errors that are in the original, too.
    """

    job: MatrixJob
    end: MatrixEnd
    wall_s: float
    wheel: str | None = None  # file name
    sha256: str | None = None
    size_bytes: int | None = None
    before_bytes: int | None = None  # of the wheel that was slimmed
    compiles: int | None = None  # with those that the cache answered
    cache_hits: int | None = None
    verified: bool = False
    original_errors: tuple[str, ...] = ()  # of verify, in the wheel that was slimmed as well
    inputs: str = ""  # digest of everything that a slimmed wheel depends on
    folder: str | None = None  # run folder of a build
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.end in (MatrixEnd.DONE, MatrixEnd.UNCHANGED)


class MatrixManifest(Value, frozen=True, kw_only=True):
    """matrix.json: the results so far, also those of earlier runs for other variants."""

    format: int = FORMAT
    stoker: str
    results: tuple[MatrixResult, ...] = ()

    def result(self, job: MatrixJob) -> MatrixResult | None:
        return next((found for found in self.results if found.job.key == job.key), None)


# -- matrix ----------------------------------------------------------------------------------------
# Decisions about a matrix: the order of its jobs, their labels, and the time of the whole.


# A slimmed wheel has other GPU code, and everything else as in the original.
_SLIM_PARTS = frozenset({"backend", "toolkit", "gpus", "python", "platform"})


class MatrixTime(Value, frozen=True, kw_only=True):
    """``seconds`` of all jobs with figures; ``unknown`` counts the others."""

    seconds: float
    unknown: int


def whole_time(jobs: Iterable[MatrixJob]) -> MatrixTime:
    amounts = [job.seconds.amount for job in jobs]
    known = [amount for amount in amounts if amount is not None]
    return MatrixTime(seconds=sum(known), unknown=len(amounts) - len(known))


def cache_order(jobs: Sequence[MatrixJob]) -> tuple[MatrixJob, ...]:
    """Return the jobs so that those with the most levels of ``sharing`` in common are adjacent.

    What the next job reuses is then still in a cache of limited size. Otherwise the order of the
    file counts: the first variant is made first.
    """
    first: dict[tuple[str, ...], int] = {}
    for index, job in enumerate(jobs):
        for level in range(1, len(job.sharing) + 1):
            first.setdefault(job.sharing[:level], index)

    def place(job: MatrixJob) -> list[int]:
        return [first[job.sharing[:level]] for level in range(1, len(job.sharing) + 1)]

    return tuple(sorted(jobs, key=place))


def build_sharing(subject: Subject, given: str) -> tuple[str, ...]:
    """Return what the compiles of a build depend on, from all of them to the fewest.

    GPU targets change only CUDA compiles; Python changes only its bindings.
    """
    variant = subject.variant
    compilers = " ".join([*subject.compiler, subject.cuda_version or ""])
    flags = variant_name(msgspec.structs.replace(variant, gpus=(), python=None))
    defines = " ".join(sorted(f"{setting.name}={setting.value}" for setting in subject.defines))
    gpus = variant_name(Variant(backend=variant.backend, gpus=variant.gpus))
    return (f"build {given}", compilers, f"{flags} {defines}", gpus, variant.python or "")


def slim_sharing(variant: Variant, given: str) -> tuple[str, ...]:
    """Slims share the wheel that they read, one for each Python."""
    return (f"slim {given}", variant.python or "", variant_name(variant))


def matrix_label(variant: Variant) -> str:
    """Return the local version label. The tags of a wheel say for which Python it is."""
    return label(msgspec.structs.replace(variant, python=None))


def slim_label(variant: Variant) -> str:
    """Return the label of a slimmed wheel: its GPUs, after the CUDA release if that is named."""
    return matrix_label(variant).removeprefix(f"{Backend.CUDA}.")


def check_cuda(variant: Variant, cuda: str | None) -> None:
    """Raise UsageError if a wheel was built with another CUDA release than the variant names."""
    if variant.toolkit and cuda and variant.toolkit != cuda:
        raise UsageError(
            f"the wheel is for CUDA {cuda}, and the variant for {variant.toolkit}",
            hints=["leave the CUDA release out of the variant"],
        )


def completed_label(label: str, *, original: str, cuda: str | None) -> str:
    """Return the label of a slimmed wheel with what the wheel says about itself: its own local
    version, or else the CUDA release that it was built with.
    """
    first = original or (f"cu{cuda.replace('.', '')}" if cuda else "")
    words = [word for word in first.split(".") if word]
    return ".".join([*words, *(word for word in label.split(".") if word not in words)])


def distinct_labels(labels: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return a label for each variant, by name, from pairs of what is made and its label.

    Variants of one project with the same label get their names appended.
    """
    count = Counter(labels.values())
    distinct = {
        variant: (given, text if count[given, text] == 1 else f"{text}.{_label_part(variant)}")
        for variant, (given, text) in labels.items()
    }
    for variant, pair in distinct.items():
        same = [other for other, found in distinct.items() if found == pair]
        if len(same) > 1:
            raise UsageError(
                f"the wheels of {' and '.join(same)} would have the same name",
                hints=[f'give {variant} its own label, such as label = "fleet"'],
            )
    return {variant: text for variant, (_, text) in distinct.items()}


def names_of_one_variant(variants: Mapping[str, tuple[str, str]]) -> frozenset[str]:
    """Return the names whose pair of what is made and its variant is that of another name, too."""
    count = Counter(variants.values())
    return frozenset(name for name, pair in variants.items() if count[pair] > 1)


def _label_part(variant: str) -> str:
    return re.sub(r"[^a-z0-9]+", ".", variant.casefold()).strip(".") or "variant"


def check_slim(variant: Variant) -> None:
    """Raise UsageError for parts of a variant that slimming cannot give."""
    if variant.backend is not Backend.CUDA or not variant.gpus:
        raise UsageError(
            f"'{variant_name(variant)}' names no NVIDIA GPU, so there is no code to keep",
            hints=['for example: variant = "h100", or "sm80+sm90"'],
        )
    if other := parts_beside(variant, _SLIM_PARTS):
        raise UsageError(
            f"slimming a wheel does not change its {' and '.join(other)}",
            hints=['name only GPUs, or build from source: from = "build"'],
        )


def slim_estimate(bytes_before: int | None, figures: SlimFigures, cpus: int) -> Quantity:
    """Estimate a slimming with its verification from the size of the wheel, if that is known."""
    if bytes_before is None:
        return Quantity(amount=None, basis="the size of the wheel is not known yet")
    seconds = figures.cpu_seconds * bytes_before / figures.bytes / min(cpus, figures.cpus)
    return Quantity(amount=seconds, basis=figures.basis)


# -- matrix ----------------------------------------------------------------------------------------
# A matrix on the terminal: the list of what is to be made, and the table of what was made.


_STYLES = {
    MatrixEnd.DONE: "ok",
    MatrixEnd.UNCHANGED: "ok",
    MatrixEnd.FAILED: "error",
    MatrixEnd.INTERRUPTED: "warning",
}


def jobs_page(jobs: Sequence[MatrixJob]) -> Page:
    """Return the jobs in their order, with an estimate for each."""
    table = Listing("name", "Python", "variant", "label", "from", ">time")
    for job in jobs:
        amount = job.seconds.amount
        table.add(
            job.name,
            job.python or "",
            job.variant,
            f"+{job.label}",
            str(job.made_from),
            "unknown" if amount is None else duration(amount),
        )
    return Group(table, Text(whole_line(jobs)))


def whole_line(jobs: Sequence[MatrixJob]) -> str:
    """Return the number of wheels and the estimated time for all of them."""
    time = whole_time(jobs)
    count = f"{len(jobs)} wheel{'s' if len(jobs) != 1 else ''}"
    if time.unknown == len(jobs):
        return f"{count}; the time is unknown"
    known = f"about {duration(time.seconds)}"
    return f"{count}, {known}" + (f"; the time of {time.unknown} is unknown" * bool(time.unknown))


def begin_line(number: int, total: int, job: MatrixJob) -> str:
    how = "slimming" if job.made_from is WheelFrom.SLIM else "building"
    return f"stoker: {number} of {total}: {how} {job.title} ({job.variant})\n"


def end_line(result: MatrixResult) -> str:
    if result.end is MatrixEnd.INTERRUPTED:
        return f"stoker: {result.job.title}: interrupted; the same command continues the matrix\n"
    made = f": {result.wheel}" if result.ok and result.wheel else ""
    return f"stoker: {result.job.title}: {result.end} in {duration(result.wall_s)}{made}\n"


def results_page(results: Sequence[MatrixResult]) -> Page:
    table = Listing("name", "Python", "", ">time", ">size", ">cache", "verify", "wheel")
    for result in results:
        table.add(
            result.job.name,
            result.job.python or "",
            Text(str(result.end), style=_STYLES[result.end]),
            duration(result.wall_s),
            _size(result),
            _hit_rate(result),
            _verdict(result),
            result.wheel or result.error or "",
        )
    return table


def _verdict(result: MatrixResult) -> str:
    if result.original_errors:
        return f"{len(result.original_errors)} of the original"
    return "ok" if result.verified else ""


def _size(result: MatrixResult) -> str:
    if result.size_bytes is None:
        return ""
    share = f" ({result.size_bytes / result.before_bytes:.0%})" if result.before_bytes else ""
    return f"{size(result.size_bytes)}{share}"


def _hit_rate(result: MatrixResult) -> str:
    if not result.compiles or result.cache_hits is None:
        return ""
    return f"{result.cache_hits / result.compiles:.0%} of {result.compiles}"
