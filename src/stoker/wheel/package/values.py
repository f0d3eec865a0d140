"""The request, the plan and the result of packaging, as values that can be printed."""

from enum import StrEnum

from stoker.model.value import Value


class PackageMode(StrEnum):
    """Where a packaged wheel gets NVIDIA's libraries from."""

    PYPI = "pypi"  # from NVIDIA's own packages, which it requires
    BUNDLE = "bundle"  # from itself
    PLAIN = "plain"  # unchanged: only tags and search paths are corrected


class PackageRequest(Value, frozen=True, kw_only=True):
    """The user's options; ``None`` means that the wheel decides."""

    mode: PackageMode
    libraries: tuple[str, ...] = ()  # folders, wheels and folders of wheels to search
    exclude: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    requires: tuple[str, ...] = ()
    like: str | None = None  # the PyTorch release whose requirements are used
    torch: str | None = None  # the PyTorch version that an extension was built against
    cuda: str | None = None
    label: str | None = None  # of the version; empty removes it
    strip: bool = False


class LibrarySource(Value, frozen=True, kw_only=True, order=True):
    """A file, or a member of a wheel."""

    file: str
    member: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.member}" if self.member else self.file


class LibraryChange(Value, frozen=True, kw_only=True):
    """The changes to an ELF file of the new wheel.

    ``rpath`` None keeps the search path, empty removes it; ``as_runpath`` writes it as DT_RUNPATH.
    ``source`` is set for bundled files.
    """

    path: str
    rpath: str | None = None
    as_runpath: bool = False
    needed: dict[str, str] = {}
    soname: str | None = None
    strip: bool = False
    source: LibrarySource | None = None
    size_bytes: int = 0
    wanted_by: tuple[str, ...] = ()  # the libraries that need a bundled one


class Licence(Value, frozen=True, kw_only=True):
    """A licence text of a bundled library. ``path`` is relative to dist-info/licenses."""

    path: str
    source: LibrarySource


class PackagePlan(Value, frozen=True, kw_only=True):
    mode: PackageMode
    wheel: str
    file_name: str
    version: str
    tags: tuple[str, ...]
    changed: tuple[LibraryChange, ...] = ()
    added: tuple[LibraryChange, ...] = ()
    requires_added: tuple[str, ...] = ()
    requires_dropped: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    licences: tuple[Licence, ...] = ()
    notes: tuple[str, ...] = ()


class Packaged(Value, frozen=True, kw_only=True):
    """The written wheel. ``debug_files`` are in a folder next to it."""

    path: str
    size_bytes: int
    debug_files: tuple[str, ...] = ()
