"""Checks the CPU level by compilers' notes in the libraries and by the code itself. Pure."""

from collections.abc import Iterator

from stoker.knowledge.cpus import beyond, cpu_family, names_a_cpu
from stoker.model.finding import Finding
from stoker.model.value import size
from stoker.wheel.verify.tested import CodeSample, WheelUnderTest, error, note, warning

_LONGEST = 90  # of a function's name in a finding


def cpu_level(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the CPU level by compilers' notes in the libraries and by the code itself."""
    cpu = wheel.expected.cpu if wheel.expected else None
    if cpu is None:
        if wheel.expected:  # without a plan, one note says that nothing was compared
            title = "the CPU level of the code was not checked"
            yield note("cpu-level-unchecked", title, ["the variant names none"])
        return
    family = cpu_family(cpu)
    other = [one.path for one in wheel.libraries if one.machine != family]
    if other:
        yield error("wrong-cpu-family", f"it is not for {family}, the family of {cpu}", other)
    yield from _by_notes(wheel, cpu)
    yield from _by_samples(wheel, cpu)
    yield from _unread(wheel)


def _by_notes(wheel: WheelUnderTest, cpu: str) -> Iterator[Finding]:
    notes = {row.note: row.name for row in beyond(cpu) if row.note}
    lines = [
        f"{library.path} is marked as needing {word}"
        for library in wheel.libraries
        for word in library.isa
        if word in notes
    ]
    if lines:
        yield error("cpu-level-marked", f"the loader refuses it on a machine with {cpu}", lines)


def _by_samples(wheel: WheelUnderTest, cpu: str) -> Iterator[Finding]:
    for named, name, title, say in (
        (True, "cpu-level", f"code that runs on every CPU needs more than {cpu}", error),
        (
            False,
            "cpu-level-unnamed",
            f"some code needs more than {cpu}; without symbols, a run-time choice is not visible",
            warning,
        ),
    ):
        found = [sample for sample in wheel.samples if sample.named is named]
        lines = [line for sample in found for line in _undispatched(sample)]
        if lines:
            yield say(name, title, lines)


def _undispatched(sample: CodeSample) -> list[str]:
    return [
        f"{sample.path}: {use.instruction_set} in {_cut(use.function)}: {use.line}"
        for use in sample.uses
        if not (use.copies or names_a_cpu(use.function) or names_a_cpu(use.file))
    ]


def _cut(function: str) -> str:
    return function if len(function) <= _LONGEST else f"{function[:_LONGEST]}..."


def _unread(wheel: WheelUnderTest) -> Iterator[Finding]:
    seen = {sample.path for sample in wheel.samples}
    lines = [f"{sample.path}: {sample.problem}" for sample in wheel.samples if sample.problem]
    partly = [one for one in wheel.samples if not one.problem and one.read < one.size]
    lines += [f"{one.path}: {size(one.read)} of {size(one.size)}, in samples" for one in partly]
    unseen = [library.path for library in wheel.libraries if library.path not in seen]
    if unseen:
        more = f" and {len(unseen) - 3} more" if unseen[3:] else ""
        lines.append(f"not read: {', '.join(unseen[:3])}{more}")
    if lines:
        title = "the CPU level was checked for a part of the machine code only"
        yield note("cpu-level-sampled", title, lines)
