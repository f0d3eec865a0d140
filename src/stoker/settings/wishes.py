"""The user's wishes, gathered from all four places; each remembers where it was said."""

from collections.abc import Iterable, Mapping

import msgspec

from stoker.model.plan import Origin, OriginKind
from stoker.model.value import Value
from stoker.settings.declared import OPTIONS
from stoker.settings.toml import Entry, File, Said


class Wish(Value, frozen=True, kw_only=True):
    value: str
    origin: Origin


class Wishes(Value, frozen=True, kw_only=True):
    """``values`` by option name. Features and defines are lists, weakest first."""

    values: dict[str, Wish] = {}
    features: tuple[Wish, ...] = ()
    defines: dict[str, Wish] = {}

    def text(self, name: str) -> str | None:
        wish = self.values.get(name)
        return wish.value if wish else None


def gather(
    *,
    file: File | None,
    environment: Mapping[str, str],
    command_line: Mapping[str, str],
    features: Iterable[str] = (),
    defines: Mapping[str, str] = {},
) -> Wishes:
    """Defaults, then the file, then STOKER_ variables, then the command line; later ones win."""
    values = {
        option.name: Wish(value=option.default, origin=Origin(kind=OriginKind.DEFAULT))
        for option in OPTIONS.values()
        if option.default is not None
    }
    wishes = Wishes(values=values)
    if file:
        wishes = _with_entry(wishes, file.defaults)
    wishes = _with_values(
        wishes,
        {
            name: Wish(
                value=environment[option.variable],
                origin=Origin(kind=OriginKind.ENVIRONMENT, where=option.variable),
            )
            for name, option in OPTIONS.items()
            if environment.get(option.variable)
        },
    )
    spoken = Origin(kind=OriginKind.COMMAND_LINE)
    wishes = _with_values(
        wishes, {name: Wish(value=text, origin=spoken) for name, text in command_line.items()}
    )
    if file:
        wishes = _named_variant(wishes, file)
    return msgspec.structs.replace(
        wishes,
        features=(*wishes.features, *(Wish(value=word, origin=spoken) for word in features)),
        defines=wishes.defines
        | {name: Wish(value=value, origin=spoken) for name, value in defines.items()},
    )


def _with_values(wishes: Wishes, values: Mapping[str, Wish]) -> Wishes:
    return msgspec.structs.replace(wishes, values={**wishes.values, **values})


def _with_entry(wishes: Wishes, entry: Entry) -> Wishes:
    return msgspec.structs.replace(
        wishes,
        values=wishes.values | {name: _wish(said) for name, said in entry.values.items()},
        features=(*wishes.features, *(_wish(said) for said in entry.features)),
        defines=wishes.defines | {name: _wish(said) for name, said in entry.defines.items()},
    )


def _wish(said: Said) -> Wish:
    return Wish(value=said.value, origin=Origin(kind=OriginKind.FILE, where=said.where))


def _default_variant(file: File) -> Wish:
    if said := file.defaults.values.get("variant"):
        return _wish(said)
    return Wish(value=OPTIONS["variant"].default or "", origin=Origin(kind=OriginKind.DEFAULT))


def _named_variant(wishes: Wishes, file: File) -> Wishes:
    """A variant that is a name of the file stands for its entry there.

    What was said on the command line or outside still wins over the entry.
    """
    entry = file.variants.get(wishes.text("variant") or "")
    if entry is None:
        return wishes
    if "variant" not in entry.values:
        wishes = _with_values(wishes, {"variant": _default_variant(file)})
    stronger = {
        name: wish
        for name, wish in wishes.values.items()
        if name != "variant" and wish.origin.kind.rank > OriginKind.FILE.rank
    }
    return _with_values(_with_entry(wishes, entry), stronger)
