"""What the user names: the thing to read, the GPUs of `--for`, and the place of the result.

The thing is a wheel, a library, a folder or an installed distribution. Words that name only GPUs
need no grammar of variants; for all others, it says what they name.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from stoker.knowledge.gpus import cuda_gpus
from stoker.model.artifact import TargetKind
from stoker.model.errors import UsageError
from stoker.model.value import Value
from stoker.model.variant import Backend, GpuTarget

if TYPE_CHECKING:
    from stoker.model.machine import Machine

_TIMEOUT_S = 60.0
GPU_PARTS = ("backend", "gpus")  # of a variant


class Target(Value, frozen=True, kw_only=True):
    """The ``path`` of a distribution is its dist-info folder."""

    kind: TargetKind
    path: Path


def find_target(word: str, environment: Mapping[str, str] = os.environ) -> Target:
    """Return what a word names: an existing path, else a distribution in the active environment."""
    path = Path(word)
    if path.is_dir():
        return Target(kind=TargetKind.FOLDER, path=path)
    if path.exists():
        kind = TargetKind.WHEEL if path.suffix == ".whl" else TargetKind.LIBRARY
        return Target(kind=kind, path=path)
    if os.sep in word or path.suffix in (".whl", ".so"):
        raise UsageError(f"there is no file or folder '{word}'", hints=["check the path"])
    from stoker.machine.python import Probe, ask_interpreter, target_python

    python = target_python(None, environment)
    asked = ask_interpreter(python, Probe(environment=environment, timeout_s=_TIMEOUT_S))
    wanted = canonicalize_name(word)
    for folder in asked.search_path:  # the first folder that has one counts
        for found in sorted(Path(folder).glob("*.dist-info")):
            if canonicalize_name(found.name.partition("-")[0]) == wanted:
                return Target(kind=TargetKind.INSTALLED, path=found)
    raise UsageError(
        f"there is neither a file '{word}' nor a distribution of that name for {python}",
        hints=["activate the virtual environment that it is installed in"],
    )


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
    known = (*parts, "cpu") if machine else parts  # `native` is a CPU as well
    if other := parts_beside(variant, known):
        bare = Variant(backend=Backend.CUDA, gpus=variant.gpus)
        raise UsageError(
            f"slimming removes code for other GPUs, it does not choose the {' and '.join(other)}",
            hints=[f"name only GPUs: --for {bare.name}"],
        )
    return variant.gpus


def check_replaceable(target: Path, *, force: bool) -> None:
    """Raise an error if something exists at the target; ``force`` allows a regular file."""
    if not target.exists():
        return
    if not target.is_file():
        raise UsageError(f"{target} exists and is not a regular file: choose another --out")
    if not force:
        raise UsageError(f"{target} already exists", hints=["replace it with --force"])


def check_new(target: Path, wheel: Path, *, refusal: UsageError, force: bool) -> None:
    """Raise an error if a new wheel may not be written; ``refusal`` if the original is there."""
    if target.exists() and target.samefile(wheel):
        raise refusal
    check_replaceable(target, force=force)
