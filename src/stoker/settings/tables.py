"""The tables ``install`` and ``prices`` of stoker.toml.

[install]                      # where `stoker install` finds wheels, and whom it trusts
catalogues = ["https://wheels.example.org"]

[install.keys]                 # who must have signed a catalogue
"https://wheels.example.org" = ["ssh-ed25519 AAAA..."]

[[install.sources]]            # wheels that are in no catalogue and in no index of pip
projects = ["flash-attn"]
releases = "example/wheels"    # of GitHub; or links = "https://...", or index = "https://..."

[prices]
currency = "EUR"
cpu_hour = 0.04                # one CPU for an hour
gib_hour = 0.005               # one GiB of memory for an hour

[prices.machines.large]        # a machine with its own price; the what-if table gets a row for it
cpus = 64
memory = "256G"
hour = 3.05
"""

import re
from typing import Annotated, TypeVar

import msgspec

from stoker.model.errors import UsageError
from stoker.model.value import Value, byte_count, prepared
from stoker.model.wheel_source import WheelSource

T = TypeVar("T")
Price = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]

# As ssh-keygen writes it: one line, which becomes part of a file of such lines.
_KEY = re.compile(
    r"(ssh-ed25519|sk-ssh-ed25519@openssh\.com) [A-Za-z0-9+/=]+( [^\x00-\x1f]*)?", re.ASCII
)


class InstallSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    catalogues: tuple[str, ...] = ()
    keys: dict[str, tuple[str, ...]] = {}  # public keys by the place of a catalogue
    sources: tuple[WheelSource, ...] = ()

    def keys_of(self, place: str) -> tuple[str, ...]:
        """Return the keys of which one must have signed the catalogue; empty: any or none. Another
        address of a host that has a key may lead to the same catalogue, so it is refused.
        """
        from stoker.outside.address import read_address  # runs need no address

        wanted = read_address(place)
        known = {read_address(named): keys for named, keys in self.keys.items()}
        for address, keys in known.items():
            if address.text == wanted.text:
                return keys
        near = [address for address in known if address.host and address.host == wanted.host]
        if near:
            raise UsageError(
                f"stoker.toml has no key for {wanted}, and one for {near[0]}, of the same host",
                hints=[f"name {near[0]}, or add a key for {wanted} below [install.keys]"],
            )
        return ()


def _converted(table: object, kind: type[T], name: str, keys: str, where: str) -> T:
    try:
        return msgspec.convert(table, prepared(kind))
    except msgspec.ValidationError as error:
        message = f"the table '{name}' is not valid: {error}"
        raise UsageError(message, where=where, hints=[f"its keys are {keys}"]) from error


def read_install(table: object, where: str) -> InstallSettings:
    """Return the settings of the table; ``where`` is for errors."""
    known = "catalogues, keys and sources; docs/how-to/install.md shows them"
    settings = _converted(table, InstallSettings, "install", known, where)
    for place, keys in settings.keys.items():
        for key in keys:
            if not _KEY.fullmatch(key):
                raise UsageError(
                    f"'{key[:40]}' is not a public ed25519 key, so it cannot be one for {place}",
                    where=where,
                    hints=["the .pub file of ssh-keygen -t ed25519 has one: ssh-ed25519 AAAA..."],
                )
    return settings


class MachinePrice(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cpus: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    memory: str
    hour: Price

    @property
    def memory_bytes(self) -> int:
        return byte_count(self.memory) or 0


class Prices(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of an hour; 0 if the user gave none."""

    currency: str = ""
    cpu_hour: Price = 0.0
    gib_hour: Price = 0.0
    machines: dict[str, MachinePrice] = {}

    @property
    def known(self) -> bool:
        return bool(self.cpu_hour or self.gib_hour)

    def cost(self, seconds: float, *, cpus: int, memory: int) -> float | None:
        """Return the price of a machine of that size for that time; None without prices."""
        if not self.known:
            return None
        return seconds / 3600 * (cpus * self.cpu_hour + memory / 1024**3 * self.gib_hour)


def read_prices(table: object, where: str) -> Prices:
    """Return the prices of stoker.toml. ``table`` is its section ``prices``; ``where`` is for
    errors.
    """
    prices = _converted(table, Prices, "prices", "currency, cpu_hour, gib_hour and machines", where)
    for name, machine in prices.machines.items():
        if not machine.memory_bytes:
            raise UsageError(
                f"prices.machines.{name}: '{machine.memory}' is not an amount of memory",
                where=where,
                hints=["try 64G"],
            )
    return prices
