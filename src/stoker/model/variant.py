"""What to build for: one frozen value. Its grammar lives in ``stoker.plan.grammar``."""

import re
from enum import StrEnum

from stoker.model.value import Value


class Backend(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
    XPU = "xpu"
    MPS = "mps"
    VULKAN = "vulkan"


class BuildType(StrEnum):
    RELEASE = "Release"
    DEBUG = "Debug"
    RELWITHDEBINFO = "RelWithDebInfo"
    MINSIZEREL = "MinSizeRel"


class Sanitizer(StrEnum):
    ADDRESS = "asan"
    UNDEFINED = "ubsan"
    THREAD = "tsan"


class Platform(Value, frozen=True, kw_only=True, order=True):
    """An operating system and a CPU family, written ``linux-x86_64``."""

    os: str
    cpu: str

    def __str__(self) -> str:
        return f"{self.os}-{self.cpu}"


class GpuTarget(Value, frozen=True, kw_only=True):
    """One GPU architecture: ``9.0a`` (CUDA), ``gfx942`` (ROCm) or ``pvc`` (XPU)."""

    arch: str
    ptx: bool = False

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor of a CUDA architecture."""
        major, minor = self.arch.rstrip("af").split(".")
        return int(major), int(minor)

    @property
    def suffix(self) -> str:
        """``a``, ``f`` or nothing, for a CUDA architecture."""
        return self.arch[-1] if self.arch[-1] in "af" else ""

    @property
    def sort_key(self) -> tuple[tuple[int, ...], str]:
        return tuple(int(digits) for digits in re.findall(r"\d+", self.arch)), self.arch


class Feature(Value, frozen=True, kw_only=True, order=True):
    """A feature of the project, asked for or refused by name."""

    name: str
    on: bool = True


class Variant(Value, frozen=True, kw_only=True):
    """Everything that makes one build differ from another. ``None`` means the project's own choice.

    ``gpus`` and ``features`` are sorted and without doubles; the grammar sees to that.
    """

    backend: Backend = Backend.CPU
    toolkit: str | None = None
    gpus: tuple[GpuTarget, ...] = ()
    cpu: str | None = None
    blas: str | None = None
    python: str | None = None
    build_type: BuildType = BuildType.RELEASE
    sanitizer: Sanitizer | None = None
    features: tuple[Feature, ...] = ()
    platform: Platform | None = None
