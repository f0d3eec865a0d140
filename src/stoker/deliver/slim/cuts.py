"""Files to be slimmed together: planned first, written when all plans are known."""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from stoker.artifact import elf
from stoker.artifact.elf import Elf
from stoker.artifact.engine.parallel import threads
from stoker.artifact.printable import printable
from stoker.artifact.reader import Reader, open_file
from stoker.deliver.slim import nvidia
from stoker.deliver.slim.arch_list import is_about, kept_words, write_words
from stoker.deliver.slim.in_place import Stamp, stamp_of
from stoker.deliver.slim.library import LibraryPlan, SlimOptions, plan_library
from stoker.deliver.slim.selection import chooser
from stoker.deliver.slim.writing import write_library
from stoker.model.errors import ArtifactError, StorageError
from stoker.model.slim import LibrarySlim
from stoker.model.units import size
from stoker.model.value import Value
from stoker.model.variant import GpuTarget


class SlimRequest(Value, frozen=True, kw_only=True):
    """``nvidia``: NVIDIA's own libraries too, for use on the spot."""

    gpus: tuple[GpuTarget, ...]
    options: SlimOptions = SlimOptions()
    nvidia: bool = False


class Cut(Value, frozen=True, kw_only=True):
    """An ELF file and what becomes of it. ``plan`` None: its device code stays as it is.

    ``stamp`` is that of the file when it was read.
    """

    name: str
    file: Path
    stamp: Stamp
    summary: LibrarySlim
    plan: LibraryPlan | None = None
    listing: tuple[str, ...] | None = None  # what PyTorch's list of architectures is to say
    nvidia: bool = False

    @property
    def changes(self) -> bool:
        return self.plan is not None or self.listing is not None


def plan_cut(name: str, file: Path, request: SlimRequest, *, nvidia_owned: bool = False) -> Cut:
    """Of an ELF file; what is not understood in it is said in the summary."""
    try:
        stamp = stamp_of(file)
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror}") from error
    with open_file(file, printable(name)) as reader:
        plan = plan_library(reader, chooser(request.gpus), request.options)
        if not plan.changes:
            return Cut(name=name, file=file, stamp=stamp, summary=plan.summary)
        nvidias = nvidia_owned or nvidia.is_nvidia_library(name, _soname(reader))
    if nvidias and not request.nvidia:
        summary = _left(plan.summary, nvidia.LICENCE)
        return Cut(name=name, file=file, stamp=stamp, summary=summary)
    return Cut(name=name, file=file, stamp=stamp, summary=plan.summary, plan=plan, nvidia=nvidias)


def plan_cuts(
    files: Mapping[str, Path], request: SlimRequest, *, nvidia_owned: frozenset[str] = frozenset()
) -> tuple[Cut, ...]:
    """Of ELF files by name, with the list that PyTorch shows of its architectures."""

    def plan(name: str) -> Cut:
        return plan_cut(name, files[name], request, nvidia_owned=name in nvidia_owned)

    with ThreadPoolExecutor(threads()) as pool:
        cuts = list(pool.map(plan, sorted(files)))
    summaries = [cut.summary for cut in cuts]
    return tuple(
        msgspec.structs.replace(cut, listing=kept_words(cut.file, request.gpus))
        if is_about(cut.name, summaries)
        else cut
        for cut in cuts
    )


def _soname(reader: Reader) -> str | None:
    try:
        return next(iter(Elf(reader).strings(elf.SONAME)), None)
    except ArtifactError:
        return None


def _left(summary: LibrarySlim, why: str) -> LibrarySlim:
    return LibrarySlim(
        path=summary.path, before=summary.before, after=summary.before, skipped_because=why
    )


def write_cut(cut: Cut, target: Path) -> None:
    """The file as it will be, with the permissions that it has."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if cut.plan is None:
            shutil.copyfile(cut.file, target)
        else:
            with open_file(cut.file) as reader:
                write_library(cut.plan, reader, target)
        if cut.listing is not None:
            write_words(target, cut.listing)
        shutil.copymode(cut.file, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error


def write_cuts(cuts: Collection[Cut], target: Callable[[Cut], Path]) -> tuple[Cut, ...]:
    """Write those that change, each to its target; give back all as they became.

    One that does not pass its check is left as it is. The list of architectures comes last: it is
    left, too, if the code it speaks of is.
    """
    with ThreadPoolExecutor(threads()) as pool:
        plain = [cut for cut in cuts if cut.listing is None]
        become = list(pool.map(lambda cut: _written(cut, target), plain))
    summaries = [cut.summary for cut in become]
    for cut in cuts:
        if cut.listing is not None:
            listing = cut.listing if is_about(cut.name, summaries) else None
            become.append(_written(msgspec.structs.replace(cut, listing=listing), target))
    return tuple(sorted(become, key=lambda cut: cut.name))


def _written(cut: Cut, target: Callable[[Cut], Path]) -> Cut:
    try:
        if cut.changes:
            write_cut(cut, target(cut))
    except ArtifactError as error:
        summary = _left(cut.summary, str(error))
        return Cut(name=cut.name, file=cut.file, stamp=cut.stamp, summary=summary)
    return cut


def changed(cuts: Iterable[Cut]) -> list[Cut]:
    return [cut for cut in cuts if cut.changes]


def check_room(folder: Path, needed: int) -> None:
    """Whether so much can be written there; the folder itself may not be there yet."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise StorageError(
            f"there is not enough room in {folder}: up to {size(needed)} are needed, "
            f"{size(free)} are free"
        )
