"""Selects the device code to keep for the requested GPUs, and cuts the rest out of libraries.

Code is kept if it runs on a GPU, whatever its name: an RTX 4090 (8.9) runs code for 8.6 if there is
none for 8.9. NVIDIA's own libraries stay unchanged unless the user asks for it, because their
licence forbids redistributing modified ones; the result is then marked as private.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import msgspec
from packaging.utils import canonicalize_name

from stoker.knowledge.sonames import is_nvidias, unhashed
from stoker.model.errors import ArtifactError, StorageError, StorageErrors, UsageError
from stoker.model.slimming import LibrarySlim, SlimRecord
from stoker.model.value import UNDECODABLE, Value, indented_json, prepared, size
from stoker.model.variant import GpuTarget
from stoker.outside.files import Stamp, stamp_of
from stoker.outside.long_work import stage
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import FatbinEntry
from stoker.wheel.inspect.runs_on import arch_order, needed_code
from stoker.wheel.reader import Reader, open_file, printable
from stoker.wheel.slim.arch_list import is_about, kept_words, write_words
from stoker.wheel.slim.library import LibraryPlan, SlimOptions, plan_library, write_library
from stoker.wheel.slim.regions import Choose
from stoker.wheel.zip.threads import threads

LICENCE = "NVIDIA's licence forbids redistributing modified libraries"
# The package index refuses every upload with a classifier that starts with "Private".
PRIVATE = "Private :: Do Not Upload"
ASIDE = ".stoker-slim-"  # prefix of temporary folders


def target_words(gpus: Iterable[GpuTarget]) -> str:
    """Return the GPUs as a version label has them: ``sm86.ptx.sm90``."""
    return ".".join(gpu.word.replace("+", ".") for gpu in gpus)


def chooser(gpus: Sequence[GpuTarget]) -> Choose:
    """Return a function that picks the entries of a region to keep."""

    def choose(entries: Sequence[FatbinEntry]) -> Iterable[int]:
        needed = needed_code((entry.arch for entry in entries), gpus)
        return [index for index, entry in enumerate(entries) if entry.arch in needed]

    return choose


def check_served(libraries: Collection[LibrarySlim], gpus: Iterable[GpuTarget]) -> None:
    """Raise an error if a target has no code to run in any library: it may be mistyped."""
    held = {row.arch for library in libraries for row in library.archs}
    for gpu in gpus:
        if held and not needed_code(held, [GpuTarget(arch=gpu.arch)]):
            raise UsageError(
                f"it holds no device code that runs on {target_words([gpu])}",
                hints=[f"choose GPUs among {' '.join(sorted(held, key=arch_order))}"],
            )


def is_nvidia_distribution(name: str) -> bool:
    return canonicalize_name(name).startswith("nvidia-")


def is_nvidia_library(path: str, soname: str | None) -> bool:
    names = (PurePosixPath(path).name, soname or "")
    return any(is_nvidias(unhashed(name)) for name in names)


def nvidia_refusal(what: str) -> UsageError:
    return UsageError(
        f"{what} was not changed: {LICENCE}",
        hints=["add --nvidia to slim it for use on your own machines; it is marked as private"],
    )


class SlimRequest(Value, frozen=True, kw_only=True):
    """``nvidia`` includes NVIDIA's own libraries, for private use.

    ``label`` is the local version of the slimmed wheel. Without it, the GPUs are appended to the
    local version that the wheel has.
    """

    gpus: tuple[GpuTarget, ...]
    options: SlimOptions = SlimOptions()
    nvidia: bool = False
    label: str | None = None


class Cut(Value, frozen=True, kw_only=True):
    """An ELF file and its plan, which is None if the device code stays unchanged.

    ``stamp`` identifies the file that was read.
    """

    name: str
    file: Path
    stamp: Stamp
    summary: LibrarySlim
    plan: LibraryPlan | None = None
    listing: tuple[str, ...] | None = None  # the new words of PyTorch's list of architectures
    nvidia: bool = False

    @property
    def changes(self) -> bool:
        return self.plan is not None or self.listing is not None


def plan_cut(name: str, file: Path, request: SlimRequest, *, nvidia_owned: bool = False) -> Cut:
    """Plan one ELF file. The summary says why a malformed or unknown file stays unchanged."""
    with StorageErrors("read", file):
        stamp = stamp_of(file)
    with open_file(file, printable(name)) as reader:
        plan = plan_library(reader, chooser(request.gpus), request.options)
        if not plan.changes:
            return Cut(name=name, file=file, stamp=stamp, summary=plan.summary)
        nvidias = nvidia_owned or is_nvidia_library(name, _soname(reader))
    if nvidias and not request.nvidia:
        summary = _left(plan.summary, LICENCE)
        return Cut(name=name, file=file, stamp=stamp, summary=summary)
    return Cut(name=name, file=file, stamp=stamp, summary=plan.summary, plan=plan, nvidia=nvidias)


def plan_cuts(
    files: Mapping[str, Path], request: SlimRequest, *, nvidia_owned: frozenset[str] = frozenset()
) -> tuple[Cut, ...]:
    """Plan ELF files, given by name, with PyTorch's list of architectures."""

    def plan(name: str) -> Cut:
        cut = plan_cut(name, files[name], request, nvidia_owned=name in nvidia_owned)
        advance(cut.summary.before_bytes)
        return cut

    with StorageErrors("read"):
        total = sum(file.stat().st_size for file in files.values())
    with stage("reading device code", total) as advance, ThreadPoolExecutor(threads()) as pool:
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
        path=summary.path,
        before_bytes=summary.before_bytes,
        after_bytes=summary.before_bytes,
        skipped_because=why,
    )


def write_cut(cut: Cut, target: Path) -> None:
    """Write the new file, with the permissions of the original."""
    with StorageErrors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if cut.plan is None:
            shutil.copyfile(cut.file, target)
        else:
            with open_file(cut.file) as reader:
                write_library(cut.plan, reader, target)
        if cut.listing is not None:
            write_words(target, cut.listing)
        shutil.copymode(cut.file, target)


def write_cuts(cuts: Collection[Cut], target: Callable[[Cut], Path]) -> tuple[Cut, ...]:
    """Write the files that change, each to its target; return all cuts as they were made.

    A file that does not pass its check stays unchanged. The list of architectures is written last;
    it stays unchanged if the code that it describes does.
    """

    def write(cut: Cut) -> Cut:
        made = _written(cut, target)
        advance(cut.summary.before_bytes if cut.changes else 0)
        return made

    total = sum(cut.summary.before_bytes for cut in changed(cuts))
    with (
        stage("writing and comparing libraries", total) as advance,
        ThreadPoolExecutor(threads()) as pool,
    ):
        plain = [cut for cut in cuts if cut.listing is None]
        become = list(pool.map(write, plain))
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
    """Raise an error if the disk of a folder, which may not exist yet, has too little space."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise StorageError(
            f"not enough disk space in {folder}: up to {size(needed)} are needed, "
            f"{size(free)} are free",
            hints=["free disk space, or choose another folder with --out"],
        )


def make_record(
    request: SlimRequest, changed: Iterable[Cut], before: SlimRecord | None
) -> SlimRecord:
    """Return the record of a slimming. A private distribution stays private."""
    return SlimRecord(
        targets=tuple(f"{gpu.arch}{'+ptx' if gpu.ptx else ''}" for gpu in request.gpus),
        label=request.label or target_words(request.gpus),
        private=any(cut.nvidia for cut in changed) or (before is not None and before.private),
    )


def encode_record(record: SlimRecord) -> bytes:
    return indented_json(record) + b"\n"


def decode_record(content: bytes) -> SlimRecord | None:
    """Return the record of an earlier slimming, or None if it cannot be read."""
    try:
        return msgspec.json.decode(content, type=prepared(SlimRecord))
    except UNDECODABLE:
        return None
