"""How a plan knows what it states: the evidence of a statement, and what a build answered when it
was asked.
"""

from enum import StrEnum

from stoker.model.value import Value


class EvidenceKind(StrEnum):
    """The kinds of evidence, strongest first."""

    ASKED = "asked"  # the build itself was run up to its compiles
    READ = "read"  # in files of the tree
    RECIPE = "recipe"  # read in another commit, and still present in this tree
    ASSUMED = "assumed"


class Evidence(Value, frozen=True, kw_only=True):
    """``where`` is the exact place or the reason: ``setup.py:43``, or ``no file names targets``."""

    kind: EvidenceKind
    where: str = ""

    def __str__(self) -> str:
        if self.kind is EvidenceKind.READ:
            return f"read at {self.where}"
        return f"{self.kind}: {self.where}" if self.where else self.kind.value


class Statement(Value, frozen=True, kw_only=True):
    """A fact about the build that a plan states, and how it is known."""

    about: str  # "targets", "device code", "CUDA", "compiles"
    text: str
    evidence: Evidence


class AskedBuild(Value, frozen=True, kw_only=True):
    """What a build would compile, as it answered itself. ``stoker.plan`` prefers it to everything
    that is read or known of the tree.

    Targets are written ``9.0a`` or ``gfx942``. A target of ``some`` is that of single compiles
    only; with ``+PTX`` it is PTX only.
    """

    cubins: tuple[str, ...] = ()  # machine code of all device compiles
    ptx: tuple[str, ...] = ()
    some: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # values of -gencode that stoker removes; the rest has none
    device_compiles: int = 0
    host_compiles: int = 0
    device_with_torch: int = 0  # of these, those that include all of PyTorch's headers
    host_with_torch: int = 0
    known_kernels: int = 0  # of device compiles, those that were measured and count by themselves
    known_kernels_s: float = 0.0  # what they took, for one target
    longest_known_s: float = 0.0  # of one of them
    one_at_a_time: bool = False
    fetches: bool = False  # it also compiles files that were not fetched when it was asked
    deciding: tuple[str, ...] = ()  # variables and options that decided: NAME=VALUE (file:line)
    unused: tuple[str, ...] = ()  # settings of the plan that nothing read
    refusal: str = ""  # the project's own words, if it refused
    when: str = ""  # "2026-11-17, 12 s"
