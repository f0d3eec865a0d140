"""Which wheels of a catalogue run on a machine: the values of `stoker select`."""

from enum import StrEnum

from stoker.model.published import PublishedWheel
from stoker.model.value import Value


class HostGpu(Value, frozen=True, kw_only=True):
    name: str
    capability: str  # "9.0"

    def __str__(self) -> str:
        return f"{self.name} ({self.capability})"


class Host(Value, frozen=True, kw_only=True):
    """What decides whether a wheel runs on a machine. ``None``: unknown, so it is not checked."""

    os: str  # linux, macos
    cpu_family: str
    cpu: str
    cpu_features: tuple[str, ...]
    python: str  # "3.12"
    free_threaded: bool = False
    gpus: tuple[HostGpu, ...] = ()
    driver: str | None = None
    libc: str | None = None  # "glibc 2.36", "musl 1.2.4"


class Fit(StrEnum):
    """How a wheel runs, best first."""

    NATIVE = "native"  # machine code for exactly this GPU
    COMPATIBLE = "compatible"  # machine code for an older GPU of the same generation
    PTX = "ptx"  # compiled by the driver when it is loaded
    CPU = "cpu"  # it uses no GPU
    NONE = "does not run"

    @property
    def rank(self) -> int:
        return list(Fit).index(self)


class Choice(Value, frozen=True, kw_only=True):
    """A wheel, how it runs, and why."""

    wheel: PublishedWheel
    fit: Fit
    reason: str
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        return self.fit is not Fit.NONE


class Selection(Value, frozen=True, kw_only=True):
    """The wheels to install together, and all choices for the first project, best first."""

    host: Host
    wheels: tuple[PublishedWheel, ...]
    choices: tuple[Choice, ...]

    @property
    def reason(self) -> str:
        """Why the first wheel was chosen."""
        first = self.wheels[0]
        return next(choice.reason for choice in self.choices if choice.wheel == first)
