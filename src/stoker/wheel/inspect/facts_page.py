"""The page of `stoker inspect`: the facts of an artifact."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from packaging.tags import Tag

from stoker.knowledge.sonames import cuda_of
from stoker.model.artifact import (
    ArtifactFacts,
    Compression,
    DeviceCode,
    DeviceKind,
    LibraryFacts,
    LibraryOrigin,
    LoadsWith,
)
from stoker.model.distribution import read_tags
from stoker.model.value import first_of, size, version_numbers
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.wheel.inspect.loads_with import relevant
from stoker.wheel.inspect.loads_with_words import fit_name, lacking, pinned, releases_in_words
from stoker.wheel.inspect.runs_on import arch_number
from stoker.wheel.zip.metadata import required_name

_BAR_WIDTH = 28
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_LIBRARIES = 30
_MOST_NAMES = 5
_MOST_ROWS = 200  # of a table: no real wheel has as many, and one made to has millions
_SERIES = ("GLIBC", "GLIBCXX", "CXXABI")
_ORIGINS = {
    LibraryOrigin.FOUND: "included",
    LibraryOrigin.BESIDE: "included, not on the search path",
    LibraryOrigin.SYSTEM: "any Linux",
    LibraryOrigin.DRIVER: "driver",
    LibraryOrigin.PACKAGE: "required packages",
    LibraryOrigin.MISSING: "not included",
}


def inspection_page(facts: ArtifactFacts) -> Page:
    parts = [
        _head(facts),
        _device_code(facts),
        _gpus(facts),
        _loads_with(facts),
        _libraries(facts),
        _sections(facts.libraries[0]) if len(facts.libraries) == 1 else None,
        _search_paths(facts.libraries),
        _dependencies(facts),
        Text("\n".join(facts.notes), style="dim") if facts.notes else None,
    ]
    spaced = [line for part in parts if part is not None for line in (part, Text())]
    return Group(*spaced[:-1])


def _share_bar(share: float) -> str:
    """Return a bar that fills ``share`` of the width, to an eighth of a character; never empty."""
    eighths = max(1, round(min(share, 1.0) * _BAR_WIDTH * 8))
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(_BAR_WIDTH)


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
    linked = [code for code in codes if code.linked]
    for code in sorted(linked, key=lambda code: (code.kind, arch_number(code.arch), code.arch)):
        by_arch.setdefault(code.arch, []).append(code)
    largest = max((_bytes(group) for group in by_arch.values()), default=0)
    table = Listing("", "", ">", ">", "", title=f"Device code  {size(_bytes(codes))}", indent=2)
    for arch, group in islice(by_arch.items(), _MOST_ROWS):
        share = Text(_share_bar(_bytes(group) / max(1, largest)), style="bar")
        table.add(arch, share, *_amounts(group))
    if left_over := [code for code in codes if not code.linked]:
        table.add("not linked", Text("never runs", style="dim"), *_amounts(left_over))
    return table


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
            remarks = ["compiled from PTX when it is loaded"] if row.by is DeviceKind.PTX else []
            if row.partly:
                remarks.append(f"some kernels missing in {first_of(_base_names(row.partly), 3)}")
            remark = Text("; ".join(remarks), style="warning")
            table.add(row.arch, first_of(row.names, _MOST_NAMES), remark)
    for without, archs in partly.items():
        missing = f"partly: no code in {first_of(_base_names(without), 3)}"
        table.add(Text(" ".join(archs), style="dim"), Text(missing, style="dim"))
    return table


def _base_names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def _loads_with(facts: ArtifactFacts) -> Page | None:
    """Return the table of the releases of PyTorch; None if the libraries do not use it."""
    if facts.loads_with is None:
        return None
    words = releases_in_words(facts.loads_with)
    pins = dict.fromkeys(pinned(fit) for fit in relevant(facts.loads_with) if fit.loads)
    title = ", and ".join([f"Loads with {words}", *filter(None, pins)])
    table = Listing("", "", "", title=title, indent=2)
    for name, value, remark in _fitting(facts, facts.loads_with):
        if value:
            table.add(name, value, Text(remark, style="dim"))
    failing = _failing(facts.loads_with)
    return Group(table, Text(), failing) if failing else table


def _fitting(facts: ArtifactFacts, loads: LoadsWith) -> Iterator[tuple[str, str, str]]:
    libraries = [library for library in facts.libraries if not library.problem]
    kind = "the C shim only: stable ABI" if loads.stable_abi else "C++: unstable ABI"
    yield "symbols", f"{loads.symbols} of PyTorch", kind
    requires = facts.wheel.requires if facts.wheel else ()
    yield "requires", ", ".join(one for one in requires if required_name(one) == "torch"), ""
    needed = sorted({name for library in libraries for name in library.needed})
    majors = {cuda: name for name in needed if (cuda := cuda_of(name))}
    torchs = sorted({fit.cuda for fit in relevant(loads) if fit.loads and fit.cuda})
    of_torch = f"that torch has CUDA {' or '.join(torchs)}" if torchs else ""
    of_wheel = ", ".join(majors.values())
    yield "CUDA", " ".join(map(str, sorted(majors))), "; ".join(filter(None, (of_wheel, of_torch)))
    yield "C++ ABI", " ".join(sorted({str(one.cxx_abi) for one in libraries if one.cxx_abi})), ""
    tags = read_tags(facts.wheel.tags) if facts.wheel else ()
    yield "Python", ", ".join(sorted({_python(tag) for tag in tags})), ""
    glibc = [one.versions["GLIBC"] for one in libraries if "GLIBC" in one.versions]
    yield "glibc", max(glibc, key=version_numbers, default=""), f"{facts.manylinux or ''}"
    yield "GPUs", " ".join(row.arch for row in facts.runs_on if not row.without), ""


def _python(tag: Tag) -> str:
    """Return ``3.12`` for ``cp312-cp312``, and ``3.9 or newer`` for ``cp39-abi3``."""
    digits = tag.interpreter.lstrip("abcdefghijklmnopqrstuvwxyz")
    version = f"{digits[:1]}.{digits[1:]}" if digits[1:] else digits or tag.interpreter
    exact = tag.abi.startswith("cp")
    return version if exact else f"{version} or newer"


def _failing(loads: LoadsWith) -> Listing | None:
    """Return a row for each build that does not have everything."""
    rows = [fit for fit in relevant(loads) if not fit.loads or fit.torch]
    if not rows:
        return None
    table = Listing("", "", ">", "", title="What each PyTorch lacks", indent=2)
    for fit in rows:
        build = f"CUDA {fit.cuda}" if fit.cuda else "CPU"
        count = len(fit.missing) + len(fit.absent)
        table.add(fit_name(fit), build, str(count or "nothing"), lacking(fit) or pinned(fit))
    return table


def _libraries(facts: ArtifactFacts) -> Listing | None:
    if not facts.libraries:
        return None
    names = ("", ">size", ">device code", "C++ ABI", "symbols", *_SERIES, "marked for")
    table = Listing(*names, title="Libraries", indent=2)
    by_size = sorted(facts.libraries, key=lambda library: -library.size_bytes)
    for library in by_size[:_MOST_LIBRARIES]:
        cells: tuple[str | Text, ...] = (
            size(_bytes(library.device_code)) if library.device_code else "",
            library.cxx_abi or "",
            "stripped" if library.stripped else "yes",
            *(library.versions.get(series, "") for series in _SERIES),
            " ".join(library.isa),
        )
        if library.problem:
            cells = (Text("not read", style="error"),)
        table.add(library.path, size(library.size_bytes), *cells)
    if len(by_size) > _MOST_LIBRARIES:
        table.add(f"and {len(by_size) - _MOST_LIBRARIES} smaller libraries")
    return table


def _sections(library: LibraryFacts) -> Listing:
    """Return the largest sections, for the page of a single library."""
    table = Listing("", "", ">", title="Sections", indent=2)
    largest = sorted(library.sections.items(), key=lambda item: -item[1])[:10]
    for name, amount in largest:
        table.add(name, Text(_share_bar(amount / library.size_bytes), style="bar"), size(amount))
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
        table.add(kind, f"{count} x", Text(" ".join(folders), style="dim"))
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
                known = f"; {row.package} has it, but is not required" if row.package else ""
                table.add(
                    Text("MISSING", style="error"),
                    f"{row.name}  needed by {first_of(_base_names(row.wanted_by), 3)}{known}",
                )
            if len(rows) > _MOST_ROWS:
                table.add("MISSING", f"and {len(rows) - _MOST_ROWS} more")
        elif rows:
            names = (f"{row.name} ({row.package})" if row.package else row.name for row in rows)
            table.add(_ORIGINS[origin], Text("  ".join(names), style="dim"))
    return table
