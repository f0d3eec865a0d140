"""The bundled libraries of a wheel: their folder and their new names. Pure."""

from collections.abc import Mapping

from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.closure import Closure
from stoker.deliver.package.search_places import FoundLibrary
from stoker.knowledge.wheels import keeps_name

_TORCH_FOLDER = "torch/lib"


def to_be_hashed(closure: Closure) -> tuple[FoundLibrary, ...]:
    """Return the libraries to rename, because another wheel may bundle one with this name."""
    return tuple(found for found in closure.found.values() if not keeps_name(_called(found)))


def hashed_name(name: str, digest: str) -> str:
    """Return a name such as ``libcudart-1a2b3c4d.so.12``."""
    stem, dot, rest = name.partition(".so")
    return f"{stem}-{digest[:8]}{dot}{rest}"


def _called(found: FoundLibrary) -> str:
    return found.facts.soname or found.name


class BundledLibraries:
    """``digests`` are by the name that other libraries need."""

    def __init__(self, built: BuiltWheel, closure: Closure, digests: Mapping[str, str]):
        own = built.dist_info.partition("-")[0]
        self.folder = _TORCH_FOLDER if built.is_torch else f"{own}.libs"
        self._closure = closure
        self.names = {
            name: hashed_name(_called(found), digests[name]) if name in digests else _called(found)
            for name, found in closure.found.items()
        }

    def renamed(self, needed: tuple[str, ...]) -> dict[str, str]:
        """Return the needed names of a library that change, with their new names."""
        return {name: new for name in needed if (new := self.names.get(name, name)) != name}

    @property
    def files(self) -> dict[str, FoundLibrary]:
        """Return the files by new name; a file that is needed by two names is bundled once."""
        return {new: self._closure.found[name] for name, new in self.names.items()}

    def wanted_by(self, new: str) -> tuple[str, ...]:
        names = [name for name, other in self.names.items() if other == new]
        return tuple(dict.fromkeys(by for name in names for by in self._closure.wanted_by[name]))
