"""Slims a wheel, a library, a folder or an installed distribution for chosen GPUs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.model.artifact import TargetKind
from stoker.model.errors import StokerError, StorageErrors, UsageError
from stoker.model.slimming import SlimReport
from stoker.model.value import Value, counted, first_of, size
from stoker.outside.files import folder_of_process
from stoker.wheel.elf.elf import MAGIC
from stoker.wheel.inspect.target import Target
from stoker.wheel.reader import open_file
from stoker.wheel.slim.files import (
    ASIDE,
    LICENCE,
    PRIVATE,
    PlannedFile,
    changed,
    check_room,
    nvidia_refusal,
    plan_files,
    write_file,
)
from stoker.wheel.slim.selection import SlimRequest, check_served
from stoker.wheel.zip.revision import check_new, check_replaceable

if TYPE_CHECKING:
    from stoker.wheel.slim.in_place import Originals

_WHEEL_FOLDER = Path("dist")
_FEW = 8  # names in a note


class OutputOptions(Value, frozen=True, kw_only=True):
    """What happens to the result. ``discard`` keeps no originals."""

    out: Path | None = None
    dry_run: bool = False
    discard: bool = False
    force: bool = False


def slim(target: Target, request: SlimRequest, output: OutputOptions) -> SlimReport:
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


def undo(target: Target) -> tuple[str, ...]:
    """Restore the originals; return their names, none if nothing had been replaced."""
    from stoker.wheel.slim.folder import put_back_originals
    from stoker.wheel.slim.in_place import Originals

    _check_in_place(target, "--undo")
    return put_back_originals(Originals.of(target))


def discard(target: Target) -> int:
    """Delete the kept originals; return their size in bytes."""
    from stoker.wheel.slim.folder import delete_originals
    from stoker.wheel.slim.in_place import Originals

    _check_in_place(target, "--discard")
    return delete_originals(Originals.of(target))


def _check_in_place(target: Target, option: str) -> None:
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
    from stoker.wheel.slim.wheel import new_wheel, planned_files, write_wheel
    from stoker.wheel.zip import open_wheel

    with open_wheel(path) as wheel, planned_files(wheel, request, aside) as files:
        check_served([file.summary for file in files], request.gpus)
        if output.dry_run or not (changed(files) or (files and request.label)):
            return _report(files)
        target = into / new_wheel(wheel, changed(files), request).file_name(wheel)
        refusal = UsageError(
            f"{target} is the wheel to slim", hints=["choose another folder with --out"]
        )
        check_new(target, path, refusal=refusal, force=output.force)
        written = write_wheel(wheel, files, request, into)
        if written.path is None:
            return _report(written.files)
        return _report(
            written.files,
            before=path.stat().st_size,
            after=written.path.stat().st_size,
            output=str(written.path),
            notes=written.notes,
        )


def _library(path: Path, request: SlimRequest, output: OutputOptions) -> SlimReport:
    """Slim one library to another place."""
    files = _plan_library(path, request)
    if output.dry_run or not changed(files):
        return _report(files)
    assert output.out is not None
    target = output.out / path.name if output.out.is_dir() else output.out
    if target.exists() and target.samefile(path):
        hints = ["leave out --out to slim it in place"]
        raise UsageError(f"{target} already exists", hints=hints)
    check_replaceable(target, force=output.force)
    check_room(target.parent, files[0].summary.after_bytes)
    with folder_of_process(target.parent, ASIDE) as aside:
        write_file(files[0], aside / target.name)
        with StorageErrors("write", target):
            (aside / target.name).replace(target)
    return _report(files, output=str(target))


def _plan_library(path: Path, request: SlimRequest) -> tuple[PlannedFile, ...]:
    with open_file(path) as reader:
        if reader.read_at(0, len(MAGIC)) != MAGIC:
            raise UsageError(
                f"'{path}' is neither a wheel nor an ELF file",
                hints=["a wheel's name ends with .whl"],
            )
    files = plan_files({path.name: path}, request)
    why = files[0].summary.skipped_because
    if why == LICENCE:
        raise nvidia_refusal(path.name)
    if why:
        raise StokerError(f"{path} was not changed: {why}")
    check_served([file.summary for file in files], request.gpus)
    return files


def _in_place(target: Target, request: SlimRequest, output: OutputOptions) -> SlimReport:
    from stoker.wheel.slim.folder import recover, replace_files
    from stoker.wheel.slim.in_place import Originals

    originals = Originals.of(target)
    if output.dry_run:
        return _report(_plan_in_place(target, request, originals))
    with originals.held():
        recover(originals)
        files = _plan_in_place(target, request, originals)
        if not changed(files):
            return _report(files)
        files = replace_files(files, originals, request, keep=not output.discard)
    if not changed(files):
        return _report(files)
    place = target.path.parent if target.kind is TargetKind.INSTALLED else target.path
    kept = size(sum(file.summary.before_bytes for file in changed(files)))
    note = (
        f"the originals ({kept}) are in {originals.store}: --undo restores them, --discard "
        "deletes them"
    )
    return _report(files, output=str(place), notes=() if output.discard else (note,))


def _plan_in_place(
    target: Target, request: SlimRequest, originals: "Originals"
) -> tuple[PlannedFile, ...]:
    from stoker.wheel.slim.folder import plan_folder, plan_installed

    try:
        with StorageErrors("read"):
            if target.kind is TargetKind.LIBRARY:
                files = _plan_library(target.path.resolve(), request)
            elif target.kind is TargetKind.FOLDER:
                files = plan_folder(target.path, request)
            else:
                files = plan_installed(target.path, request)
        check_served([file.summary for file in files], request.gpus)
    except UsageError as error:
        if not originals.state:
            raise
        hint = "it was slimmed before: --undo restores the originals"
        raise UsageError(error.message, hints=[*error.hints, hint]) from None
    return files


def _report(
    files: Sequence[PlannedFile],
    *,
    before: int | None = None,
    after: int | None = None,
    output: str | None = None,
    notes: tuple[str, ...] = (),
) -> SlimReport:
    told = tuple(
        file.summary
        for file in files
        if file.summary.archs
        or file.summary.skipped_because
        or file.summary.after_bytes < file.summary.before_bytes
    )
    return SlimReport(
        before_bytes=sum(row.before_bytes for row in told) if before is None else before,
        after_bytes=sum(row.after_bytes for row in told) if after is None else after,
        output=output,
        libraries=told,
        notes=(*_remarks(files), *notes),
    )


def _remarks(files: Sequence[PlannedFile]) -> list[str]:
    notes = []
    rows = [file.summary for file in files]
    if not any(row.archs or row.skipped_because for row in rows):
        notes.append("it holds no device code, so there is nothing to do")
    elif not changed(files):
        skipped = any(row.skipped_because for row in rows)
        notes.append(
            "no library was changed" if skipped else "it holds only code that these GPUs run"
        )
    if empty := [row.path for row in rows if not row.serves]:
        notes.append(
            f"nothing in {counted(len(empty), 'file')} runs on these GPUs, as before; the smallest "
            f"part is kept, because none may be empty: {first_of(empty, _FEW)}"
        )
    if any(file.nvidia and file.changes for file in files):
        notes.append(f"it holds modified NVIDIA libraries, do not redistribute it: '{PRIVATE}'")
    return notes
