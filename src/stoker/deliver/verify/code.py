"""Is the code what was asked for: GPU architectures, CUDA, Python, CPU level? Pure."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from stoker.artifact.runs_on import needed_code
from stoker.deliver.verify.case import Case, CodeSample, Use, error, note, warning
from stoker.knowledge.cpus import cpu_family
from stoker.knowledge.extra_architectures import added, holds_foreign_code
from stoker.knowledge.instruction_sets import beyond, names_a_cpu
from stoker.knowledge.nvidia_packages import cuda_of
from stoker.model.artifact import DeviceKind, LibraryFacts
from stoker.model.finding import Finding
from stoker.model.slim import SLIM_MEMBER
from stoker.model.units import size
from stoker.model.variant import Backend, GpuTarget, Variant

_LONGEST = 90  # of a function's name in a finding
_CHECKED = (Backend.CPU, Backend.CUDA)


def as_asked(case: Case) -> Iterator[Finding]:
    yield from _architectures(case)
    yield from _toolkit(case)
    yield from _python(case)


def _architectures(case: Case) -> Iterator[Finding]:
    if case.slimmed_for:  # by what runs, not by name: that is how it was cut
        return
    variant = case.expected
    if why := _why_unchecked(variant):
        yield note("architectures-unchecked", "GPU architectures were not checked", [why])
    if variant is None or variant.backend not in _CHECKED:
        return
    if variant.backend is Backend.CUDA and not variant.gpus:
        return
    asked = {word for target in variant.gpus for word in _words(target)}
    if lacking := sorted(asked - _present(case.own_libraries)):
        title = "there is no device code for what was asked"
        yield error("missing-architecture", title, lacking)
    if extra := _extra(case, variant.gpus, asked):
        yield error("extra-architecture", "there is device code that nobody asked for", extra)
    yield from _not_everywhere(case, variant.gpus)


def slimmed(case: Case) -> Iterator[Finding]:
    """What was cut must be cut, and what was asked for must be there."""
    if case.slim and case.slim.problem:
        yield error("unreadable-slim-note", f"{SLIM_MEMBER} cannot be read", [case.slim.problem])
    if case.slim and case.slim.record and case.slim.record.private:
        lines = ["it holds changed libraries of NVIDIA, whose licence does not allow that"]
        yield warning("private", "it may not be passed on", lines)
    gpus = case.slimmed_for
    present = _present(case.own_libraries)
    if lacking := [gpu.arch for gpu in gpus if not needed_code(present, [gpu])]:
        yield error("missing-architecture", "there is no device code for these GPUs", lacking)
    if extra := [line for one in case.own_libraries for line in _uncut(one, gpus)]:
        yield warning("not-slimmed", "there is device code for other GPUs than it says", extra)


def _uncut(library: LibraryFacts, gpus: Sequence[GpuTarget]) -> list[str]:
    """One entry for another GPU may be all of a region: then it stands for 'not for this GPU'."""
    extra = {
        arch
        for region in library.regions
        for arch in set(region.archs) - needed_code(region.archs, gpus)
        if gpus and len(region.archs) > 1
    }
    return [f"{library.path}: {', '.join(sorted(extra))}"] if extra else []


def _why_unchecked(variant: Variant | None) -> str | None:
    if variant is None:
        return "nobody says what was asked for: give --variant"
    if variant.backend not in _CHECKED:
        return f"code for {variant.backend} is not read"
    if variant.backend is Backend.CUDA and not variant.gpus:
        return "the variant names none"
    return None


def _words(target: GpuTarget) -> list[str]:
    """``sm_90a`` of ``9.0a``, and ``compute_90a`` with PTX."""
    number = target.arch.replace(".", "")
    return [f"sm_{number}", *([f"compute_{number}"] if target.ptx else [])]


def _present(libraries: Iterable[LibraryFacts]) -> set[str]:
    return {
        code.arch
        for library in libraries
        for code in library.device_code
        if code.linked and code.kind is not DeviceKind.LTOIR
    }


def _extra(case: Case, gpus: Iterable[GpuTarget], asked: set[str]) -> list[str]:
    known = added(case.project, (target.arch for target in gpus))
    allowed = asked | {word for arch in known for word in _words(GpuTarget(arch=arch))}
    by_library = {library.path: _present([library]) - allowed for library in _made_here(case)}
    return [f"{path}: {', '.join(sorted(words))}" for path, words in by_library.items() if words]


def _made_here(case: Case) -> list[LibraryFacts]:
    return [one for one in case.own_libraries if not _is_foreign(case, one.path)]


def _is_foreign(case: Case, path: str) -> bool:
    return holds_foreign_code(case.project, PurePosixPath(path).name)


def _not_everywhere(case: Case, gpus: Iterable[GpuTarget]) -> Iterator[Finding]:
    own = {library.path for library in _made_here(case)}
    served = {row.arch: row for row in case.facts.runs_on}
    lines = [
        f"{path}: {word} for {target.arch}"
        for target in gpus
        if (row := served.get(target.arch.rstrip("af")))
        for word, paths in (("nothing", row.without), ("only some kernels", row.partly))
        for path in paths
        if path in own
    ]
    if lines:
        title = "not all kernels run on the GPUs that were asked for"
        yield warning("architecture-not-everywhere", title, lines)


def _toolkit(case: Case) -> Iterator[Finding]:
    wanted = case.expected.toolkit if case.expected else None
    if wanted is None or case.expected is None or case.expected.backend is not Backend.CUDA:
        return
    other = {
        f"{library.path} needs {name}"
        for library in case.own_libraries
        for name in library.needed
        if (major := cuda_of(name)) and str(major) != wanted.partition(".")[0]
    }
    if other:
        yield error("wrong-cuda", f"it is not for CUDA {wanted}", sorted(other))


def _python(case: Case) -> Iterator[Finding]:
    wanted = case.expected.python if case.expected else None
    told = {tag.interpreter for tag in case.tags}
    if wanted and told.isdisjoint({"py3", "cp" + wanted.replace(".", "")}) and not _is_stable(case):
        yield error("wrong-python", f"it is not for Python {wanted}", sorted(told))


def _is_stable(case: Case) -> bool:
    """Made for one Python, it runs on all later ones."""
    return any(tag.abi == "abi3" for tag in case.tags)


# -- the CPU -------------------------------------------------------------------------------------


def cpu_level(case: Case) -> Iterator[Finding]:
    """By the notes that compilers leave, and by what was read of the code itself."""
    cpu = case.expected.cpu if case.expected else None
    if cpu is None:
        why = "nobody says which CPU it is for" if case.libraries else "there is no machine code"
        yield note("cpu-level-unchecked", "the CPU level of the code was not checked", [why])
        return
    family = cpu_family(cpu)
    other = [one.path for one in case.libraries if one.machine != family]
    if other:
        yield error("wrong-cpu-family", f"it is not for {family}, as {cpu} is", other)
    yield from _by_notes(case, cpu)
    yield from _by_samples(case, cpu)
    yield from _unread(case)


def _by_notes(case: Case, cpu: str) -> Iterator[Finding]:
    notes = {row.note: row.name for row in beyond(cpu) if row.note}
    lines = [
        f"{library.path} is marked as needing {word}"
        for library in case.libraries
        for word in library.isa
        if word in notes
    ]
    if lines:
        yield error("cpu-level-marked", f"the loader of a machine with {cpu} will refuse it", lines)


def _by_samples(case: Case, cpu: str) -> Iterator[Finding]:
    for named, name, title, say in (
        (True, "cpu-level", f"code that runs everywhere needs more than {cpu}", error),
        (
            False,
            "cpu-level-unnamed",
            f"there is code for more than {cpu}, and no names to tell whether it is chosen by CPU",
            warning,
        ),
    ):
        found = [sample for sample in case.samples if sample.named is named]
        lines = [line for sample in found for line in _undispatched(sample)]
        if lines:
            yield say(name, title, lines)


def _undispatched(sample: CodeSample) -> list[str]:
    return [
        f"{sample.path}: {use.instruction_set} in {_cut(use.function)}: {use.line}"
        for use in sample.uses
        if not _is_chosen_by_cpu(use)
    ]


def _cut(function: str) -> str:
    return function if len(function) <= _LONGEST else f"{function[:_LONGEST]}..."


def _is_chosen_by_cpu(use: Use) -> bool:
    return use.copies or names_a_cpu(use.function) or names_a_cpu(use.file)


def _unread(case: Case) -> Iterator[Finding]:
    seen = {sample.path for sample in case.samples}
    lines = [f"{sample.path}: {sample.problem}" for sample in case.samples if sample.problem]
    partly = [one for one in case.samples if not one.problem and one.read < one.size]
    lines += [f"{one.path}: {size(one.read)} of {size(one.size)}, in samples" for one in partly]
    unseen = [library.path for library in case.libraries if library.path not in seen]
    if unseen:
        more = f" and {len(unseen) - 3} more" if unseen[3:] else ""
        lines.append(f"not at all: {', '.join(unseen[:3])}{more}")
    if lines:
        title = "not all machine code was read for instructions beyond the CPU level"
        yield note("cpu-level-sampled", title, lines)
