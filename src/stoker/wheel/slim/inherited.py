"""What a slimmed wheel takes over from its original: the errors that slimming cannot change.

They are found by the checks of `stoker verify` and written to the slim record, so that `verify` can
tell inherited errors from new ones. Search paths to folders of the build machine are repaired.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from stoker.model.finding import Severity
from stoker.model.value import first_of
from stoker.outside.long_work import stage
from stoker.wheel.elf.edit import ElfEdit
from stoker.wheel.inspect.facts import metadata_of, read_library_file
from stoker.wheel.inspect.inspecting import wheel_artifact
from stoker.wheel.inspect.origins import is_nvidias_library, portable_paths, starts_at_origin
from stoker.wheel.reader import printable
from stoker.wheel.slim.files import PlannedFile
from stoker.wheel.slim.selection import SlimRequest
from stoker.wheel.verify.placement import read_placed
from stoker.wheel.verify.surviving import SURVIVING
from stoker.wheel.verify.tested import WheelUnderTest
from stoker.wheel.zip import Wheel
from stoker.wheel.zip.revision import read_excluded

_FEW = 3  # names in a note


class Inheritance(NamedTuple):
    """``repairs`` are the new search paths by library, ``notes`` name these libraries, and
    ``errors`` are lines by the name of the finding.
    """

    repairs: dict[str, ElfEdit]
    notes: tuple[str, ...]
    errors: dict[str, tuple[str, ...]]


def inherit(
    wheel: Wheel, kind: bytes, files: Collection[PlannedFile], request: SlimRequest
) -> Inheritance:
    """Examine the original wheel, whose libraries are ``files``.

    ``kind`` is WHEEL with the tags of the slimmed wheel: errors that follow from them are older
    than the slimming.
    """
    metadata = metadata_of(wheel, kind)
    read = []
    with stage("reading libraries", sum(file.summary.before_bytes for file in files)) as advance:
        for file in files:
            if library := read_library_file(file.path, printable(file.name)):
                read.append(library)
            advance(file.summary.before_bytes)
    original = WheelUnderTest(
        file_name=wheel.path.name,
        facts=wheel_artifact(wheel.path, metadata, tuple(read), tuple(wheel.members)),
        metadata=metadata,
        members=tuple(wheel.members.values()),
        placed=read_placed(wheel),
        excluded=read_excluded(wheel),
    )
    # Search paths lose the folders of the build machine, which other machines lack. NVIDIA's own
    # libraries stay unchanged unless the user allows it.
    own = tuple(
        library
        for library in original.libraries
        if request.nvidia or not is_nvidias_library(library.path, library.soname)
    )
    as_runpath = {library.path: bool(library.runpath) for library in own}
    repairs = {
        path: ElfEdit(rpath=":".join(folders), as_runpath=as_runpath[path])
        for path, folders in portable_paths(own, original.facts.dependencies).items()
    }
    gone: dict[str, list[str]] = {}
    libraries = list(original.facts.libraries)
    for index, library in enumerate(libraries):
        if edit := repairs.get(library.path):
            folders = library.runpath or library.rpath
            gone[library.path] = [folder for folder in folders if not starts_at_origin(folder)]
            runpath = tuple((edit.rpath or "").split(":"))
            libraries[index] = msgspec.structs.replace(library, rpath=(), runpath=runpath)
    facts = msgspec.structs.replace(original.facts, libraries=tuple(libraries))
    repaired = msgspec.structs.replace(original, facts=facts)
    found = (finding for check in SURVIVING for finding in check(repaired))
    errors = {
        finding.name: tuple(finding.evidence.splitlines())
        for finding in found
        if finding.severity is Severity.ERROR
    }
    return Inheritance(repairs, _notes(gone), errors)


def _notes(gone: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the note on the folders of the build machine, by library."""
    if not gone:
        return ()
    libraries = first_of(list(gone), _FEW)
    folders = first_of(list(dict.fromkeys(chain.from_iterable(gone.values()))), _FEW)
    search, it = ("searches", "it") if len(gone) == 1 else ("search", "them")
    return (f"{libraries} no longer {search} folders of the machine that built {it}: {folders}",)
