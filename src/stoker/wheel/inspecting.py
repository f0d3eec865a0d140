"""Reads the facts of a wheel, a library, a folder or an installed distribution."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    Dependency,
    DeviceCode,
    DeviceKind,
    FactDifference,
    LibraryFacts,
    LibraryOrigin,
    RunsOn,
    TargetKind,
    WheelFacts,
)
from stoker.model.errors import StorageError, UsageError
from stoker.model.value import size
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.wheel.closure import installed_path, resolve
from stoker.wheel.facts import files_of, read_file, read_files
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


# -- inspect ---------------------------------------------------------------------------------------
# The facts of a wheel, library or folder as a terminal page.


_BAR_WIDTH = 28
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_LIBRARIES = 30
_MOST_NAMES = 5
_MOST_ROWS = 200  # of a table: no real wheel has as many, and one made to has millions
_SERIES = ("GLIBC", "GLIBCXX", "CXXABI")


def inspection_page(facts: ArtifactFacts) -> Page:
    parts = [
        _head(facts),
        _device_code(facts),
        _gpus(facts),
        _libraries(facts),
        _sections(facts.libraries[0]) if len(facts.libraries) == 1 else None,
        _search_paths(facts.libraries),
        _dependencies(facts),
        _remarks(facts),
    ]
    spaced = [line for part in parts if part is not None for line in (part, Text())]
    return Group(*spaced[:-1])


def bar(share: float, width: int = _BAR_WIDTH) -> str:
    """Return a bar that fills ``share`` of the width, to an eighth of a character; never empty."""
    eighths = max(1, round(min(share, 1.0) * width * 8))
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _head(facts: ArtifactFacts) -> Text:
    wheel = facts.wheel
    title = f"{wheel.name} {wheel.version}" if wheel else facts.path
    lines = Text.assemble((title, "bold"), f"  {' '.join(wheel.tags) if wheel else facts.kind}\n")
    said = [size(facts.size_bytes)]
    if wheel:
        said.append(f"{size(wheel.unpacked_bytes)} in {wheel.members} files")
        said.append(f"Python {wheel.requires_python or 'any'}")
        said.append(f"{len(wheel.requires)} requirements")
    if not facts.libraries:
        said.append("no libraries")
    if facts.manylinux:
        said.append(f"runs on {facts.manylinux}")
    if facts.minimum_driver:
        said.append(f"driver {facts.minimum_driver} or newer")
    return lines.append(", ".join(said))


def _device_code(facts: ArtifactFacts) -> Listing | None:
    """Return the totals of all libraries by architecture, then the code that never runs."""
    codes = [code for library in facts.libraries for code in library.device_code]
    if not codes:
        return None
    by_arch: dict[str, list[DeviceCode]] = {}
    for code in sorted(filter(lambda code: code.linked, codes), key=_order):
        by_arch.setdefault(code.arch, []).append(code)
    largest = max((_bytes(group) for group in by_arch.values()), default=0)
    table = Listing("", "", ">", ">", "", title=f"Device code  {size(_bytes(codes))}", indent=2)
    for arch, group in islice(by_arch.items(), _MOST_ROWS):
        share = Text(bar(_bytes(group) / max(1, largest)), style="bar")
        table.add(f"{arch}", share, *_amounts(group))
    if left_over := [code for code in codes if not code.linked]:
        table.add("not linked", Text("never runs", style="dim"), *_amounts(left_over))
    return table


def _order(code: DeviceCode) -> tuple[str, int, str]:
    return code.kind, int("".join(filter(str.isdigit, code.arch))), code.arch


def _bytes(codes: Iterable[DeviceCode]) -> int:
    return sum(code.size_bytes for code in codes)


def _amounts(codes: Sequence[DeviceCode]) -> tuple[str, str, str]:
    kinds = sorted({code.kind for code in codes})
    packed = sorted({kind for code in codes for kind in code.compression} - {Compression.NONE})
    count = sum(code.count for code in codes)
    return size(_bytes(codes)), str(count), " ".join([*kinds, *packed])


def _gpus(facts: ArtifactFacts) -> Listing | None:
    """Return a line for each GPU that runs everything, and a short list of the partly served."""
    if not facts.runs_on:
        return None
    table = Listing("", "", "", title="Runs on", indent=2)
    partly: dict[tuple[str, ...], list[str]] = {}
    for row in facts.runs_on:
        if row.without:
            partly.setdefault(row.without, []).append(row.arch)
        elif row.names:
            table.add(f"{row.arch}", _shortened(row.names), Text(_remark(row), style="warning"))
    for without, archs in partly.items():
        missing = f"partly: no code in {_shortened(_base_names(without), 3)}"
        table.add(Text(f"{' '.join(archs)}", style="dim"), Text(missing, style="dim"))
    return table


def _remark(row: RunsOn) -> str:
    remarks = ["compiled from PTX when it is loaded"] if row.by is DeviceKind.PTX else []
    if row.partly:
        remarks.append(f"some kernels missing in {_shortened(_base_names(row.partly), 3)}")
    return "; ".join(remarks)


def _base_names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def _shortened(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _libraries(facts: ArtifactFacts) -> Listing | None:
    if not facts.libraries:
        return None
    table = Listing(
        "",
        ">size",
        ">device code",
        "C++ ABI",
        "symbols",
        *_SERIES,
        "marked for",
        title="Libraries",
        indent=2,
    )
    by_size = sorted(facts.libraries, key=lambda library: -library.size_bytes)
    for library in by_size[:_MOST_LIBRARIES]:
        table.add(f"{library.path}", size(library.size_bytes), *_library_cells(library))
    if len(by_size) > _MOST_LIBRARIES:
        table.add(f"and {len(by_size) - _MOST_LIBRARIES} smaller libraries")
    return table


def _library_cells(library: LibraryFacts) -> tuple[str | Text, ...]:
    if library.problem:
        return (Text("not read", style="error"),)
    return (
        size(_bytes(library.device_code)) if library.device_code else "",
        library.cxx_abi or "",
        "stripped" if library.stripped else "yes",
        *(library.versions.get(series, "") for series in _SERIES),
        " ".join(library.isa),
    )


def _sections(library: LibraryFacts) -> Listing:
    """Return the largest sections, for the page of a single library."""
    table = Listing("", "", ">", title="Sections", indent=2)
    largest = sorted(library.sections.items(), key=lambda item: -item[1])[:10]
    for name, amount in largest:
        table.add(f"{name}", Text(bar(amount / library.size_bytes), style="bar"), size(amount))
    return table


def _search_paths(libraries: Iterable[LibraryFacts]) -> Listing | None:
    counts = Counter(
        (kind, folders)
        for library in libraries
        for kind, folders in (("RPATH", library.rpath), ("RUNPATH", library.runpath))
        if folders
    )
    if not counts:
        return None
    table = Listing("", ">", "", title="Search paths", indent=2)
    for (kind, folders), count in counts.most_common(_MOST_ROWS):
        table.add(f"{kind}", f"{count} x", Text(" ".join(folders), style="dim"))
    return table


def _dependencies(facts: ArtifactFacts) -> Listing | None:
    """Return the needed libraries by origin, with a line for each that a wheel lacks."""
    if not facts.dependencies:
        return None
    table = Listing("", "", title="Needed libraries", indent=2)
    for origin in LibraryOrigin:
        rows = [row for row in facts.dependencies if row.origin is origin]
        if origin is LibraryOrigin.MISSING and facts.wheel:
            for row in rows[:_MOST_ROWS]:
                table.add(Text("MISSING", style="error"), _lacking(row))
            if len(rows) > _MOST_ROWS:
                table.add("MISSING", f"and {len(rows) - _MOST_ROWS} more")
        elif rows:
            table.add(f"{_ORIGINS[origin]}", Text(_named(rows), style="dim"))
    return table


def _lacking(row: Dependency) -> str:
    known = f"; {row.package} has it, but is not required" if row.package else ""
    return f"{row.name}  needed by {_shortened(_base_names(row.wanted_by), 3)}{known}"


_ORIGINS = {
    LibraryOrigin.FOUND: "included",
    LibraryOrigin.BESIDE: "included, not on the search path",
    LibraryOrigin.SYSTEM: "any Linux",
    LibraryOrigin.DRIVER: "driver",
    LibraryOrigin.PACKAGE: "required packages",
    LibraryOrigin.MISSING: "not included",
}


def _named(rows: Iterable[Dependency]) -> str:
    return "  ".join(f"{row.name} ({row.package})" if row.package else row.name for row in rows)


def _remarks(facts: ArtifactFacts) -> Text | None:
    return Text("\n".join(facts.notes), style="dim") if facts.notes else None


def differences_page(differences: Sequence[FactDifference]) -> Page:
    if not differences:
        return Text("no difference")
    table = Listing("", "", "before", "after")
    subject = ""
    for row in differences:
        if row.subject != subject:
            subject = row.subject
            table.add("", Text(subject, style="bold"))
        sign = "+" if row.before is None else "-" if row.after is None else "~"
        table.add(sign, row.name, row.before or "", row.after or "")
    return table
