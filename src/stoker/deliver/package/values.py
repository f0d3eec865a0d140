"""What is asked for, and what will be done: values that can be printed before anything is done."""

from enum import StrEnum

from stoker.model.value import Value


class Mode(StrEnum):
    """Where a packaged wheel takes NVIDIA's libraries from."""

    PYPI = "pypi"  # from NVIDIA's own packages, which it requires
    BUNDLE = "bundle"  # from itself
    PLAIN = "plain"  # as before: only the tags are repaired


class PackageRequest(Value, frozen=True, kw_only=True):
    """``None`` and nothing mean: as the wheel itself says."""

    mode: Mode
    libraries: tuple[str, ...] = ()  # folders, wheels and folders of wheels to take from
    exclude: tuple[str, ...] = ()  # patterns of names that whoever installs it provides
    requires: tuple[str, ...] = ()
    like: str | None = None  # the release of PyTorch whose requirements to take
    torch: str | None = None  # what an extension was built against
    cuda: str | None = None
    label: str | None = None  # of the version; empty: none
    strip: bool = False


class Source(Value, frozen=True, kw_only=True, order=True):
    """A file, or a member of the wheel that the file is."""

    file: str
    member: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.member}" if self.member else self.file


class LibraryChange(Value, frozen=True, kw_only=True):
    """An ELF file of the wheel that will be: what of it is written anew.

    ``rpath`` None: as it was; empty: none. ``source``: where it comes from, if not the wheel.
    """

    path: str
    rpath: str | None = None
    needed: dict[str, str] = {}
    soname: str | None = None
    strip: bool = False
    source: Source | None = None
    size: int = 0
    wanted_by: tuple[str, ...] = ()  # of a library that comes from elsewhere


class Licence(Value, frozen=True, kw_only=True):
    """A text that goes along with what it is about. ``path`` is relative to dist-info/licenses."""

    path: str
    source: Source


class PackagePlan(Value, frozen=True, kw_only=True):
    mode: Mode
    wheel: str
    file_name: str
    version: str
    tags: tuple[str, ...]
    changed: tuple[LibraryChange, ...] = ()
    added: tuple[LibraryChange, ...] = ()
    requires_added: tuple[str, ...] = ()
    requires_dropped: tuple[str, ...] = ()
    licences: tuple[Licence, ...] = ()
    notes: tuple[str, ...] = ()


class Packaged(Value, frozen=True, kw_only=True):
    """What was made. ``debug_files`` are those that stripping took out, beside the wheel."""

    path: str
    size: int
    debug_files: tuple[str, ...] = ()
