"""Renders what a build answered when it was asked."""

from stoker.ask.values import Asked
from stoker.model.value import counted
from stoker.model.variant import Backend
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.plan.tree_recipe import names_targets

_MOST = 12  # rows of one kind


def asked_page(asked: Asked) -> Page:
    listing = Listing("", "", "", title="Asked", indent=2)
    how = f"in a {asked.walls} room" + (f", with {asked.pretended}" if asked.pretended else "")
    listing.add("by", asked.way, Text(f"{asked.wall_s:.1f} s, {how}", style="dim"))
    if asked.refusal:
        listing.add("refused", asked.refusal.splitlines()[0])
    what = "no device code" if asked.backend is Backend.CPU else str(asked.backend)
    if asked.answered:
        counts = f"{counted(asked.device_compiles, 'device compile')}, {asked.host_compiles} others"
        listing.add("compiles", what, Text(counts, style="dim"))
    for targets, sources in _groups(asked).items():
        listing.add("kernels", ", ".join(targets), Text(_some(sources), style="dim"))
    for variable in asked.variables:
        if variable.value is not None or names_targets(variable.name):
            default = f", default {variable.default}" if variable.default else ""
            value = "not set" if variable.value is None else variable.value or "empty"
            listing.add(variable.name, value, Text(f"{variable.where}{default}", style="dim"))
    for word in asked.words[:_MOST]:
        listing.add("option", word.name, Text(f"looked for at {word.where}", style="dim"))
    for name in asked.unused:
        listing.add("not used", name)
    for command in asked.skipped[:_MOST]:
        listing.add("not run", command)
    return Group(listing, Text())


def _groups(asked: Asked) -> dict[tuple[str, ...], list[str]]:
    """Return the sources by their targets, the most common first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for kernel in asked.kernels:
        groups.setdefault(kernel.targets, []).append(kernel.source)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1]))[:_MOST])


def _some(sources: list[str]) -> str:
    return sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
