"""The table ``install`` of stoker.toml: where `stoker install` finds wheels, and whom it trusts.

[install]
catalogues = ["https://wheels.example.org"]

[install.keys]                 # who must have signed a catalogue
"https://wheels.example.org" = ["ssh-ed25519 AAAA..."]

[[install.sources]]            # wheels that are in no catalogue and in no index of pip
projects = ["flash-attn"]
releases = "example/wheels"    # of GitHub; or links = "https://...", or index = "https://..."
"""

import re

import msgspec

from stoker.model.errors import UsageError
from stoker.model.value import Value
from stoker.model.wheel_source import WheelSource

# As ssh-keygen writes it: one line, which becomes part of a file of such lines.
_KEY = re.compile(
    r"(ssh-ed25519|sk-ssh-ed25519@openssh\.com) [A-Za-z0-9+/=]+( [^\x00-\x1f]*)?", re.ASCII
)


class InstallSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    catalogues: tuple[str, ...] = ()
    keys: dict[str, tuple[str, ...]] = {}  # public keys by the place of a catalogue
    sources: tuple[WheelSource, ...] = ()

    def keys_of(self, place: str) -> tuple[str, ...]:
        """Return the keys of which one must have signed the catalogue; empty: any or none."""
        return next(
            (keys for named, keys in self.keys.items() if _plain(named) == _plain(place)), ()
        )


def _plain(place: str) -> str:
    return place.removesuffix("index.html").rstrip("/")


def read_install(table: object, where: str) -> InstallSettings:
    """Return the settings of the table; ``where`` is for errors."""
    try:
        settings = msgspec.convert(table, InstallSettings)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the table 'install' is not valid: {error}",
            where=where,
            hints=["its keys are catalogues, keys and sources; docs/how-to/install.md shows them"],
        ) from error
    for place, keys in settings.keys.items():
        for key in keys:
            if not _KEY.fullmatch(key):
                raise UsageError(
                    f"'{key[:40]}' is not a public ed25519 key, so it cannot be one for {place}",
                    where=where,
                    hints=["the .pub file of ssh-keygen -t ed25519 has one: ssh-ed25519 AAAA..."],
                )
    return settings
