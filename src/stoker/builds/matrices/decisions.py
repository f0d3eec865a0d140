"""Decisions about a matrix: the order of its jobs, their labels, and the time of all. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stoker.builds.matrices.matrix import MatrixJob
from stoker.knowledge.estimates import SlimFigures
from stoker.model.errors import UsageError
from stoker.model.plan import Quantity
from stoker.model.value import Value
from stoker.model.variant import Backend, Variant
from stoker.plan.grammar import label, parts_beside
from stoker.plan.subject import Subject

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
    flags = msgspec.structs.replace(variant, gpus=(), python=None).name
    defines = " ".join(sorted(f"{setting.name}={setting.value}" for setting in subject.defines))
    gpus = Variant(backend=variant.backend, gpus=variant.gpus).name
    return (f"build {given}", compilers, f"{flags} {defines}", gpus, variant.python or "")


def slim_sharing(variant: Variant, given: str) -> tuple[str, ...]:
    """Slims share the wheel that they read, one for each Python."""
    return (f"slim {given}", variant.python or "", variant.name)


def matrix_label(variant: Variant) -> str:
    """Return the local version label. The tags of a wheel say for which Python it is."""
    return label(msgspec.structs.replace(variant, python=None))


def slim_label(variant: Variant) -> str:
    """Return the label of a slimmed wheel: its GPUs, after the CUDA release if that is named."""
    return matrix_label(variant).removeprefix(f"{Backend.CUDA}.")


def check_same_cuda(variant: Variant, cuda: str | None) -> None:
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
    distinct = dict(labels)
    for variant, (given, text) in labels.items():
        if count[given, text] > 1:
            part = re.sub(r"[^a-z0-9]+", ".", variant.casefold()).strip(".") or "variant"
            distinct[variant] = given, f"{text}.{part}"
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


def check_slim(variant: Variant) -> None:
    """Raise UsageError for parts of a variant that slimming cannot give."""
    if variant.backend is not Backend.CUDA or not variant.gpus:
        raise UsageError(
            f"'{variant.name}' names no NVIDIA GPU, so there is no code to keep",
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
