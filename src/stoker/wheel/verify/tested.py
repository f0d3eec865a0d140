"""The wheel that is checked, with what is expected of it, and the findings that checks return."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from stoker.model.artifact import ArtifactFacts, LibraryFacts, WheelFacts
from stoker.model.distribution import read_tags
from stoker.model.finding import Finding, Severity
from stoker.model.slimming import SlimRecord
from stoker.model.value import Value
from stoker.model.variant import GpuTarget, PlannedTargets, Variant
from stoker.wheel.inspect.origins import installed_path, own_libraries
from stoker.wheel.zip import Member
from stoker.wheel.zip.metadata import required_name
from stoker.wheel.zip.record import Mismatch

_MOST_LINES = 8  # of evidence that a page shows


class PlanRecord(Value, frozen=True, kw_only=True):
    """The variant that the wheel was built for, or the ``problem`` why it cannot be read."""

    variant: Variant | None = None
    targets: PlannedTargets | None = None
    accepted: bool = False  # the targets of the build were accepted as they were
    problem: str | None = None


class SlimNote(Value, frozen=True, kw_only=True):
    """The record that `stoker slim` left, or the ``problem`` why it cannot be read."""

    record: SlimRecord | None = None
    problem: str | None = None


class Placed(Value, frozen=True, kw_only=True):
    """What the content of files tells about where a wheel writes. ``starts`` are the ``.pth`` files
    of site-packages, each with the lines that Python executes; ``commands`` are entry points.
    """

    starts: dict[str, tuple[str, ...]] = {}
    commands: tuple[str, ...] = ()


class Use(Value, frozen=True, kw_only=True):
    """A function with an instruction that not every CPU supports.

    ``file`` is its source file, if known. ``copies`` is true if that source was compiled more than
    once, so that a version can be chosen by CPU at run time.
    """

    function: str
    file: str = ""
    copies: bool = False
    instruction_set: str
    line: str


class CodeSample(Value, frozen=True, kw_only=True):
    """The part of a library's machine code that was disassembled.

    ``named`` is false if most functions have no name, so that their callers are unknown.
    """

    path: str
    functions: int = 0
    read: int = 0
    size: int = 0
    uses: tuple[Use, ...] = ()
    named: bool = True
    problem: str | None = None


class WheelUnderTest(Value, frozen=True, kw_only=True):
    """All facts that the checks need. ``asked`` is the user's variant; it overrides the plan's."""

    file_name: str
    facts: ArtifactFacts
    metadata: WheelFacts
    members: tuple[Member, ...]
    mismatches: tuple[Mismatch, ...] = ()
    wrong_hashes: tuple[Mismatch, ...] = ()
    placed: Placed = Placed()
    plan: PlanRecord | None = None
    slim: SlimNote | None = None
    asked: Variant | None = None
    excluded: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    samples: tuple[CodeSample, ...] = ()
    against: tuple[str, ...] | None = None  # releases of PyTorch that it must load with

    @property
    def expected(self) -> Variant | None:
        return self.asked or (self.plan.variant if self.plan else None)

    @property
    def planned_targets(self) -> PlannedTargets | None:
        """Return the targets of the plan in the wheel, unless the user asks for others."""
        return self.plan.targets if self.plan and self.asked is None else None

    @property
    def slimmed_for(self) -> tuple[GpuTarget, ...]:
        """Return the GPUs that a slimmed wheel must serve; empty if it was not slimmed."""
        record = self.slim.record if self.slim else None
        if record is None:
            return ()
        return (self.asked.gpus if self.asked else ()) or record.gpus

    @property
    def expected_gpus(self) -> tuple[GpuTarget, ...]:
        return self.slimmed_for or (self.expected.gpus if self.expected else ())

    def leaves_out(self, name: str) -> bool:
        """Return whether the wheel was packaged for machines that provide a library."""
        return any(fnmatchcase(name, pattern) for pattern in self.excluded)

    @property
    def project(self) -> str:
        return canonicalize_name(self.metadata.name)

    @property
    def tags(self) -> frozenset[Tag]:
        """Return the tags in the metadata, without those that are malformed."""
        return read_tags(self.metadata.tags)

    @property
    def requires_torch(self) -> bool:
        """Return whether it extends PyTorch, which has then loaded its libraries already."""
        return any(required_name(line) == "torch" for line in self.metadata.requires)

    @property
    def libraries(self) -> tuple[LibraryFacts, ...]:
        """Return what the dynamic loader loads: no object files, no separate device code."""
        return tuple(one for one in self.facts.libraries if not one.problem and one.is_loaded)

    @property
    def own_libraries(self) -> tuple[LibraryFacts, ...]:
        """Return the libraries that the project made itself, without bundled ones."""
        return own_libraries(self.libraries, self.project)

    @property
    def places(self) -> frozenset[str]:
        """Return the installed path of every member, relative to site-packages."""
        return frozenset(installed_path(member.name) for member in self.members)


class Verification(Value, frozen=True, kw_only=True):
    """The result of `stoker verify`. ``variant`` names what the wheel was compared with."""

    wheel: str
    name: str
    version: str
    variant: str | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def milder(finding: Finding) -> Finding:
    """Return the finding as a warning, for an error that leaves the wheel usable."""
    return msgspec.structs.replace(finding, severity=Severity.WARNING)


def shortened_evidence(finding: Finding) -> Finding:
    """Return the finding with as many lines of its evidence as a page has room for."""
    lines = finding.evidence.splitlines()
    if not lines[_MOST_LINES:]:
        return finding
    shown = [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]
    return msgspec.structs.replace(finding, evidence="\n".join(shown))


def told_apart(findings: Iterable[Finding], record: SlimRecord | None) -> Iterator[Finding]:
    """Return the findings of checks that slimming does not affect, with errors that the original
    wheel has as well as warnings.
    """
    for finding in findings:
        known = set(record.inherited.get(finding.name, ())) if record else set()
        lines = finding.evidence.splitlines()
        old, new = ([line for line in lines if (line in known) is side] for side in (True, False))
        if finding.severity is not Severity.ERROR or not old:
            yield finding
            continue
        inherited = f"{finding.title}, as in the wheel that was slimmed"
        evidence = "\n".join(old)
        yield msgspec.structs.replace(milder(finding), title=inherited, evidence=evidence)
        if new:
            yield msgspec.structs.replace(finding, evidence="\n".join(new))
