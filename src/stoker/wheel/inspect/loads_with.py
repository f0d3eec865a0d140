"""Resolves the undefined symbols of libraries against builds of PyTorch. Pure."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from stoker.knowledge.torch_symbols import (
    TorchBuild,
    back_end_of,
    exporters,
    is_of_shim,
    is_torch_library,
    is_torchs,
    known_builds,
)
from stoker.model.artifact import LoadsWith, Symbols, TorchFit
from stoker.model.distribution import read_version
from stoker.model.value import Value
from stoker.wheel.zip.metadata import forbidding, required_name


class TorchNeeds(Value, frozen=True, kw_only=True):
    """What the libraries of a wheel need from PyTorch."""

    machine: str
    libraries: tuple[str, ...]
    symbols: tuple[str, ...]

    @property
    def back_end(self) -> str | None:
        return next(filter(None, map(back_end_of, self.libraries)), None)


class ReadTorch(Value, frozen=True, kw_only=True):
    """A build of PyTorch that was read directly; ``place`` is where. ``toolkit`` is the release of
    CUDA that it was built with.
    """

    build: TorchBuild
    place: str
    exported: frozenset[str]
    toolkit: str | None = None


def torch_needs(libraries: Sequence[Symbols]) -> TorchNeeds | None:
    """Return what all libraries of a wheel need from PyTorch; None if they need nothing, or
    contain PyTorch.
    """
    beside = {one.file: one for one in libraries}
    torchs = {name for one in libraries for name in one.needed if is_torch_library(name)}
    torchs -= beside.keys()
    if not torchs:
        return None
    wanted = set(filter(is_torchs, set[str]().union(*(one.undefined for one in libraries))))
    exporting: dict[str, set[str]] = {}  # the libraries that export a wanted name
    for one in libraries:
        for name in wanted & one.exported:
            exporting.setdefault(name, set()).add(one.file)
    needed = {one.file: beside.keys() & one.needed for one in libraries}
    names = {
        name
        for one in libraries
        for loaded in [_loaded_by(one.file, needed)]
        for name in wanted & one.undefined
        if loaded.isdisjoint(exporting.get(name, ()))
    }
    return TorchNeeds(
        machine=next(one.machine for one in libraries if torchs & set(one.needed)),
        libraries=tuple(sorted(torchs)),
        symbols=tuple(sorted(names)),
    )


def _loaded_by(library: str, needed: Mapping[str, set[str]]) -> set[str]:
    """Return the libraries of the same wheel that are loaded because a library needs them. The
    loader does not search the others: Python loads each extension module for itself.
    """
    found: set[str] = set()
    waiting = set(needed[library])
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= needed[name] - found
    return found


def loads_with(
    needs: TorchNeeds, read: Sequence[ReadTorch] = (), requires: Sequence[str] = ()
) -> LoadsWith:
    """Return which official builds, and which that were read, have everything that is needed.
    ``requires`` are the requirements of the wheel.
    """
    official = [
        _fit(needs, build, lambda name, place=place: bool(exporters(name) >> place & 1))  # type: ignore[misc]
        for place, build in enumerate(known_builds())
        if build.machine == needs.machine
    ]
    direct = [_fit(needs, one.build, one.exported.__contains__, one.place) for one in read]
    on_torch = [line for line in requires if required_name(line) == "torch"]
    fits = (*sorted(official, key=lambda fit: read_version(fit.release)), *direct)
    return LoadsWith(
        symbols=len(needs.symbols),
        stable_abi=bool(needs.symbols) and all(map(is_of_shim, needs.symbols)),
        back_end=needs.back_end,
        builds=tuple(
            replace(fit, forbidden_by=forbidding(on_torch, "torch", fit.release) or "")
            for fit in fits
        ),
    )


def _fit(
    needs: TorchNeeds, build: TorchBuild, exports: Callable[[str], bool], place: str = ""
) -> TorchFit:
    return TorchFit(
        release=build.release,
        cuda=build.cuda,
        torch=place,
        missing=tuple(name for name in needs.symbols if not exports(name)),
        absent=tuple(name for name in needs.libraries if name not in build.libraries),
    )


def relevant(loads: LoadsWith) -> tuple[TorchFit, ...]:
    """Return the builds that come into question: those with the back end that is needed."""
    return tuple(
        fit
        for fit in loads.builds
        if not any(back_end_of(name) == loads.back_end for name in fit.absent)
    )
