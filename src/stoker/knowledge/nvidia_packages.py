"""How wheels find NVIDIA's libraries, and what PyTorch's official wheels require for them."""

from fnmatch import fnmatchcase

from stoker.knowledge import Row, table


class Release(Row, frozen=True, kw_only=True):
    """A release of PyTorch for one CUDA, as officially packaged."""

    torch: str
    cuda: str
    marker: str
    requires: tuple[str, ...]

    def lines(self, machine: str) -> tuple[str, ...]:
        """Return PEP 508 requirements for a machine such as ``x86_64``."""
        marker = self.marker.format(machine=machine)
        parts = (line.partition("; ") for line in self.requires)
        return tuple(
            f"{what}; {marker} and {own}" if own else f"{what}; {marker}" for what, _, own in parts
        )


class _Layout(Row, frozen=True, kw_only=True):
    cuda: int
    folders: tuple[str, ...]


class _Opener(Row, frozen=True, kw_only=True):
    library: str
    opens: tuple[str, ...]


class _NvidiaPackageTable(Row, frozen=True, kw_only=True):
    keep: tuple[str, ...]
    never: tuple[str, ...]
    torch: dict[str, tuple[str, ...]]
    layout: tuple[_Layout, ...]
    opener: tuple[_Opener, ...]
    release: tuple[Release, ...]


_nvidia_package_table = table("nvidia_packages", _NvidiaPackageTable)


def releases() -> tuple[Release, ...]:
    """Return the releases, oldest first."""
    return _nvidia_package_table().release


def folders(cuda: int) -> tuple[str, ...]:
    """Return where the packages of a major CUDA version put libraries; empty if it is unknown."""
    return next((row.folders for row in _nvidia_package_table().layout if row.cuda == cuda), ())


def known_cuda() -> tuple[int, ...]:
    return tuple(row.cuda for row in _nvidia_package_table().layout)


def torch_search_path(folder: str) -> tuple[str, ...] | None:
    """Return the end of a library's search path in that folder of PyTorch's own wheel."""
    return _nvidia_package_table().torch.get(folder)


def opened_by(library: str, cuda: int | None) -> tuple[str, ...]:
    """Return patterns of the libraries that a library opens at run time."""
    version = library.partition(".so.")[2]
    return tuple(
        pattern.format(version=version, cuda=cuda or "*")
        for row in _nvidia_package_table().opener
        if fnmatchcase(library, row.library)
        for pattern in row.opens
    )


def keeps_name(library: str) -> bool:
    """Return whether a library must not be renamed."""
    return _matches(library, _nvidia_package_table().keep)


def never_bundled(library: str) -> bool:
    return _matches(library, _nvidia_package_table().never)


def _matches(library: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(library, pattern) for pattern in patterns)
