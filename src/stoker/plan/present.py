"""Keeps of a recipe what the planned tree still shows. Pure.

Recipes of the user, and of a build that was asked, are kept whole: they are about this tree.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stoker.model.recipe import BackendRecipe, Need
from stoker.model.source import Presence


def still_present(known: BackendRecipe, presence: Presence | None) -> BackendRecipe:
    """Return the facts of a recipe that the files of the tree show."""
    if presence is None:
        return known
    checked = ("ptx_of_newest", "serves", "accepts", "adds", "archs", "note")
    gone = [f for f in checked if f in known.shown and known.shown[f] not in presence.shown]
    empty = BackendRecipe()
    known = replace(known, **{fact: getattr(empty, fact) for fact in gone})

    def names(archs: Iterable[str]) -> tuple[str, ...]:
        return tuple(a for a in archs if _plain(a) in presence.numbers)

    # The targets as the tree lists them itself, or those of the recipe, if it says what in the tree
    # they follow from: a package that compiles for it, for example.
    archs = names(known.archs)
    if (pattern := known.shown.get("archs", "")) in presence.shown:
        listed = presence.listed.get(pattern, ())
        archs = tuple(dict.fromkeys(arch for each in listed for arch in each)) or known.archs
    return replace(
        known,
        archs=archs,
        accepts=names(known.accepts),
        # A tree without one of the targets of a row names others in its place.
        fixed=tuple(
            row if names(row.archs) == row.archs else replace(row, archs=()) for row in known.fixed
        ),
        switches=tuple(
            replace(switch, archs=names(switch.archs), serves=switch.serves or switch.archs)
            for switch in known.switches
        ),
        adds={arch: names(added) for arch, added in known.adds.items() if names(added)},
        serves={gpu: code for gpu, code in known.serves.items() if code in presence.numbers},
        cuda_min=known.cuda_min if known.cuda_min in presence.numbers else None,
        cuda_below=known.cuda_below if known.cuda_below in presence.numbers else None,
    )


def _plain(arch: str) -> str:
    return arch.removesuffix("+PTX")


def kernel_lists(known: BackendRecipe, presence: Presence | None) -> tuple[tuple[str, ...], ...]:
    """Return the targets that the tree lists for single kernels."""
    return presence.listed.get(known.shown.get("accepts", ""), ()) if presence else ()


def still_needed(needs: Iterable[Need], presence: Presence | None) -> tuple[Need, ...]:
    return tuple(
        need for need in needs if presence is None or not need.shown or need.shown in presence.shown
    )


def places(known: BackendRecipe, presence: Presence | None) -> tuple[str, ...]:
    """Return where the tree shows the targets of a recipe."""
    if presence is None:
        return ()
    patterns = [presence.shown[text] for text in known.shown.values() if text in presence.shown]
    archs = (arch for row in known.fixed for arch in row.archs)
    return tuple(dict.fromkeys((*patterns, *(presence.numbers.get(_plain(a), "") for a in archs))))
