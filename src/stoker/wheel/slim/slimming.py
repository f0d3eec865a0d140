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
from stoker.wheel.inspect.target import Target, check_new, check_replaceable
from stoker.wheel.reader import open_file
from stoker.wheel.slim.cuts import (
    ASIDE,
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
    from stoker.wheel.slim.wheel import new_wheel, planned_cuts, write_wheel
    from stoker.wheel.zip import open_wheel

    with open_wheel(path) as wheel, planned_cuts(wheel, request, aside) as cuts:
        check_served([cut.summary for cut in cuts], request.gpus)
        if output.dry_run or not (changed(cuts) or (cuts and request.label)):
            return _report(cuts)
        target = into / new_wheel(wheel, changed(cuts), request).file_name(wheel)
        refusal = UsageError(
            f"{target} is the wheel to slim", hints=["choose another folder with --out"]
        )
        check_new(target, path, refusal=refusal, force=output.force)
        written = write_wheel(wheel, cuts, request, into)
        if written.path is None:
            return _report(written.cuts)
        return _report(
            written.cuts,
            before=path.stat().st_size,
            after=written.path.stat().st_size,
            output=str(written.path),
            notes=written.notes,
        )


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
    check_replaceable(target, force=output.force)
    check_room(target.parent, cuts[0].summary.after_bytes)
    with folder_of_process(target.parent, ASIDE) as aside:
        write_cut(cuts[0], aside / target.name)
        with StorageErrors("write", target):
            (aside / target.name).replace(target)
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


def _in_place(target: Target, request: SlimRequest, output: OutputOptions) -> SlimReport:
    from stoker.wheel.slim.folder import recover, replace_files
    from stoker.wheel.slim.in_place import Originals

    originals = Originals.of(target)
    if output.dry_run:
        return _report(_plan_in_place(target, request, originals))
    with originals.held():
        recover(originals)
        cuts = _plan_in_place(target, request, originals)
        if not changed(cuts):
            return _report(cuts)
        cuts = replace_files(cuts, originals, request, keep=not output.discard)
    if not changed(cuts):
        return _report(cuts)
    place = target.path.parent if target.kind is TargetKind.INSTALLED else target.path
    kept = size(sum(cut.summary.before_bytes for cut in changed(cuts)))
    note = (
        f"the originals ({kept}) are in {originals.store}: --undo restores them, --discard "
        "deletes them"
    )
    return _report(cuts, output=str(place), notes=() if output.discard else (note,))


def _plan_in_place(target: Target, request: SlimRequest, originals: "Originals") -> tuple[Cut, ...]:
    from stoker.wheel.slim.folder import plan_folder, plan_installed

    try:
        with StorageErrors("read"):
            if target.kind is TargetKind.LIBRARY:
                cuts = _plan_library(target.path.resolve(), request)
            elif target.kind is TargetKind.FOLDER:
                cuts = plan_folder(target.path, request)
            else:
                cuts = plan_installed(target.path, request)
        check_served([cut.summary for cut in cuts], request.gpus)
    except UsageError as error:
        if not originals.state:
            raise
        hint = "it was slimmed before: --undo restores the originals"
        raise UsageError(error.message, hints=[*error.hints, hint]) from None
    return cuts


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
    if empty := [row.path for row in rows if not row.serves]:
        notes.append(
            f"nothing in {counted(len(empty), 'file')} runs on these GPUs, as before; the smallest "
            f"part is kept, because none may be empty: {first_of(empty, _FEW)}"
        )
    if any(cut.nvidia and cut.changes for cut in cuts):
        notes.append(f"it holds modified NVIDIA libraries, do not redistribute it: '{PRIVATE}'")
    return notes
