"""What a built thing is, as read from its own bytes: a wheel, a library, a folder of libraries."""

from enum import StrEnum

from stoker.model.value import Value


class DeviceKind(StrEnum):
    CUBIN = "cubin"  # machine code of one architecture
    PTX = "ptx"  # assembly that the driver compiles when it is loaded
    LTOIR = "ltoir"  # for linking at run time; does not run by itself


class Compression(StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    OTHER = "other"


class DeviceCode(Value, frozen=True, kw_only=True):
    """All entries of one kind and architecture in one section of a library."""

    kind: DeviceKind
    arch: str  # "sm_90a", "compute_90", "lto_90"
    size_bytes: int  # as they lie in the file, without headers
    count: int
    unpacked_bytes: int
    compression: tuple[Compression, ...]
    section: str
    linked: bool = True  # False: left over from linking device code; it never runs


class RegionPattern(Value, frozen=True, kw_only=True):
    """Regions that hold code for the same architectures: the driver takes one entry of each."""

    archs: tuple[str, ...]
    count: int


class ElfKind(StrEnum):
    LIBRARY = "library"
    PROGRAM = "program"
    OBJECT = "object"
    OTHER = "other"


class CxxAbi(StrEnum):
    """The std::string ABI that exported and imported names use."""

    CXX11 = "cxx11"
    OLD = "pre-cxx11"


class LibraryFacts(Value, frozen=True, kw_only=True):
    """An ELF file. ``path`` is relative to what was inspected; so is the place in ``problem``."""

    path: str
    size_bytes: int
    kind: ElfKind = ElfKind.OTHER
    machine: str = ""  # as in a wheel's tag: x86_64, aarch64
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: dict[str, str] = {}  # the newest needed of each series: {"GLIBC": "2.28"}
    cxx_abi: CxxAbi | None = None
    isa: tuple[str, ...] = ()  # what its property notes say it needs or is marked for
    build_id: str | None = None
    stripped: bool = False
    sections: dict[str, int] = {}  # bytes in the file by name
    device_code: tuple[DeviceCode, ...] = ()
    regions: tuple[RegionPattern, ...] = ()  # of the device code that runs
    problem: str | None = None  # why it could not be read to the end

    @property
    def is_loaded(self) -> bool:
        """Whether the dynamic loader loads it: no object file, no separate device code."""
        return self.kind in (ElfKind.LIBRARY, ElfKind.PROGRAM) and self.machine != "cuda"


class Symbols(Value, frozen=True, kw_only=True):
    """The dynamic symbols of a library. ``file`` is its name without a folder.

    ``undefined`` are the names without a version that the loader must find, or it refuses the
    library.
    """

    file: str
    machine: str
    needed: tuple[str, ...]
    exported: frozenset[str]
    undefined: frozenset[str]


class LibraryOrigin(StrEnum):
    """Where a needed library comes from."""

    FOUND = "found"  # on the search path, in what was inspected
    BESIDE = "beside"  # in what was inspected, off the search path: works once it is loaded
    SYSTEM = "system"  # every manylinux system has it
    DRIVER = "driver"
    PACKAGE = "package"  # a package that is required brings it
    MISSING = "missing"


class Dependency(Value, frozen=True, kw_only=True):
    """A library that others need by name. ``package`` is the one known to bring it."""

    name: str
    origin: LibraryOrigin
    package: str | None = None
    wanted_by: tuple[str, ...]


class RunsOn(Value, frozen=True, kw_only=True):
    """GPUs of one architecture: served by ``cubin``, or by ``ptx`` (compiled at load)."""

    arch: str  # "9.0"
    names: tuple[str, ...]
    by: DeviceKind
    without: tuple[str, ...] = ()  # libraries that hold device code, but none for these GPUs
    partly: tuple[str, ...] = ()  # libraries of which some regions have none


class WheelFacts(Value, frozen=True, kw_only=True):
    """The metadata of a wheel."""

    name: str
    version: str
    tags: tuple[str, ...]
    build: str | None = None
    generator: str | None = None
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    members: int
    unpacked_bytes: int


class TorchFit(Value, frozen=True, kw_only=True):
    """Whether libraries load with one build of PyTorch. ``cuda`` is None for a CPU build;
    ``torch`` says where the build was read, or is empty for an official one.
    """

    release: str
    cuda: str | None = None
    torch: str = ""
    missing: tuple[str, ...] = ()  # symbols, as they are in the file
    absent: tuple[str, ...] = ()  # libraries that this build of PyTorch does not have
    forbidden_by: str = ""  # the requirement of the wheel that does not allow this release

    @property
    def loads(self) -> bool:
        return not self.missing and not self.absent


class LoadsWith(Value, frozen=True, kw_only=True):
    """Which builds of PyTorch export all ``symbols`` that the libraries need from it.

    A missing symbol proves that a library does not load. If all are there it loads, but the layout
    of objects may still differ.
    """

    symbols: int
    stable_abi: bool  # only the C shim is used, which later releases keep
    back_end: str | None = None  # such as CUDA, if the libraries need PyTorch's part for it
    builds: tuple[TorchFit, ...]  # the oldest release first


class TargetKind(StrEnum):
    WHEEL = "wheel"
    LIBRARY = "library"
    FOLDER = "folder"
    INSTALLED = "installed"


class ArtifactFacts(Value, frozen=True, kw_only=True):
    """Everything that `stoker inspect` reads from one artifact."""

    path: str
    kind: TargetKind
    size_bytes: int
    wheel: WheelFacts | None = None
    libraries: tuple[LibraryFacts, ...]
    dependencies: tuple[Dependency, ...]
    unresolved: tuple[str, ...]  # names of those that are missing
    runs_on: tuple[RunsOn, ...]
    minimum_driver: str | None = None  # where the compression of device code demands one
    manylinux: str | None = None  # the oldest tag that its symbols allow
    loads_with: LoadsWith | None = None  # if its libraries use PyTorch
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(library.problem for library in self.libraries if library.problem)
