"""What device code is compiled for: a back end, and targets of its GPUs."""

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
    def word(self) -> str:
        """The word of a variant: ``sm90a+ptx``, ``gfx942``, ``pvc``."""
        if re.fullmatch(r"\d+\.\d+[af]?", self.arch, re.ASCII):
            name = "sm" + self.arch.replace(".", "")
        else:
            name = re.sub(r"[\s._-]", "", self.arch.casefold())
        return name + ("+ptx" if self.ptx else "")

    @property
    def torch_word(self) -> str:
        """The word of PyTorch's list of architectures: ``9.0+PTX``."""
        return self.arch + ("+PTX" if self.ptx else "")

    @property
    def sort_key(self) -> tuple[tuple[int, ...], str]:
        return tuple(int(digits) for digits in re.findall(r"\d+", self.arch)), self.arch
