"""The GPUs of `stoker slim --for`.

Words that name GPUs only need no grammar of variants. For all others, it says what they name.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from stoker.knowledge.gpu_words import cuda_gpus
from stoker.model.errors import UsageError
from stoker.model.variant import Backend, GpuTarget

if TYPE_CHECKING:
    from stoker.model.machine import Machine

GPU_PARTS = ("backend", "gpus")  # of a variant


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
    from stoker.plan.grammar import name, parse, parts_beside

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
    known = (*parts, "cpu") if machine else parts  # `native` is a CPU as well
    if other := parts_beside(variant, known):
        bare = Variant(backend=Backend.CUDA, gpus=variant.gpus)
        raise UsageError(
            f"slimming removes code for other GPUs, it does not choose the {' and '.join(other)}",
            hints=[f"name only GPUs: --for {name(bare)}"],
        )
    return variant.gpus
