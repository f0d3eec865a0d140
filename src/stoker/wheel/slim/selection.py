"""Selects the device code to keep for the requested GPUs, and the libraries that may be cut. Pure.

Code is kept if it runs on a GPU, whatever its name: an RTX 4090 (8.9) runs code for 8.6 if there
is none for 8.9. NVIDIA's own libraries stay unchanged unless the user asks for it, because their
licence forbids redistributing modified ones; the result is then marked as private.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from stoker.knowledge.wheels import is_nvidias, unhashed
from stoker.model.artifact import LibrarySlim
from stoker.model.errors import UsageError
from stoker.model.machine import Machine
from stoker.model.plan import Backend, GpuTarget, Variant
from stoker.plan.grammar import label, parse
from stoker.wheel.fatbin import FatbinEntry
from stoker.wheel.runs_on import needed_code
from stoker.wheel.slim.regions import Choose

LICENCE = "NVIDIA's licence forbids redistributing modified libraries"
# The package index refuses every upload with a classifier that starts with "Private".
PRIVATE = "Private :: Do Not Upload"


def parse_targets(text: str, machine: Machine | None = None) -> tuple[GpuTarget, ...]:
    """Parse ``sm90,sm86+ptx``, ``h100,rtx4090``, or ``native`` for the GPUs of the machine."""
    variant = parse(text, machine)
    if variant.backend not in (Backend.CUDA, Backend.CPU):
        raise UsageError(
            f"'{text}' names GPUs of {variant.backend}, but only CUDA device code can be slimmed"
        )
    if not variant.gpus:
        why = "this machine has no NVIDIA GPU" if machine else f"'{text}' names no GPU"
        raise UsageError(
            f"{why}, so there is no code to keep",
            hints=["use --for h100 or --for sm90,sm86+ptx; `stoker plan --list` lists all names"],
        )
    return variant.gpus


def target_words(gpus: Iterable[GpuTarget]) -> str:
    """Return the GPUs as a version label has them: ``sm86.ptx.sm90``."""
    bare = Variant(backend=Backend.CUDA, gpus=tuple(gpus))
    return label(bare).removeprefix(f"{Backend.CUDA}.")


def chooser(gpus: Sequence[GpuTarget]) -> Choose:
    """Return a function that picks the entries of a region to keep."""

    def choose(entries: Sequence[FatbinEntry]) -> Iterable[int]:
        needed = needed_code((entry.arch for entry in entries), gpus)
        return [index for index, entry in enumerate(entries) if entry.arch in needed]

    return choose


def check_served(libraries: Collection[LibrarySlim], gpus: Iterable[GpuTarget]) -> None:
    """Raise an error if a target has no code to run in any library: it may be mistyped."""
    held = {row.arch for library in libraries for row in library.archs}
    for gpu in gpus:
        if held and not needed_code(held, [GpuTarget(arch=gpu.arch)]):
            raise UsageError(
                f"it holds no device code that runs on {target_words([gpu])}",
                hints=[f"choose GPUs among {' '.join(sorted(held, key=arch_order))}"],
            )


def arch_order(arch: str) -> tuple[str, int, str]:
    """Return a sort key: by kind, then by number."""
    kind, _, name = arch.partition("_")
    return kind, int(name.rstrip("af")), name


def is_nvidia_distribution(name: str) -> bool:
    return canonicalize_name(name).startswith("nvidia-")


def is_nvidia_library(path: str, soname: str | None) -> bool:
    names = (PurePosixPath(path).name, soname or "")
    return any(is_nvidias(unhashed(name)) for name in names)


def nvidia_refusal(what: str) -> UsageError:
    return UsageError(
        f"{what} was not changed: {LICENCE}",
        hints=["add --nvidia to slim it for use on your own machines; it is marked as private"],
    )
