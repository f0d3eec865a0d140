"""Shared headers: what compiles include, and the precompiled headers that several of them share."""

from enum import StrEnum

from stoker.model.value import Value


class HeaderSharing(StrEnum):
    """The words of ``--shared-headers``."""

    OFF = "off"
    AUTO = "auto"
    ALWAYS = "always"  # also if warnings differ


class Compile(Value, frozen=True, kw_only=True):
    """A compile of one C or C++ source that a build tool is about to start.

    ``flags`` are the words behind the compiler's name without the source, the output and the names
    of dependency files. Compiles with equal ``group`` can share a precompiled header.
    """

    folder: str
    words: tuple[str, ...]
    flags: tuple[str, ...]
    source: str
    output: str
    language: str  # the value of -x for a header

    @property
    def group(self) -> tuple[str, ...]:
        return (self.folder, self.words[0], self.language, *self.flags)


class Inclusion(Value, frozen=True, kw_only=True):
    """The first inclusion of a header in a source.

    ``item`` identifies the header together with what the preprocessor made of it. For a header of
    the system it is the path alone: those give the same result in any order. ``leading`` says that
    the including file, ``parent``, has only comments and directives before it.
    """

    path: str
    item: str
    parent: str  # an item; empty for the source itself
    leading: bool
    size: int  # bytes of the header's own text

    @property
    def of_system(self) -> bool:
        return self.item == self.path

    @property
    def text(self) -> str:
        """The digest of the text; empty for a header of the system."""
        return self.item.removeprefix(self.path)


class Macros(Value, frozen=True, kw_only=True):
    """Names that a file outside the system's folders defines or undefines, after ``position``
    inclusions.
    """

    names: tuple[str, ...]
    owner: str  # an item; empty for the source itself
    position: int


class Scan(Value, frozen=True, kw_only=True):
    """What the preprocessor reads for one source, in order."""

    inclusions: tuple[Inclusion, ...]
    macros: tuple[Macros, ...] = ()

    @property
    def size(self) -> int:
        return sum(inclusion.size for inclusion in self.inclusions)


class SharedHeader(Value, frozen=True, kw_only=True):
    """A precompiled header. ``words`` are all identifiers in the headers that it contains, by which
    macros of a source are recognised that would change them.
    """

    name: str
    group: tuple[str, ...]
    text: str  # the source of the header: its #include lines
    scan: Scan
    words: frozenset[str] = frozenset()


class Use(Value, frozen=True, kw_only=True):
    """A compile with the header that it uses. gcc takes a file for one in the header if its
    content is the same, and does not list it: ``twins`` are the paths of such files.
    """

    step: Compile
    header: SharedHeader
    twins: tuple[str, ...] = ()


class HeaderUse(Value, frozen=True, kw_only=True):
    """What shared headers did in a run."""

    headers: int
    bytes: int  # of the files
    used: int  # compiles that used one
    refused: int  # compiles that had to be repeated without
    # CPU seconds that the compiles would have needed in addition, as estimated from a compile of
    # each header alone; and those of scans, of making headers and of repeated compiles.
    saved_s: float = 0.0
    cost_s: float = 0.0
    left_out: int = 0  # headers that were not offered, to save memory
