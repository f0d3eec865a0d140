"""The values of a catalogue: wheels as `catalogue.json` lists them, and the choice for a machine.

The file may come from any server, so each field that becomes part of a path, a URL or a command has
a pattern that excludes separators, quotes and control characters.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from stoker.model.artifact import CxxAbi, RegionPattern
from stoker.model.value import Bytes, Value
from stoker.model.variant import Backend

# The variant whose index holds wheel variants of the draft standards, for installers that choose.
WHEEL_VARIANTS = "wheel-variants"
NULL_LABEL = "null"  # of a wheel variant without properties, which suits every machine
NO_LABEL = "without label"  # instead of a variant, for a wheel of another index that is none
FORMAT = 1  # of catalogue.json; a reader refuses a newer one

_LONGEST = 255
FileName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+!]*(-[A-Za-z0-9_.+!]+){4,6}\.whl\Z", max_length=_LONGEST
    ),
]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
ProjectName = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=_LONGEST)]
VariantName = Annotated[str, Meta(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*\Z", max_length=120)]
VersionText = Annotated[str, Meta(pattern=r"^[0-9a-zA-Z.!+_-]+\Z", max_length=_LONGEST)]
Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=10_000)]
Property = Annotated[
    str, Meta(pattern=r"^[a-z0-9_]+ :: [a-z0-9_]+ :: [a-z0-9_.]+\Z", max_length=_LONGEST)
]
Architecture = Annotated[str, Meta(pattern=r"^[a-z]+_[0-9]{1,4}[af]?\Z")]


class ArchCode(Value, frozen=True, kw_only=True):
    """All device code of one architecture in a wheel, in bytes as stored in its libraries."""

    arch: Architecture  # "sm_90a", "compute_90"
    size_bytes: Bytes
    count: int


class CodeRegions(RegionPattern, frozen=True, kw_only=True):
    """Regions of device code that hold the same architectures, counted over all libraries."""

    archs: tuple[Architecture, ...]


class PublishedWheel(Value, frozen=True, kw_only=True):
    """One wheel of a catalogue. It belongs to one variant, which has an index of its own."""

    file: FileName
    sha256: Digest
    size_bytes: Bytes
    unpacked_bytes: Bytes
    metadata_sha256: Digest
    project: ProjectName
    version: VersionText
    tags: tuple[Line, ...]
    requires_python: Line | None = None
    requires: tuple[Line, ...] = ()
    variant: VariantName
    backend: Backend
    cuda: Line | None = None  # "12.8", or "12" where nothing says more
    regions: tuple[CodeRegions, ...] = ()
    code: tuple[ArchCode, ...] = ()
    minimum_driver: Line | None = None
    cpu: Line | None = None  # a level or microarchitecture; None: any CPU of the family
    cpu_needs: tuple[Line, ...] = ()
    blas: Line | None = None
    cxx_abi: CxxAbi | None = None
    torch: Line | None = None  # the release of PyTorch that an extension was built for
    loads_with: tuple[Line, ...] = ()  # official releases of PyTorch that export all it needs
    stable_abi: bool = False  # only the C shim of PyTorch is used, which later releases keep
    source: Line | None = None  # what it was built from: the SHA-256 of a source distribution
    slimmed_for: tuple[Line, ...] = ()
    properties: tuple[Property, ...] = ()  # of a wheel variant
    providers: tuple[tuple[Line, Line], ...] = ()  # namespace and requirement, the publisher's own
    verified: bool = False
    built: Line = ""  # dates in UTC, as 2026-11-15T18:00:00Z
    published: Line = ""

    @property
    def key(self) -> tuple[str, str]:
        """The identity of a wheel in its catalogue."""
        return self.variant, self.file

    @property
    def path(self) -> str:
        """Where the wheel lies below the catalogue. The content names it, so it never changes."""
        return f"files/{self.sha256}/{self.file}"


class PublishedCatalogue(Value, frozen=True, kw_only=True):
    """All wheels, sorted. Every page of a catalogue is a function of this value."""

    format: int = FORMAT
    serial: Annotated[int, Meta(ge=0, le=1 << 50)] = 0  # grows with each change; 0: not signed
    wheels: tuple[PublishedWheel, ...] = ()

    @property
    def own(self) -> "PublishedCatalogue":
        """The wheels without wheel variants, which repeat them for installers that choose."""
        kept = tuple(wheel for wheel in self.wheels if wheel.variant != WHEEL_VARIANTS)
        return PublishedCatalogue(format=self.format, serial=self.serial, wheels=kept)

    @property
    def projects(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sorted(wheel.project for wheel in self.wheels)))

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sorted(wheel.variant for wheel in self.wheels)))


class HostGpu(Value, frozen=True, kw_only=True):
    name: str
    capability: str  # "9.0"

    def __str__(self) -> str:
        return f"{self.name} ({self.capability})"


class Host(Value, frozen=True, kw_only=True):
    """What decides whether a wheel runs on a machine. ``None``: unknown, so it is not checked."""

    os: str  # linux, macos
    cpu_family: str
    cpu: str
    cpu_features: tuple[str, ...]
    python: str  # "3.12"
    free_threaded: bool = False
    gpus: tuple[HostGpu, ...] = ()
    driver: str | None = None
    libc: str | None = None  # "glibc 2.36", "musl 1.2.4"


class Fit(StrEnum):
    """How a wheel runs, best first."""

    NATIVE = "native"  # machine code for exactly this GPU
    COMPATIBLE = "compatible"  # machine code for an older GPU of the same generation
    PTX = "ptx"  # compiled by the driver when it is loaded
    CPU = "cpu"  # it uses no GPU
    NONE = "does not run"

    @property
    def rank(self) -> int:
        return list(Fit).index(self)


class Candidate(Value, frozen=True, kw_only=True):
    """A wheel that comes into question. It gains facts as it is judged: ``wheel`` is what is known
    of it, from its name or a catalogue, its metadata, its libraries; ``fit`` and ``reason`` say how
    it runs, and why.
    """

    wheel: PublishedWheel
    fit: Fit = Fit.NONE
    reason: str = ""
    notes: tuple[str, ...] = ()
    shared: bool = False  # the reason against it holds for every release of the project
    url: str = ""
    sha256: str | None = None
    metadata_sha256: str | None = None  # of those beside it (PEP 658); empty: unknown
    size_bytes: int | None = None
    in_catalogue: bool = False
    downloaded_bytes: int = 0  # that were received to judge it
    # Of an index, without code for PyTorch or a GPU: any installer chooses well.
    plain: bool = False

    def refused(self, reason: str, *, shared: bool = False) -> "Candidate":
        return replace(self, fit=Fit.NONE, reason=reason, notes=(), shared=shared)

    @property
    def file(self) -> str:
        return self.wheel.file

    @property
    def runs(self) -> bool:
        return self.fit is not Fit.NONE


class Selection(Value, frozen=True, kw_only=True):
    """The wheels to install together, and all choices for the first project, best first."""

    host: Host
    wheels: tuple[PublishedWheel, ...]
    choices: tuple[Candidate, ...]

    @property
    def reason(self) -> str:
        """Why the first wheel was chosen."""
        first = self.wheels[0]
        return next(choice.reason for choice in self.choices if choice.wheel == first)
