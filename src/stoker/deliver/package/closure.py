"""Which libraries a wheel has to take in: all that it needs by name and nobody else provides, what
these need in turn, and what they open by name when they run.
"""

from pathlib import PurePosixPath

from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.providers import Provider, Providers
from stoker.deliver.package.search_places import FoundLibrary, SearchPlaces
from stoker.knowledge.nvidia_packages import opened_by
from stoker.model.errors import MissingError, UsageError
from stoker.model.value import Value

_MOST_PLACES = 12


class Closure(Value, frozen=True, kw_only=True):
    """Libraries by the name that others need, and who these are."""

    found: dict[str, FoundLibrary] = {}
    wanted_by: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


def gather(
    built: BuiltWheel, providers: Providers, places: SearchPlaces, *, cuda: int | None = None
) -> Closure:
    """``cuda`` is the major version: what is opened at run time must be of it."""
    walk = _Walk(providers, places, cuda)
    for library in built.libraries:
        walk.need_all(library.needed, library.path)
    for library in built.libraries:
        walk.offer_opened(library.soname or PurePosixPath(library.path).name)
    if walk.missing:
        raise _not_found(walk.missing, places)
    _check_sonames(walk.found)
    return Closure(
        found=walk.found,
        wanted_by={name: tuple(wanting) for name, wanting in walk.wanted_by.items()},
        notes=tuple(dict.fromkeys(walk.notes)),
    )


class _Walk:
    def __init__(self, providers: Providers, places: SearchPlaces, cuda: int | None):
        self._providers = providers
        self._places = places
        self._cuda = cuda
        self.found: dict[str, FoundLibrary] = {}
        self.wanted_by: dict[str, list[str]] = {}
        self.missing: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def need_all(self, names: tuple[str, ...], by: str) -> None:
        for name in names:
            if self._providers.of(name) is Provider.BUNDLE:
                self._need(name, by)

    def _need(self, name: str, by: str) -> None:
        if name not in self.found and name not in self.missing:
            if found := self._places.find(name):
                self._take(found)
            else:
                self.missing[name] = []
        wanting = self.wanted_by if name in self.found else self.missing
        wanting.setdefault(name, []).append(by)

    def _take(self, found: FoundLibrary) -> None:
        self.found[found.name] = found
        self.need_all(found.facts.needed, found.name)
        self.offer_opened(found.name)

    def offer_opened(self, opener: str) -> None:
        """A library that opens others mostly works without them, so they are no must."""
        for pattern in opened_by(opener, self._cuda):
            names = self._places.matching(pattern)
            taken = [name for name in names if self._providers.of(name) is Provider.BUNDLE]
            for name in taken:
                self._offer(name, opener)
            if not names and self._providers.of(pattern) is Provider.BUNDLE:
                self.notes.append(f"{opener} opens {pattern}, which was not found")

    def _offer(self, name: str, opener: str) -> None:
        """Take it in, unless what it needs itself is not there."""
        if name in self.found:
            self.wanted_by.setdefault(name, []).append(opener)
            return
        attempt = _Walk(self._providers, self._places, self._cuda)
        attempt.found = dict(self.found)
        attempt.wanted_by = {other: list(by) for other, by in self.wanted_by.items()}
        attempt._need(name, opener)
        if attempt.missing:
            lacking = ", ".join(other for other in attempt.missing if other != name)
            self.notes.append(f"{opener} opens {name}, which is left out: {lacking} was not found")
            return
        self.found, self.wanted_by = attempt.found, attempt.wanted_by
        self.notes += attempt.notes


def _not_found(missing: dict[str, list[str]], places: SearchPlaces) -> MissingError:
    (name, wanting), *others = missing.items()
    hints = [f"unfit: {file}" for file in places.unfit.get(name, ())]
    labels = places.labels
    more = f" and {len(labels) - _MOST_PLACES} more" if len(labels) > _MOST_PLACES else ""
    hints += [
        f"looked in {', '.join(labels[:_MOST_PLACES])}{more}",
        "--library-folder PATH: a folder, a wheel or a folder of wheels that has it",
        f"--exclude {name}: whoever installs the wheel provides it",
    ]
    if others:
        hints.insert(0, f"nor were {', '.join(other for other, _ in others)}")
    return MissingError(
        f"{name} was not found, and is needed by {', '.join(dict.fromkeys(wanting))}", hints=hints
    )


def _check_sonames(found: dict[str, FoundLibrary]) -> None:
    """The loader takes a second library of the same name for the first, whichever it is."""
    seen: dict[str, FoundLibrary] = {}
    for library in found.values():
        soname = library.facts.soname or library.name
        other = seen.setdefault(soname, library)
        if other.source != library.source:
            raise UsageError(
                f"two libraries are called {soname}: {other.source} and {library.source}",
                hints=[f"--exclude {library.name}: whoever installs the wheel provides it"],
            )
