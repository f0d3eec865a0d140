"""Terminal pages of `stoker install` and `stoker catalogue`: a selection, downloads, and wheels
that were published or removed.
"""

from collections.abc import Sequence

from stoker.catalogue.index import Pruned
from stoker.catalogue.slim_install import Download, downloads_text
from stoker.catalogue.values import Candidate, Fit, Host, PublishedWheel, Selection
from stoker.model.value import counted, size
from stoker.outside.terminal import Group, Listing, Page, Text, whole

_STYLES = {Fit.NATIVE: "ok", Fit.COMPATIBLE: "ok", Fit.PTX: "warning", Fit.NONE: "dim"}


def selection_page(selection: Selection) -> Page:
    """Return the machine, every choice with its reason, and what would be installed."""
    table = Listing("", "variant", "version", ">size", "why")
    taken = {wheel.key for wheel in selection.wheels}
    for choice in selection.choices:
        table.add(*_row(choice, chosen=choice.wheel.key in taken))
    parts: list[Page] = [Text(host_line(selection.host)), Text(), table]
    others = [wheel for wheel in selection.wheels if wheel.project != selection.wheels[0].project]
    parts += [Text(f"with {wheel.file} of {wheel.variant}") for wheel in others]
    return Group(*parts)


def host_line(host: Host) -> str:
    gpus = ", ".join(map(str, host.gpus)) or "no NVIDIA GPU"
    driver = f", driver {host.driver}" if host.driver else ""
    libc = f", {host.libc}" if host.libc else ""
    return f"{gpus}{driver}; {host.cpu} ({host.cpu_family}), {host.os}{libc}, Python {host.python}"


def _row(choice: Candidate, *, chosen: bool) -> tuple[str | Text, ...]:
    wheel = choice.wheel
    return (
        Text("->" if chosen else "", style="ok"),
        Text(wheel.variant, style="bold" if chosen else _STYLES.get(choice.fit, "")),
        wheel.version,
        size(wheel.size_bytes) if wheel.size_bytes else "",
        Text("; ".join((choice.reason, *choice.notes)), style=_STYLES.get(choice.fit, "")),
    )


def wheels_page(wheels: Sequence[PublishedWheel]) -> Page:
    table = Listing("variant", "wheel", ">size", "architectures")
    for wheel in wheels:
        archs = " ".join(code.arch for code in wheel.code) or "no device code"
        table.add(wheel.variant, whole(wheel.file), size(wheel.size_bytes), archs)
    return table


def pruned_text(pruned: Pruned, *, dry_run: bool) -> str:
    verb = "would remove" if dry_run else "removed"
    listed = (
        counted(len(pruned.wheels), "wheel") + " from the index" if pruned.wheels else "no wheel"
    )
    files = counted(len(pruned.files), "unused file")
    return f"{verb} {listed}; {files}, {size(pruned.freed_bytes)}"


def downloads_page(downloads: Sequence[Download]) -> Page:
    """Return what would be downloaded; the total comes first."""
    table = Listing("package", "version", ">size", "")
    for one in downloads:
        told = "unknown" if one.size_bytes is None else size(one.size_bytes)
        table.add(one.name, one.version, told, "is slimmed" if one.slims else "")
    return Group(Text(downloads_text(downloads), style="bold"), Text(), table)
