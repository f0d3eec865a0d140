"""Terminal pages of a selection, of published wheels and of removed wheels."""

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.catalogue.publishing import Pruned
from stoker.model.published import PublishedWheel
from stoker.model.selection import Choice, Fit, Host, Selection
from stoker.model.value import size
from stoker.outside.terminal import Listing, whole

_STYLES = {Fit.NATIVE: "green", Fit.COMPATIBLE: "green", Fit.PTX: "yellow", Fit.NONE: "dim"}


def selection_page(selection: Selection) -> RenderableType:
    """Return the machine, every choice with its reason, and what would be installed."""
    table = Listing("", "variant", "version", ">size", "why")
    taken = {wheel.key for wheel in selection.wheels}
    for choice in selection.choices:
        table.add(*_row(choice, chosen=choice.wheel.key in taken))
    parts: list[RenderableType] = [Text(host_line(selection.host)), Text(), table]
    others = [wheel for wheel in selection.wheels if wheel.project != _first(selection)]
    parts += [Text(f"with {wheel.file} of {wheel.variant}") for wheel in others]
    return Group(*parts)


def _first(selection: Selection) -> str:
    return selection.wheels[0].project


def host_line(host: Host) -> str:
    gpus = ", ".join(map(str, host.gpus)) or "no NVIDIA GPU"
    driver = f", driver {host.driver}" if host.driver else ""
    libc = f", {host.libc}" if host.libc else ""
    return f"{gpus}{driver}; {host.cpu} ({host.cpu_family}), {host.os}{libc}, Python {host.python}"


def _row(choice: Choice, *, chosen: bool) -> tuple[str | Text, ...]:
    wheel = choice.wheel
    return (
        Text("->" if chosen else "", style="bold green"),
        Text(wheel.variant, style="bold" if chosen else _STYLES.get(choice.fit, "")),
        wheel.version,
        size(wheel.size),
        Text("; ".join((choice.reason, *choice.notes)), style=_STYLES.get(choice.fit, "")),
    )


def command_line(command: Sequence[str]) -> str:
    """Return a command that can be pasted into a shell."""
    return shlex.join(command)


def wheels_page(wheels: Sequence[PublishedWheel]) -> RenderableType:
    table = Listing("variant", "wheel", ">size", "architectures")
    for wheel in wheels:
        archs = " ".join(code.arch for code in wheel.code) or "no device code"
        table.add(wheel.variant, whole(wheel.file), size(wheel.size), archs)
    return table


def pruned_text(pruned: Pruned, *, dry_run: bool) -> str:
    verb = "would remove" if dry_run else "removed"
    listed = f"{len(pruned.wheels)} wheels from the index" if pruned.wheels else "no wheel"
    return f"{verb} {listed}; {len(pruned.files)} unused files, {size(pruned.bytes)}"
