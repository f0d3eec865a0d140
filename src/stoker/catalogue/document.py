"""The document catalogue.json: its text, and a catalogue with wheels added or removed. Pure."""

from collections.abc import Collection, Iterable

import msgspec

from stoker.catalogue.values import FORMAT, PublishedCatalogue, PublishedWheel
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError
from stoker.model.value import UNDECODABLE, Value, prepared

CATALOGUE = "catalogue.json"


def with_wheels(
    catalogue: PublishedCatalogue, wheels: Iterable[PublishedWheel]
) -> PublishedCatalogue:
    """Return the catalogue with wheels added; one of the same variant and name is replaced."""
    by_key = {wheel.key: wheel for wheel in (*catalogue.wheels, *wheels)}
    wheels = tuple(
        sorted(
            by_key.values(), key=lambda w: (w.variant, w.project, read_version(w.version), w.file)
        )
    )
    return PublishedCatalogue(serial=catalogue.serial, wheels=wheels)


def without_wheels(
    catalogue: PublishedCatalogue, keys: Collection[tuple[str, str]]
) -> PublishedCatalogue:
    kept = (wheel for wheel in catalogue.wheels if wheel.key not in keys)
    return PublishedCatalogue(serial=catalogue.serial, wheels=tuple(kept))


def encoded(catalogue: PublishedCatalogue) -> bytes:
    """Return the catalogue with one line for each wheel, so that diffs are readable."""
    lines = b",\n".join(msgspec.json.encode(wheel) for wheel in catalogue.wheels)
    serial = b' "serial": %d,' % catalogue.serial if catalogue.serial else b""
    return b'{"format": %d,%b "wheels": [\n%b\n]}\n' % (catalogue.format, serial, lines)


class _Format(Value, frozen=True, kw_only=True):
    format: int


def decoded(content: bytes, where: str) -> PublishedCatalogue:
    """Read `catalogue.json`, which anyone may have written."""
    try:
        if msgspec.json.decode(content, type=prepared(_Format)).format > FORMAT:
            hints = ["a newer release of stoker reads it"]
            raise ArtifactError("the catalogue has a newer format", file=where, hints=hints)
        catalogue = msgspec.json.decode(content, type=prepared(PublishedCatalogue))
        for wheel in catalogue.wheels:
            read_version(wheel.version)
    except UNDECODABLE as error:
        raise ArtifactError(f"this is not a catalogue of stoker: {error}", file=where) from None
    return catalogue
