"""Inspects a wheel, a library, a folder or an installed distribution, and says what follows."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

import msgspec

from stoker.model.artifact import (
    ArtifactFacts,
    LibraryFacts,
    LibraryOrigin,
    Symbols,
    TargetKind,
    WheelFacts,
)
from stoker.model.errors import StorageErrors, UsageError
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect.facts import (
    Also,
    files_below,
    installed_facts,
    read_files,
    read_library_file,
    read_wheel,
)
from stoker.wheel.inspect.origins import by_folder, installed_path, resolve_needed
from stoker.wheel.inspect.runs_on import minimum_driver, oldest_manylinux, served_gpus
from stoker.wheel.inspect.target import find_target
from stoker.wheel.reader import printable
from stoker.wheel.zip import open_wheel

_NOT_READ = {
    ".a": "static archives",
    ".dylib": "macOS libraries",
    ".dll": "Windows libraries",
    ".pyd": "Windows extension modules",
}


def inspect(
    target: str,
    environment: Mapping[str, str] = os.environ,
    *,
    torch: Sequence[str] | None = None,
) -> ArtifactFacts:
    """Return everything that can be read from an artifact, without executing any of it.

    ``target`` is an existing path, else the name of an installed distribution. A library that
    cannot be read is listed with its problem; it does not hide the others. Symbols of PyTorch are
    looked up in all official releases, and in those that ``torch`` names: wheels, folders or
    distributions. If that is empty, the installed one counts; if it is None, none does.
    """
    from stoker.wheel.inspect.loads_with import (  # `stoker slim` needs no symbols
        loads_with,
        torch_needs,
    )
    from stoker.wheel.inspect.torch_builds import read_torches

    symbols: list[Symbols] = []
    with StorageErrors("read"):
        found = find_target(target, environment)
        read = {
            TargetKind.WHEEL: _wheel,
            TargetKind.LIBRARY: _library,
            TargetKind.FOLDER: _folder,
            TargetKind.INSTALLED: _installed,
        }
        facts = read[found.kind](found.path, lambda file: symbols.append(dynamic_symbols(file)))
    needs = torch_needs(symbols)
    if needs is None:
        return facts
    builds = () if torch is None else read_torches(torch, needs.machine, environment)
    requires = facts.wheel.requires if facts.wheel else ()
    return msgspec.structs.replace(facts, loads_with=loads_with(needs, builds, requires))


def _wheel(path: Path, also: Also) -> ArtifactFacts:
    with open_wheel(path) as wheel:
        return wheel_artifact(path, *read_wheel(wheel, also))


def wheel_artifact(
    path: Path,
    wheel: WheelFacts,
    libraries: tuple[LibraryFacts, ...],
    members: Sequence[str],
    *,
    size: int | None = None,
) -> ArtifactFacts:
    """Return the facts of a wheel whose libraries have been read; ``size`` if it is not here."""
    return _assemble(
        path=path,
        kind=TargetKind.WHEEL,
        size=path.stat().st_size if size is None else size,
        wheel=wheel,
        libraries=libraries,
        files=members,
        names_in=by_folder(map(installed_path, members)),
    )


def _library(path: Path, also: Also) -> ArtifactFacts:
    library = read_library_file(path, printable(path.name), also)
    if library is None:
        raise UsageError(
            f"'{path}' is neither a wheel nor an ELF file",
            hints=["a wheel's name ends with .whl"],
        )
    folder = path.absolute().parent
    return _assemble(
        path=path,
        kind=TargetKind.LIBRARY,
        size=library.size_bytes,
        libraries=(library,),
        files=[other.name for other in folder.iterdir()],
        names_in=_on_disk(folder),
    )


def _folder(path: Path, also: Also) -> ArtifactFacts:
    files, size = files_below(path), 0
    for file in files:
        with suppress(FileNotFoundError):  # it may have been removed since it was listed
            size += (path / file).lstat().st_size
    return _assemble(
        path=path,
        kind=TargetKind.FOLDER,
        size=size,
        libraries=read_files(path, files, also),
        files=files,
        names_in=_on_disk(path.absolute()),
    )


def _installed(dist_info: Path, also: Also) -> ArtifactFacts:
    wheel, files = installed_facts(dist_info)
    root = dist_info.parent
    return _assemble(
        path=root,
        kind=TargetKind.INSTALLED,
        size=wheel.unpacked_bytes,
        wheel=wheel,
        libraries=read_files(root, files, also),
        files=files,
        names_in=_on_disk(root),
    )


def _on_disk(root: Path) -> Callable[[str], Collection[str]]:
    @cache
    def names_in(folder: str) -> frozenset[str]:
        with suppress(OSError):
            return frozenset(path.name for path in (root / folder).iterdir())
        return frozenset()

    return names_in


def _assemble(
    *,
    path: Path,
    kind: TargetKind,
    size: int,
    libraries: tuple[LibraryFacts, ...],
    files: Iterable[str],
    names_in: Callable[[str], Collection[str]],
    wheel: WheelFacts | None = None,
) -> ArtifactFacts:
    """Add what follows from the libraries to what was read."""
    names = [PurePosixPath(file).name for file in files]
    suffixes = Counter(PurePosixPath(name).suffix for name in names)
    read = [library for library in libraries if not library.problem]
    dependencies = resolve_needed(
        read, names_in=names_in, files=set(names), requires=wheel.requires if wheel else ()
    )
    return ArtifactFacts(
        path=printable(str(path)),
        kind=kind,
        size_bytes=size,
        wheel=wheel,
        libraries=libraries,
        dependencies=dependencies,
        unresolved=tuple(row.name for row in dependencies if row.origin is LibraryOrigin.MISSING),
        runs_on=served_gpus(read),
        minimum_driver=minimum_driver(read),
        manylinux=oldest_manylinux(read),
        notes=tuple(
            f"{suffixes[suffix]} {what} ({suffix}) were not read"
            for suffix, what in _NOT_READ.items()
            if suffixes[suffix]
        ),
    )
