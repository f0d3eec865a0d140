"""Which entries of a region serve the GPUs that are asked for. Pure.

By what runs where, never by the exact name: an RTX 4090 (8.9) lives on code for 8.6 where there
is none of its own.
"""

from collections.abc import Collection, Iterable, Sequence

from stoker.artifact.fatbin import Entry
from stoker.artifact.runs_on import needed_code
from stoker.deliver.slim.regions import Choose
from stoker.model.errors import UsageError
from stoker.model.machine import Machine
from stoker.model.slim import LibrarySlim
from stoker.model.variant import Backend, GpuTarget, Variant
from stoker.plan.grammar import label, parse


def parse_targets(text: str, machine: Machine | None = None) -> tuple[GpuTarget, ...]:
    """``sm90,sm86+ptx``, ``h100,rtx4090``, or ``native``, which are the GPUs of the machine."""
    variant = parse(text, machine)
    if variant.backend not in (Backend.CUDA, Backend.CPU):
        raise UsageError(
            f"'{text}' names GPUs of {variant.backend}: device code is cut for CUDA only"
        )
    if not variant.gpus:
        where = "this machine has none" if machine else "name some"
        raise UsageError(
            f"'{text}' names no GPU to keep code for: {where}",
            hints=["for example: --for h100, --for sm90,sm86+ptx; `stoker variants` lists them"],
        )
    return variant.gpus


def target_words(gpus: Iterable[GpuTarget]) -> str:
    """As a label of a version has them: ``sm86.ptx.sm90``."""
    bare = Variant(backend=Backend.CUDA, gpus=tuple(gpus))
    return label(bare).removeprefix(f"{Backend.CUDA}.")


def chooser(gpus: Sequence[GpuTarget]) -> Choose:
    """Picks from the entries of a region."""

    def choose(entries: Sequence[Entry]) -> Iterable[int]:
        needed = needed_code((entry.arch for entry in entries), gpus)
        return [index for index, entry in enumerate(entries) if entry.arch in needed]

    return choose


def check_served(libraries: Collection[LibrarySlim], gpus: Iterable[GpuTarget]) -> None:
    """Every target must find some code that it runs; what serves nobody is a mistyped target."""
    held = {row.arch for library in libraries for row in library.archs}
    for gpu in gpus:
        if held and not needed_code(held, [GpuTarget(arch=gpu.arch)]):
            raise UsageError(
                f"there is no device code in it that runs on {target_words([gpu])}",
                hints=[f"it holds {' '.join(sorted(held, key=_order))}"],
            )


def _order(arch: str) -> tuple[str, int, str]:
    kind, _, name = arch.partition("_")
    return kind, int(name.rstrip("af")), name
