"""Selects the device code to keep for the GPUs that the user names.

Code is kept if it runs on a GPU, whatever its name: an RTX 4090 (8.9) runs code for 8.6 if there is
none for 8.9. Words that name only GPUs need no grammar of variants; for all others, it says what
they name.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from stoker.knowledge.gpus import cuda_gpus, hosts_of_gpus
from stoker.model.errors import UsageError
from stoker.model.slimming import LibrarySlim
from stoker.model.value import Value
from stoker.model.variant import Backend, GpuTarget
from stoker.wheel.elf.fatbin import FatbinEntry
from stoker.wheel.inspect.runs_on import arch_order, needed_code
from stoker.wheel.slim.library import SlimOptions
from stoker.wheel.slim.regions import Choose

if TYPE_CHECKING:
    from stoker.model.machine import Machine

GPU_PARTS = ("backend", "gpus")  # of a variant


class SlimRequest(Value, frozen=True, kw_only=True):
    """``nvidia`` includes NVIDIA's own libraries, for private use.

    ``label`` is the local version of the slimmed wheel. Without it, the GPUs are appended to the
    local version that the wheel has.
    """

    gpus: tuple[GpuTarget, ...]
    options: SlimOptions = SlimOptions()
    nvidia: bool = False
    label: str | None = None


def gpu_targets(text: str, parts: Collection[str] = GPU_PARTS) -> tuple[GpuTarget, ...]:
    """Parse the words of ``--for``; this machine is read only if ``native`` is one of them."""
    if "native" not in text.casefold():
        return cuda_gpus(text) or parse_targets(text, None, parts)
    from stoker.machine.system import read_machine

    return parse_targets(text, read_machine(()), parts)


def parse_targets(
    text: str, machine: "Machine | None" = None, parts: Collection[str] = GPU_PARTS
) -> tuple[GpuTarget, ...]:
    """Parse ``sm90,sm86+ptx``, ``h100,rtx4090``, or ``native`` for the GPUs of the machine. The
    words may give other ``parts`` of a variant only if the caller has a use for them.
    """
    from stoker.model.variant import Variant
    from stoker.plan.grammar import parse, parts_beside

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
    known = (*parts, "cpu") if machine else tuple(parts)  # `native` is a CPU as well
    if variant.platform and variant.platform.cpu in hosts_of_gpus().values():
        known = (*known, "platform")  # `orin` is a GPU soldered to its CPU
    if other := parts_beside(variant, known):
        bare = Variant(backend=Backend.CUDA, gpus=variant.gpus)
        raise UsageError(
            f"slimming removes code for other GPUs, it does not choose the {' and '.join(other)}",
            hints=[f"name only GPUs: --for {bare.name}"],
        )
    return variant.gpus


def target_words(gpus: Iterable[GpuTarget]) -> str:
    """Return the GPUs as a version label has them: ``sm86.ptx.sm90``."""
    return ".".join(gpu.word.replace("+", ".") for gpu in gpus)


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
