"""Slims a wheel, a library, a folder or an installed distribution for chosen GPUs."""

import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from stoker.model.artifact import SlimReport, TargetKind
from stoker.model.errors import StokerError, StorageError, UsageError
from stoker.model.plan import GpuTarget
from stoker.model.value import Value, size
from stoker.outside.files import folder_of_process
from stoker.wheel.elf import MAGIC
from stoker.wheel.engine import Wheel, open_wheel
from stoker.wheel.inspecting import find_installed
from stoker.wheel.reader import open_file
from stoker.wheel.slim import folder as in_folder
from stoker.wheel.slim import in_place
from stoker.wheel.slim import wheel as in_wheel
from stoker.wheel.slim.cuts import (
    LICENCE,
    PRIVATE,
    Cut,
    SlimRequest,
    changed,
    check_room,
    check_served,
    nvidia_refusal,
    plan_cuts,
    write_cut,
)
from stoker.wheel.slim.targets import GPU_PARTS, parse_targets

_WHEEL_FOLDER = Path("dist")


class SlimTarget(Value, frozen=True, kw_only=True):
    """What is slimmed. The ``path`` of a distribution is its dist-info folder."""

    kind: TargetKind
    path: Path

    @property
    def store(self) -> Path:
        """Return the folder for the originals of what is slimmed in place."""
        if self.kind is TargetKind.FOLDER:
            return in_folder.folder_store(self.path)
        if self.kind is TargetKind.LIBRARY:
            return in_folder.library_store(self.path.resolve())
        return in_folder.installed_store(self.path)


class OutputOptions(Value, frozen=True, kw_only=True):
    """What happens to the result. ``discard`` keeps no originals."""

    out: Path | None = None
    dry_run: bool = False
    discard: bool = False
    force: bool = False


def gpu_targets(text: str, parts: Collection[str] = GPU_PARTS) -> tuple[GpuTarget, ...]:
    """Parse the words of ``--for``; see `parse_targets`."""
    if "native" not in text.casefold():
        return parse_targets(text, None, parts)
    from stoker.machine.system import read_machine

    return parse_targets(text, read_machine(()), parts)


def find_target(word: str) -> SlimTarget:
    """Return what a word names: an existing path, else an installed distribution."""
    path = Path(word)
    if path.is_dir():
        return SlimTarget(kind=TargetKind.FOLDER, path=path)
    if path.exists():
        return SlimTarget(
            kind=TargetKind.WHEEL if path.suffix == ".whl" else TargetKind.LIBRARY, path=path
        )
    if os.sep in word or path.suffix in (".whl", ".so"):
        raise UsageError(f"there is no file or folder '{word}'", hints=["check the path"])
    return SlimTarget(kind=TargetKind.INSTALLED, path=find_installed(word))


def slim(target: SlimTarget, request: SlimRequest, output: OutputOptions) -> SlimReport:
    """Remove the device code that the requested GPUs do not run, and report what was done.

    A wheel gives a new wheel, and the original stays. Everything else is replaced in place, all
    files or none, and can be restored with ``undo``. Every new library is compared with its
    original before it is used; one that differs in anything but device code stays unchanged.
    """
    if target.kind is TargetKind.WHEEL:
        return _wheel(target.path, request, output)
    if target.kind is TargetKind.LIBRARY and output.out is not None:
        return _library(target.path, request, output)
    if output.out is not None:
        raise UsageError("folders and distributions are slimmed in place: leave out --out")
    return _in_place(target, request, output)


def undo(target: SlimTarget) -> tuple[str, ...]:
    """Restore the originals; return their names, none if nothing had been replaced."""
    _check_in_place(target, "--undo")
    return in_folder.undo(target.store)


def discard(target: SlimTarget) -> int:
    """Delete the kept originals; return their size in bytes."""
    _check_in_place(target, "--discard")
    return in_folder.delete_originals(target.store)


def _check_in_place(target: SlimTarget, option: str) -> None:
    if target.kind is TargetKind.WHEEL:
        raise UsageError(
            f"{option} is not for wheels: slimming a wheel leaves the original unchanged",
            hints=[f"{target.path} is still the original"],
        )


def _wheel(path: Path, request: SlimRequest, output: OutputOptions) -> SlimReport:
    into = output.out or _WHEEL_FOLDER
    if into.suffix == ".whl":
        raise UsageError(
            "--out takes a folder: the file name follows from the new version of the wheel"
        )
    aside = Path(tempfile.gettempdir()) if output.dry_run else into
    with open_wheel(path) as wheel, in_wheel.planned(wheel, request, aside) as cuts:
        check_served([cut.summary for cut in cuts], request.gpus)
        if output.dry_run or not (changed(cuts) or (cuts and request.label)):
            return _report(cuts)
        _check_free(wheel, into / in_wheel.file_name(wheel, cuts, request), force=output.force)
        written = in_wheel.write_wheel(wheel, cuts, request, into)
        if written.path is None:
            return _report(written.cuts)
        return _report(
            written.cuts,
            before=path.stat().st_size,
            after=written.path.stat().st_size,
            output=str(written.path),
            notes=written.notes,
        )


def _check_free(wheel: Wheel, target: Path, *, force: bool) -> None:
    if target.exists() and target.samefile(wheel.path):
        raise UsageError(
            f"{target} is the wheel to slim", hints=["choose another folder with --out"]
        )
    _check_replaceable(target, force=force)


def _check_replaceable(target: Path, *, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_file():
        raise UsageError(f"{target} exists and is not a regular file: choose another --out")
    if not force:
        raise UsageError(f"{target} already exists", hints=["replace it with --force"])


def _library(path: Path, request: SlimRequest, output: OutputOptions) -> SlimReport:
    """Slim one library to another place."""
    cuts = _plan_library(path, request)
    if output.dry_run or not changed(cuts):
        return _report(cuts)
    assert output.out is not None
    target = output.out / path.name if output.out.is_dir() else output.out
    if target.exists() and target.samefile(path):
        hints = ["leave out --out to slim it in place"]
        raise UsageError(f"{target} already exists", hints=hints)
    _check_replaceable(target, force=output.force)
    check_room(target.parent, cuts[0].summary.after_bytes)
    with folder_of_process(target.parent, in_wheel.ASIDE) as aside:
        write_cut(cuts[0], aside / target.name)
        try:
            (aside / target.name).replace(target)
        except OSError as error:
            raise StorageError(f"cannot write {target}: {error.strerror}") from error
    return _report(cuts, output=str(target))


def _plan_library(path: Path, request: SlimRequest) -> tuple[Cut, ...]:
    with open_file(path) as reader:
        if reader.read_at(0, len(MAGIC)) != MAGIC:
            raise UsageError(
                f"'{path}' is neither a wheel nor an ELF file",
                hints=["a wheel's name ends with .whl"],
            )
    cuts = plan_cuts({path.name: path}, request)
    why = cuts[0].summary.skipped_because
    if why == LICENCE:
        raise nvidia_refusal(path.name)
    if why:
        raise StokerError(f"{path} was not changed: {why}")
    check_served([cut.summary for cut in cuts], request.gpus)
    return cuts


def _in_place(target: SlimTarget, request: SlimRequest, output: OutputOptions) -> SlimReport:
    if output.dry_run:
        return _report(_plan_in_place(target, request))
    with in_place.held(target.store):
        in_folder.recover(target.store)
        cuts = _plan_in_place(target, request)
        if not changed(cuts):
            return _report(cuts)
        cuts = in_folder.apply(cuts, target.store, request, keep=not output.discard)
    if not changed(cuts):
        return _report(cuts)
    place = target.path.parent if target.kind is TargetKind.INSTALLED else target.path
    notes = () if output.discard else (_kept(cuts, target.store),)
    return _report(cuts, output=str(place), notes=notes)


def _plan_in_place(target: SlimTarget, request: SlimRequest) -> tuple[Cut, ...]:
    try:
        cuts = _plan_target(target, request)
        check_served([cut.summary for cut in cuts], request.gpus)
    except UsageError as error:
        if not in_place.state_of(target.store):
            raise
        hint = "it was slimmed before: --undo restores the originals"
        raise UsageError(error.message, hints=[*error.hints, hint]) from None
    return cuts


def _plan_target(target: SlimTarget, request: SlimRequest) -> tuple[Cut, ...]:
    if target.kind is TargetKind.LIBRARY:
        return _plan_library(target.path.resolve(), request)
    try:
        if target.kind is TargetKind.FOLDER:
            return in_folder.plan_folder(target.path, request)
        return in_folder.plan_installed(target.path, request)
    except OSError as error:
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error


def _kept(cuts: Sequence[Cut], store: Path) -> str:
    kept = size(sum(cut.summary.before_bytes for cut in changed(cuts)))
    return f"the originals ({kept}) are in {store}: --undo restores them, --discard deletes them"


def _report(
    cuts: Sequence[Cut],
    *,
    before: int | None = None,
    after: int | None = None,
    output: str | None = None,
    notes: tuple[str, ...] = (),
) -> SlimReport:
    told = tuple(
        cut.summary
        for cut in cuts
        if cut.summary.archs
        or cut.summary.skipped_because
        or cut.summary.after_bytes < cut.summary.before_bytes
    )
    return SlimReport(
        before_bytes=sum(row.before_bytes for row in told) if before is None else before,
        after_bytes=sum(row.after_bytes for row in told) if after is None else after,
        output=output,
        libraries=told,
        notes=(*_remarks(cuts), *notes),
    )


def _remarks(cuts: Sequence[Cut]) -> list[str]:
    notes = []
    rows = [cut.summary for cut in cuts]
    if not any(row.archs or row.skipped_because for row in rows):
        notes.append("it holds no device code, so there is nothing to do")
    elif not changed(cuts):
        skipped = any(row.skipped_because for row in rows)
        notes.append(
            "no library was changed" if skipped else "it holds only code that these GPUs run"
        )
    if any(cut.nvidia and cut.changes for cut in cuts):
        notes.append(f"it holds modified NVIDIA libraries, do not redistribute it: '{PRIVATE}'")
    return notes
