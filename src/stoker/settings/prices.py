"""Prices of computers, from the table ``[prices]`` of stoker.toml.

[prices]
currency = "EUR"
cpu_hour = 0.04             # one CPU for an hour
gib_hour = 0.005            # one GiB of memory for an hour

[prices.machines.large]     # a machine with its own price; the what-if table gets a row for it
cpus = 64
memory = "256G"
hour = 3.05
"""

from typing import Annotated

import msgspec

from stoker.model.errors import UsageError
from stoker.model.units import byte_count
from stoker.model.value import Value

Price = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


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
    try:
        prices = msgspec.convert(table, Prices)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the table 'prices' is not valid: {error}",
            where=where,
            hints=["its keys are currency, cpu_hour, gib_hour and machines"],
        ) from error
    for name, machine in prices.machines.items():
        if not machine.memory_bytes:
            raise UsageError(
                f"prices.machines.{name}: '{machine.memory}' is not an amount of memory",
                where=where,
                hints=["try 64G"],
            )
    return prices
