"""Combines the words of a variant with the parts that are given as separate options."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stoker.model.machine import Machine
from stoker.model.plan import Feature, Origin, OriginKind, Variant
from stoker.plan.grammar import canonical, parse, parse_part

Said = tuple[str, Origin]


def wanted_variant(
    text: Said,
    *,
    parts: Mapping[str, Said],
    features: Iterable[Said],
    machine: Machine | None,
) -> tuple[Variant, dict[str, Origin]]:
    """Return the variant, and the origin of each of its parts and features.

    Options on the command line override the words; settings of the file and the environment only
    fill in what the words leave open.
    """
    words, spoken = text
    variant = parse(words, machine)
    origin = _variant_origin(words, spoken)
    default = Variant()
    origins = {
        field: origin
        for field in variant.__struct_fields__
        if getattr(variant, field) != getattr(default, field) or field == "backend"
    }
    changes: dict[str, Any] = {}
    for part, (value, said) in parts.items():
        if part not in origins or said.kind.rank > OriginKind.VARIANT.rank:
            changes[part] = parse_part(part, value, str(said))
            origins[part] = said
    chosen = {feature.name: feature for feature in variant.features}
    origins |= dict.fromkeys(chosen, origin)
    for word, said in features:
        feature: Feature = parse_part("features", word, str(said))[0]
        if feature.name not in chosen or said.kind.rank >= origins[feature.name].kind.rank:
            chosen[feature.name] = feature
            origins["features"] = origins[feature.name] = said
    changes["features"] = tuple(chosen.values())
    return canonical(msgspec.structs.replace(variant, **changes)), origins


def _variant_origin(words: str, said: Origin) -> Origin:
    if said.kind is OriginKind.DEFAULT:
        return Origin(kind=OriginKind.DEFAULT, where=words)
    place = "" if said.kind is OriginKind.COMMAND_LINE else f" ({said})"
    return Origin(kind=OriginKind.VARIANT, where=words + place)
