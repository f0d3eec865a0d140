"""Plans and writes the ELF files of whatever is slimmed, and the record of what was done.

NVIDIA's own libraries stay unchanged unless the user asks for it, because their licence forbids
redistributing modified ones; the result is then marked as private.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from stoker.model.errors import ArtifactError, StorageError, StorageErrors, UsageError
from stoker.model.slimming import LibrarySlim, SlimRecord
from stoker.model.value import UNDECODABLE, Value, indented_json, prepared, size
from stoker.outside.files import Stamp, stamp_of
from stoker.outside.long_work import stage
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf
from stoker.wheel.inspect.origins import is_nvidias_library
from stoker.wheel.reader import open_file, printable
from stoker.wheel.slim.arch_list import is_about, kept_words, write_words
from stoker.wheel.slim.library import LibraryPlan, plan_library, write_library
from stoker.wheel.slim.selection import SlimRequest, chooser, target_words
from stoker.wheel.zip.threads import threads

LICENCE = "NVIDIA's licence forbids redistributing modified libraries"
# The package index refuses every upload with a classifier that starts with "Private".
PRIVATE = "Private :: Do Not Upload"
ASIDE = ".stoker-slim-"  # prefix of temporary folders


def is_nvidia_distribution(name: str) -> bool:
    return canonicalize_name(name).startswith("nvidia-")


def nvidia_refusal(what: str) -> UsageError:
    return UsageError(
        f"{what} was not changed: {LICENCE}",
        hints=["add --nvidia to slim it for use on your own machines; it is marked as private"],
    )


class PlannedFile(Value, frozen=True, kw_only=True):
    """An ELF file and its plan, which is None if the device code stays unchanged.

    ``name`` is what its wheel or folder calls it, ``path`` where it is; ``stamp`` identifies the
    content that was read.
    """

    name: str
    path: Path
    stamp: Stamp
    summary: LibrarySlim
    plan: LibraryPlan | None = None
    listing: tuple[str, ...] | None = None  # the new words of PyTorch's list of architectures
    nvidia: bool = False

    @property
    def changes(self) -> bool:
        return self.plan is not None or self.listing is not None

    def unchanged(self, why: str) -> "PlannedFile":
        """Return the file without its plan; ``why`` says what prevented the change."""
        summary = LibrarySlim(
            path=self.summary.path,
            before_bytes=self.summary.before_bytes,
            after_bytes=self.summary.before_bytes,
            skipped_because=why,
        )
        return PlannedFile(name=self.name, path=self.path, stamp=self.stamp, summary=summary)


def plan_file(
    name: str, path: Path, request: SlimRequest, *, nvidia_owned: bool = False
) -> PlannedFile:
    """Plan one ELF file. The summary says why a malformed or unknown file stays unchanged."""
    with StorageErrors("read", path):
        stamp = stamp_of(path)
    soname = None
    with open_file(path, printable(name)) as reader:
        plan = plan_library(reader, chooser(request.gpus), request.options)
        if plan.changes:
            with suppress(ArtifactError):
                soname = next(iter(Elf(reader).strings(elf.SONAME)), None)
    planned = PlannedFile(name=name, path=path, stamp=stamp, summary=plan.summary)
    if not plan.changes:
        return planned
    nvidias = nvidia_owned or is_nvidias_library(name, soname)
    if nvidias and not request.nvidia:
        return planned.unchanged(LICENCE)
    return msgspec.structs.replace(planned, plan=plan, nvidia=nvidias)


def plan_files(
    paths: Mapping[str, Path], request: SlimRequest, *, nvidia_owned: frozenset[str] = frozenset()
) -> tuple[PlannedFile, ...]:
    """Plan ELF files, given by name, with PyTorch's list of architectures."""

    def plan(name: str) -> PlannedFile:
        file = plan_file(name, paths[name], request, nvidia_owned=name in nvidia_owned)
        advance(file.summary.before_bytes)
        return file

    with StorageErrors("read"):
        total = sum(path.stat().st_size for path in paths.values())
    with stage("reading device code", total) as advance, ThreadPoolExecutor(threads()) as pool:
        files = list(pool.map(plan, sorted(paths)))
    summaries = [file.summary for file in files]
    return tuple(
        msgspec.structs.replace(file, listing=kept_words(file.path, request.gpus))
        if is_about(file.name, summaries)
        else file
        for file in files
    )


def write_file(file: PlannedFile, target: Path) -> None:
    """Write the new file, with the permissions of the original."""
    with StorageErrors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.plan is None:
            shutil.copyfile(file.path, target)
        else:
            with open_file(file.path) as reader:
                write_library(file.plan, reader, target)
        if file.listing is not None:
            write_words(target, file.listing)
        shutil.copymode(file.path, target)


def write_files(
    files: Collection[PlannedFile], target: Callable[[PlannedFile], Path]
) -> tuple[PlannedFile, ...]:
    """Write the files that change, each to its target; return all files as they were made.

    A file that does not pass its check stays unchanged. The list of architectures is written last;
    it stays unchanged if the code that it describes does.
    """

    def write(file: PlannedFile) -> PlannedFile:
        try:
            if file.changes:
                write_file(file, target(file))
        except ArtifactError as error:
            file = file.unchanged(str(error))
        return file

    def write_and_advance(file: PlannedFile) -> PlannedFile:
        made = write(file)
        advance(file.summary.before_bytes if file.changes else 0)
        return made

    total = sum(file.summary.before_bytes for file in changed(files))
    with (
        stage("writing and comparing libraries", total) as advance,
        ThreadPoolExecutor(threads()) as pool,
    ):
        plain = [file for file in files if file.listing is None]
        made = list(pool.map(write_and_advance, plain))
    summaries = [file.summary for file in made]
    for file in files:
        if file.listing is not None:
            listing = file.listing if is_about(file.name, summaries) else None
            made.append(write(msgspec.structs.replace(file, listing=listing)))
    return tuple(sorted(made, key=lambda file: file.name))


def changed(files: Iterable[PlannedFile]) -> list[PlannedFile]:
    return [file for file in files if file.changes]


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
    request: SlimRequest, changed: Iterable[PlannedFile], before: SlimRecord | None
) -> SlimRecord:
    """Return the record of a slimming. A private distribution stays private."""
    return SlimRecord(
        targets=tuple(f"{gpu.arch}{'+ptx' if gpu.ptx else ''}" for gpu in request.gpus),
        label=request.label or target_words(request.gpus),
        private=any(file.nvidia for file in changed) or (before is not None and before.private),
    )


def encode_record(record: SlimRecord) -> bytes:
    return indented_json(record) + b"\n"


def decode_record(content: bytes) -> SlimRecord | None:
    """Return the record of an earlier slimming, or None if it cannot be read."""
    try:
        return msgspec.json.decode(content, type=prepared(SlimRecord))
    except UNDECODABLE:
        return None
