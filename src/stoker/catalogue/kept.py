"""The catalogue of wheels that were built on this machine because none fitted.

A wheel is found again by all that it depends on: PyTorch, CUDA, Python, GPU targets, C library, CPU
level and source. All but the first and the last are in the wheel itself; these two are recorded.
Another release of PyTorch than the one it was built with is accepted only for the stable ABI: that
all symbols are there proves that a wheel loads, not that objects have the same layout.
"""

from pathlib import Path

from msgspec.structs import replace

from stoker.catalogue import index
from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.document import CATALOGUE
from stoker.catalogue.index import Pruned
from stoker.catalogue.judging import Place
from stoker.catalogue.publishing import PublishOptions, publish
from stoker.catalogue.store import FolderStore
from stoker.catalogue.values import PublishedWheel
from stoker.model.value import minor_release
from stoker.outside import folders
from stoker.outside.long_work import Say

_SHORT = 8  # characters of a digest


def folder() -> Path:
    return folders.cache() / "wheels"


def kept_wheels() -> LocatedCatalogue | None:
    """Return the catalogue; ``None`` as long as nothing is kept."""
    if not (folder() / CATALOGUE).is_file():
        return None
    # It needs no signature: a process that can write there can replace stoker's settings as well.
    return replace(locate(str(folder())), note="", is_kept=True)


def keep(wheel: Path, name: str, place: Place, source: str | None, *, say: Say) -> PublishedWheel:
    """Keep a wheel that was built for a place. ``name`` is the variant that was planned, ``source``
    the SHA-256 of what it was built from.
    """
    release = place.torch.build.release if place.torch else None
    minor = minor_release(release) if release else None
    words = (name, minor and f"torch{minor}", source and source[:_SHORT])
    options = PublishOptions(
        variant="-".join(filter(None, words)),
        force=True,  # the build has verified it, and said what it found
        replace=True,
        torch=release,
        source=source,
    )
    return publish([str(wheel)], str(folder()), options, say=say).wheels[0]


def remove(names: tuple[str, ...], *, say: Say) -> tuple[PublishedWheel, ...]:
    """Remove wheels by file name, project, or project and version."""
    return index.remove_wheels(FolderStore(folder()), names, None, say=say)


def prune(keep_newest: int | None, *, dry_run: bool, say: Say) -> Pruned:
    """Remove all but the newest versions of each project, and files that nothing refers to."""
    store = FolderStore(folder())
    return index.remove_older(store, keep=keep_newest, dry_run=dry_run, say=say)
