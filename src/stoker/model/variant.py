"""The variant that a user asks for, and the targets of GPUs that a build for it compiles.

The grammar of variants is in ``stoker.plan.grammar``, that of GPUs in
``stoker.knowledge.gpus``.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from stoker.model.evidence import Evidence, EvidenceKind
from stoker.model.value import Value

PLAN_MEMBER = "stoker-plan.json"  # in a wheel's dist-info: the Plan that it was built by


class Backend(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
    XPU = "xpu"
    MPS = "mps"
    VULKAN = "vulkan"


# The words of a back end in names of options: USE_CUDA, GGML_CUDA, LIB_ENABLE_HIP.
BACKEND_WORDS = {
    Backend.CUDA: ("CUDA",),
    Backend.ROCM: ("HIP", "ROCM"),
    Backend.XPU: ("SYCL", "XPU"),
    Backend.VULKAN: ("VULKAN",),
    Backend.MPS: ("METAL", "MPS"),
}


NO_BACKEND_WORDS = ("OFF", "NONE", "NO", "CPU")


def are_backends(words: Iterable[str]) -> bool:
    """Tell whether words are a choice among back ends: two of them, or one and none."""
    upper = {word.upper() for word in words}
    found = [backend for backend, names in BACKEND_WORDS.items() if upper & set(names)]
    return len(found) >= (1 if upper & set(NO_BACKEND_WORDS) else 2)


class BuildType(StrEnum):
    RELEASE = "Release"
    DEBUG = "Debug"
    RELWITHDEBINFO = "RelWithDebInfo"
    MINSIZEREL = "MinSizeRel"


class Sanitizer(StrEnum):
    ADDRESS = "asan"
    UNDEFINED = "ubsan"
    THREAD = "tsan"


def plain_arch(arch: str) -> str:
    """Return ``9.0`` for ``9.0a``; architectures of other vendors stay as they are."""
    return arch.rstrip("af") if "." in arch else arch


class GpuTarget(Value, frozen=True, kw_only=True):
    """One GPU architecture: ``9.0a`` (CUDA), ``gfx942`` (ROCm) or ``pvc`` (XPU)."""

    arch: str
    ptx: bool = False

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor of a CUDA architecture."""
        major, minor = self.plain.split(".")
        return int(major), int(minor)

    @property
    def plain(self) -> str:
        """The architecture without its suffix."""
        return plain_arch(self.arch)

    @property
    def suffix(self) -> str:
        """``a``, ``f`` or nothing, for a CUDA architecture."""
        return self.arch[-1] if self.arch[-1] in "af" else ""

    @property
    def word(self) -> str:
        """The word of a variant: ``sm90a+ptx``, ``gfx942``, ``pvc``."""
        if re.fullmatch(r"\d+\.\d+[af]?", self.arch, re.ASCII):
            name = "sm" + self.digits
        else:
            name = re.sub(r"[\s._-]", "", self.arch.casefold())
        return name + ("+ptx" if self.ptx else "")

    @property
    def torch_word(self) -> str:
        """The word of PyTorch's list of architectures: ``9.0+PTX``."""
        return self.arch + ("+PTX" if self.ptx else "")

    @property
    def digits(self) -> str:
        """The architecture as compilers and CMake write it: ``90a``."""
        return self.arch.replace(".", "")

    @property
    def cmake_word(self) -> str:
        """CMake's form: ``90-real`` is machine code, ``90`` also contains PTX."""
        return self.digits if self.ptx else f"{self.digits}-real"

    @property
    def gencode(self) -> str:
        """The value of nvcc's option: ``arch=compute_90,code=sm_90``."""
        code = f"[sm_{self.digits},compute_{self.digits}]" if self.ptx else f"sm_{self.digits}"
        return f"arch=compute_{self.digits},code={code}"

    @property
    def sort_key(self) -> tuple[tuple[int, ...], str]:
        return tuple(int(digits) for digits in re.findall(r"\d+", self.arch)), self.arch


class Feature(Value, frozen=True, kw_only=True, order=True):
    """A feature of the project, asked for or refused by name."""

    name: str
    on: bool = True


class Platform(Value, frozen=True, kw_only=True, order=True):
    """An operating system and a CPU family, written ``linux-x86_64``."""

    os: str
    cpu: str

    def __str__(self) -> str:
        return f"{self.os}-{self.cpu}"


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

    @property
    def runtime(self) -> str:
        """The back end with its release: ``cu130``, ``rocm6.4``, ``cpu``."""
        if self.toolkit and self.backend is Backend.CUDA:
            return "cu" + self.toolkit.replace(".", "")
        return self.backend.value + (self.toolkit or "")

    @property
    def name(self) -> str:
        """Every part that is not the default, in a fixed order: ``cu130-sm90-avx512``. The grammar
        reads it back.
        """
        words = [
            self.runtime,
            "+".join(target.word for target in self.gpus),
            self.cpu or "",
            self.blas or "",
            "" if self.python is None else "py" + self.python.replace(".", ""),
            "" if self.build_type is BuildType.RELEASE else self.build_type.value.casefold(),
            self.sanitizer or "",
            *(feature.name if feature.on else f"no{feature.name}" for feature in self.features),
            "" if self.platform is None else f"{self.platform.os}_{self.platform.cpu}",
        ]
        return "-".join(word for word in words if word)


class PlannedTargets(Value, frozen=True, kw_only=True):
    """The GPU targets that a build compiles for, and how it is told them.

    Targets are written ``9.0a`` or ``gfx942``. ``accepted`` are those of single kernels; with
    ``+PTX`` they are PTX only.
    """

    backend: Backend
    gpus: tuple[str, ...] = ()  # those that were asked for
    cubins: tuple[str, ...] = ()  # machine code
    ptx: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # values of -gencode that stoker removes from commands of nvcc
    fixed: bool = False  # the tree names them itself
    compiles: bool = True  # the build must compile device code
    language: str = ""  # of device code that is compiled in another way: "Metal: FOLDER"
    set_by: tuple[str, ...] = ()  # settings of the plan: NAME=VALUE
    choices: tuple[str, ...] = ()  # what the tree reads: NAME (file:line)
    evidence: Evidence | None = None

    @property
    def without_device_code(self) -> bool:
        """Whether it is known, and not only assumed, that the build compiles no device code."""
        assumed = self.evidence is not None and self.evidence.kind is EvidenceKind.ASSUMED
        return not (self.compiles or self.language or assumed)
