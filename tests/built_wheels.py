"""Plain values for tests of packaging: wheels, and search places of libraries without files."""

from collections.abc import Mapping

from stoker.model.artifact import ElfKind, LibraryFacts, WheelFacts
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.places import SearchPlace, SearchPlaces
from stoker.wheel.package.sources import LibrarySource

MACHINE = "x86_64"


def library(
    path: str,
    *needed: str,
    soname: str | None = None,
    rpath: tuple[str, ...] = (),
    runpath: tuple[str, ...] = (),
    kind: ElfKind = ElfKind.LIBRARY,
    machine: str = MACHINE,
    glibc: str = "2.17",
) -> LibraryFacts:
    return LibraryFacts(
        path=path,
        size_bytes=1000,
        kind=kind,
        machine=machine,
        soname=soname,
        needed=needed,
        rpath=rpath,
        runpath=runpath,
        versions={"GLIBC": glibc},
    )


def built(
    *libraries: LibraryFacts,
    name: str = "warm",
    version: str = "1.0",
    requires: tuple[str, ...] = (),
    cuda: str | None = None,
    tags: tuple[str, ...] = (f"cp312-cp312-linux_{MACHINE}",),
) -> BuiltWheel:
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return BuiltWheel(
        path=f"{name}-{version}.whl",
        facts=WheelFacts(
            name=name, version=version, tags=tags, requires=requires, members=1, unpacked_bytes=1
        ),
        libraries=libraries,
        members=tuple(item.path for item in libraries),
        machine=MACHINE,
        metadata=f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\n".encode(),
        wheel=b"Wheel-Version: 1.0\n" + b"".join(f"Tag: {tag}\n".encode() for tag in tags),
        dist_info=f"{name}-{version}.dist-info",
        cuda=cuda,
    )


class FactsPlace(SearchPlace):
    """A place of library facts without files; ``links`` are additional names."""

    def __init__(
        self,
        label: str,
        libraries: Mapping[str, LibraryFacts | None],
        links: Mapping[str, str] | None = None,
    ):
        self.label = label
        self._libraries = libraries
        self._links = links or {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self._libraries, *self._links))

    def source(self, name: str) -> LibrarySource:
        return LibrarySource(file=f"{self.label}/{self._links.get(name, name)}")

    def facts(self, name: str) -> LibraryFacts | None:
        return self._libraries[self._links.get(name, name)]


def places(*libraries: LibraryFacts, label: str = "/place") -> SearchPlaces:
    """Return one place with each library under its path."""
    return SearchPlaces([FactsPlace(label, {item.path: item for item in libraries})], MACHINE)
