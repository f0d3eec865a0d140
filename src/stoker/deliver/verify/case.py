"""What is judged, and how a check says what it found."""

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from stoker.artifact.closure import installed_path
from stoker.artifact.engine import Member
from stoker.artifact.engine.record import Mismatch
from stoker.knowledge.sonames import is_nvidias
from stoker.model.artifact import ArtifactFacts, ElfKind, LibraryFacts, WheelFacts
from stoker.model.distribution import read_requirement, read_tags
from stoker.model.finding import Finding, Severity
from stoker.model.slim import SlimRecord
from stoker.model.value import Value
from stoker.model.variant import GpuTarget, Variant

PLAN_MEMBER = "stoker-plan.json"  # in dist-info: what `stoker plan --json` printed of the build

_MOST_LINES = 8


class PlanRecord(Value, frozen=True, kw_only=True):
    """What the wheel says it was built for; ``problem``: why that cannot be read."""

    variant: Variant | None = None
    problem: str | None = None


class SlimNote(Value, frozen=True, kw_only=True):
    """What the wheel says it was slimmed for; ``problem``: why that cannot be read."""

    record: SlimRecord | None = None
    problem: str | None = None


class Use(Value, frozen=True, kw_only=True):
    """A function with an instruction that not every CPU has.

    ``file`` is the source it comes from, where that is known; ``copies`` says that this source was
    compiled more than once, so that there is a choice.
    """

    function: str
    file: str = ""
    copies: bool = False
    instruction_set: str
    line: str


class CodeSample(Value, frozen=True, kw_only=True):
    """What was read of the machine code of a library.

    ``named`` is false where most functions have no name, so that nobody can say who calls them.
    """

    path: str
    functions: int = 0
    read: int = 0
    size: int = 0
    uses: tuple[Use, ...] = ()
    named: bool = True
    problem: str | None = None


class Case(Value, frozen=True, kw_only=True):
    """A wheel and what is expected of it; ``asked`` is what the user says, before the plan."""

    file_name: str
    facts: ArtifactFacts
    wheel: WheelFacts
    members: tuple[Member, ...]
    mismatches: tuple[Mismatch, ...] = ()
    wrong_hashes: tuple[Mismatch, ...] = ()
    plan: PlanRecord | None = None
    slim: SlimNote | None = None
    asked: Variant | None = None
    samples: tuple[CodeSample, ...] = ()

    @property
    def expected(self) -> Variant | None:
        return self.asked or (self.plan.variant if self.plan else None)

    @property
    def slimmed_for(self) -> tuple[GpuTarget, ...]:
        """The GPUs that a slimmed wheel must serve; none of a wheel as it was built."""
        record = self.slim.record if self.slim else None
        if record is None:
            return ()
        return (self.asked.gpus if self.asked else ()) or record.gpus

    @property
    def project(self) -> str:
        return canonicalize_name(self.wheel.name)

    @property
    def tags(self) -> frozenset[Tag]:
        """What the metadata says, as far as it makes sense."""
        return read_tags(self.wheel.tags)

    @property
    def requires_torch(self) -> bool:
        """Whether it is an extension of PyTorch, which then has loaded its own libraries before."""
        return any(_required_name(line) == "torch" for line in self.wheel.requires)

    @property
    def libraries(self) -> tuple[LibraryFacts, ...]:
        """Those a loader deals with: not objects, nor device code in files of its own."""
        loaded = (ElfKind.LIBRARY, ElfKind.PROGRAM)
        return tuple(
            library
            for library in self.facts.libraries
            if not library.problem and library.kind in loaded and library.machine != "cuda"
        )

    @property
    def own_libraries(self) -> tuple[LibraryFacts, ...]:
        """Without those of NVIDIA that were taken in."""
        return tuple(library for library in self.libraries if not _is_nvidias(library))

    @property
    def places(self) -> frozenset[str]:
        """Where every member will be, relative to the packages folder."""
        return frozenset(installed_path(member.name) for member in self.members)


class Verification(Value, frozen=True, kw_only=True):
    """What became of it. ``variant`` is what the wheel was held against, by name."""

    wheel: str
    name: str
    version: str
    variant: str | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def _required_name(line: str) -> str | None:
    """The package that a requirement names, unless only an extra asks for it."""
    try:
        requirement = read_requirement(line)
    except InvalidRequirement:
        return None
    optional = requirement.marker is not None and "extra" in str(requirement.marker)
    return None if optional else canonicalize_name(requirement.name)


def _is_nvidias(library: LibraryFacts) -> bool:
    return is_nvidias(library.soname or library.path.rpartition("/")[2])


def error(name: str, title: str, lines: list[str], fix: tuple[str, ...] = ()) -> Finding:
    return _finding(Severity.ERROR, name, title, lines, fix)


def warning(name: str, title: str, lines: list[str]) -> Finding:
    return _finding(Severity.WARNING, name, title, lines)


def note(name: str, title: str, lines: list[str]) -> Finding:
    return _finding(Severity.NOTE, name, title, lines)


def milder(finding: Finding) -> Finding:
    """An error that does not keep the wheel from being used."""
    return msgspec.structs.replace(finding, severity=Severity.WARNING)


def _finding(
    severity: Severity, name: str, title: str, lines: list[str], fix: tuple[str, ...] = ()
) -> Finding:
    shown = lines[:_MOST_LINES]
    if lines[_MOST_LINES:]:
        shown.append(f"and {len(lines) - _MOST_LINES} more")
    return Finding(name=name, severity=severity, title=title, evidence="\n".join(shown), fix=fix)
