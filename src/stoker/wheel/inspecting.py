"""Inspects a wheel, a library, a folder or an installed distribution, and says what follows."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from stoker.model.artifact import ArtifactFacts, LibraryFacts, LibraryOrigin, TargetKind, WheelFacts
from stoker.model.errors import StorageError, UsageError
from stoker.wheel.facts import files_of, read_file, read_files
from stoker.wheel.origins import installed_path, resolve
from stoker.wheel.reader import printable
from stoker.wheel.runs_on import minimum_driver, oldest_manylinux, served_gpus

# Run by the interpreter whose packages are searched; its current folder does not count.
_SEARCH_PATH = (
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"
    "import json; print(json.dumps(sys.path))"
)
_TIMEOUT_S = 60.0

_NOT_READ = {
    ".a": "static archives",
    ".dylib": "macOS libraries",
    ".dll": "Windows libraries",
    ".pyd": "Windows extension modules",
}


def inspect(target: str, environment: Mapping[str, str] = os.environ) -> ArtifactFacts:
    """Return everything that can be read from an artifact, without executing any of it.

    ``target`` is an existing path, else the name of an installed distribution. A library that
    cannot be read is listed with its problem; it does not hide the others.
    """
    path = Path(target)
    try:
        if path.is_dir():
            return _folder(path)
        if path.exists():
            return _wheel(path) if path.suffix == ".whl" else _library(path)
        if os.sep in target or path.suffix in (".whl", ".so"):
            raise UsageError(f"there is no file or folder '{target}'", hints=["check the path"])
        return _installed(target, environment)
    except OSError as error:
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error


def _wheel(path: Path) -> ArtifactFacts:
    from stoker.wheel.facts import read_wheel

    return wheel_artifact(path, *read_wheel(path))


def wheel_artifact(
    path: Path, wheel: WheelFacts, libraries: tuple[LibraryFacts, ...], members: Sequence[str]
) -> ArtifactFacts:
    """Return the facts of a wheel whose libraries have been read."""
    places = {installed_path(member) for member in members}
    return _assemble(
        path=path,
        kind=TargetKind.WHEEL,
        size=path.stat().st_size,
        wheel=wheel,
        libraries=libraries,
        files=members,
        holds=places.__contains__,
    )


def _library(path: Path) -> ArtifactFacts:
    library = read_file(path, printable(path.name))
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
        holds=_on_disk(folder),
    )


def _folder(path: Path) -> ArtifactFacts:
    files = files_of(path)
    return _assemble(
        path=path,
        kind=TargetKind.FOLDER,
        size=sum(_size(path / file) for file in files),
        libraries=read_files(path, files),
        files=files,
        holds=_on_disk(path.absolute()),
    )


def _size(path: Path) -> int:
    """Return the size of a file, or 0 if it was removed since it was listed."""
    with suppress(FileNotFoundError):
        return path.lstat().st_size
    return 0


def find_installed(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the dist-info folder of a distribution in the active environment."""
    from stoker.machine.python import Probe, ask_interpreter, target_python
    from stoker.wheel.facts import find_distribution

    python = target_python(None, environment)
    asked = ask_interpreter(python, Probe(environment=environment, timeout_s=_TIMEOUT_S))
    dist_info = find_distribution(name, asked.search_path)
    if dist_info is None:
        raise UsageError(
            f"there is neither a file '{name}' nor a distribution of that name for {python}",
            hints=["activate the virtual environment that it is installed in"],
        )
    return dist_info


def _installed(name: str, environment: Mapping[str, str]) -> ArtifactFacts:
    from stoker.wheel.facts import installed_facts

    dist_info = find_installed(name, environment)
    wheel, files = installed_facts(dist_info)
    root = dist_info.parent
    return _assemble(
        path=root,
        kind=TargetKind.INSTALLED,
        size=wheel.unpacked_bytes,
        wheel=wheel,
        libraries=read_files(root, files),
        files=files,
        holds=_on_disk(root),
    )


def _on_disk(root: Path) -> Callable[[str], bool]:
    return lambda path: os.path.exists(os.path.join(root, path))  # noqa: PTH110, PTH118 often asked


def _assemble(
    *,
    path: Path,
    kind: TargetKind,
    size: int,
    libraries: tuple[LibraryFacts, ...],
    files: Iterable[str],
    holds: Callable[[str], bool],
    wheel: WheelFacts | None = None,
) -> ArtifactFacts:
    """Add what follows from the libraries to what was read."""
    names = [PurePosixPath(file).name for file in files]
    read = [library for library in libraries if not library.problem]
    dependencies = resolve(
        read, holds=holds, files=set(names), requires=wheel.requires if wheel else ()
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
        notes=_notes(names),
    )


def _notes(names: Iterable[str]) -> tuple[str, ...]:
    suffixes = Counter(PurePosixPath(name).suffix for name in names)
    return tuple(
        f"{suffixes[suffix]} {what} ({suffix}) were not read"
        for suffix, what in _NOT_READ.items()
        if suffixes[suffix]
    )
