"""The grammar of variants: reads words into a ``Variant``, and gives a ``Variant`` its name.

A variant is a list of words in any order: ``cu130-sm90-avx512``, ``h100 with AVX-512``,
``8.0;8.6;9.0+PTX``. Every word means one part; ``stoker.knowledge.gpus`` reads those of GPUs.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

import msgspec

from stoker.knowledge.cpus import cpu_levels, cpu_models, cpu_names, cpu_products, is_apple
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import (
    FILLERS,
    LONGEST,
    TARGETS,
    NamedGpus,
    cuda_archs,
    cuda_releases,
    cuda_target,
    folded,
    gpu_names,
    gpus,
    hosts_of_gpus,
    is_decoration,
    joined_targets,
    longest_runs,
    one_target,
    sorted_targets,
    split_words,
    squeeze,
)
from stoker.knowledge.platforms import platforms
from stoker.model.errors import UnknownWordError, UsageError, nearest, unknown
from stoker.model.machine import Machine
from stoker.model.variant import (
    Backend,
    BuildType,
    Feature,
    GpuTarget,
    Platform,
    Sanitizer,
    Variant,
)

Parts = dict[str, Any]  # the fields of Variant that a word gives

_NAMED_BUILD = re.compile(r"^(?:python3(?P<minor>\d+)packages\.)?(?:py)?torch-", re.ASCII)
_NATIVE = ("native", "thismachine")


def parse(
    text: str,
    machine: Machine | None = None,
    installed: Callable[[], Iterable[str]] = tuple,
) -> Variant:
    """Read a variant. ``machine`` is what ``native`` and ``this machine`` stand for; ``installed``
    returns the releases of CUDA that are installed, of which ``cuda 13`` is the newest that fits.
    """
    return _assemble(text, _given(text, machine, installed))


def parts_named(text: str, machine: Machine | None = None) -> frozenset[str]:
    """Return the names of the parts that the words of a variant give."""
    return frozenset(name for name, _ in _given(text, machine))


def _given(
    text: str, machine: Machine | None, installed: Callable[[], Iterable[str]] = tuple
) -> list[tuple[str, Any]]:
    if len(text) > LONGEST:
        raise UsageError(f"a variant of {len(text):,} characters: '{text[:40]}...'")
    plain = folded(text)
    given: list[tuple[str, Any]] = []
    if named := _NAMED_BUILD.match(plain):
        plain = plain[named.end() :]
        if named["minor"]:
            given.append(("python", _python(named["minor"])))
    words = split_words(plain)
    if not [word for word in words if word not in FILLERS]:
        raise UsageError("a variant needs at least one word", hints=["for example: cu130-sm90"])
    native = _native(machine, cpu_only="cpu" in words) if machine else None
    for start, parts in longest_runs(words, lambda run: _meaning(run, native)):
        if parts is None:
            raise _unknown_words(text, words[start:])
        given.extend(parts.items())
    return [
        (name, _release(value, installed()) if name == "toolkit" and "." not in value else value)
        for name, value in given
    ]


def _release(major: str, installed: Iterable[str]) -> str:
    """Return the newest release of CUDA with this major version: an installed one if there is."""
    known = list(cuda_releases())
    fitting = [version for version in known if version.startswith(f"{major}.")]
    here = [version for version in fitting if version in installed]
    return (here or fitting)[-1]


def _meaning(words: Sequence[str], native: Parts | None = None) -> Parts | None:
    key = squeeze("".join(words))
    if key in _NATIVE:
        if native is None:
            hints = ["name the GPU and CPU instead"]
            raise UsageError("'native' has no meaning here", hints=hints)
        return native
    if parts := _vocabulary().get(key) or _product(words):
        return parts
    for expression, read in _PATTERNS:  # words with a number in them
        if found := re.fullmatch(expression, "-".join(words), re.ASCII):
            return read(found)
    return next(
        ({"cpu": cpu} for model, cpu in cpu_models() if model.fullmatch("-".join(words))), None
    )


def _product(words: Sequence[str]) -> Parts | None:
    """Read a GPU or CPU as its driver or maker prints it: ``NVIDIA H100 80GB HBM3``."""
    rest = [word for word in words if not is_decoration(word)]
    if len(rest) == len(words):
        return None
    parts = _vocabulary().get(squeeze("".join(rest)), {})
    return parts if "gpus" in parts or "cpu" in parts else None


@cache
def _vocabulary() -> dict[str, Parts]:
    """Return every word with one fixed meaning. A test makes sure that no two tables
    define a word.
    """
    words: dict[str, Parts] = {backend.value: {"backend": backend} for backend in Backend}
    words["metal"] = {"backend": Backend.MPS}
    words |= {name: _gpu_parts(found) for name, found in gpu_names().items()}
    for cpu in cpu_names():
        words[squeeze(cpu)] = {"cpu": cpu}
    for level in cpu_levels().values():
        words |= {squeeze(alias): {"cpu": level.name} for alias in level.aliases}
    words |= {product: {"cpu": cpu} for product, cpu in cpu_products().items()}
    for blas in blas_libraries().values():
        words |= {squeeze(name): {"blas": blas.name} for name in (blas.name, *blas.aliases)}
    words |= {kind.value.casefold(): {"build_type": kind} for kind in BuildType}
    words |= {sanitizer.value: {"sanitizer": sanitizer} for sanitizer in Sanitizer}
    for feature in features():
        words[feature] = {"features": (Feature(name=feature),)}
        words[f"no{feature}"] = {"features": (Feature(name=feature, on=False),)}
    for platform, described in platforms().items():
        names = (str(platform), *described.aliases)
        words |= {squeeze(name): {"platform": platform} for name in names}
    for name, cpu in hosts_of_gpus().items():
        words[name] = {**words[name], "platform": Platform(os="linux", cpu=cpu)}
    return words


def _toolkit(backend: Backend, version: str) -> Parts:
    return {"backend": backend, "toolkit": version}


def _cuda_toolkit(found: re.Match[str]) -> Parts | None:
    """Read ``cu130`` or ``cuda12.8``, or a major version alone."""
    if not any(version.startswith(f"{found[1]}.") for version in cuda_releases()):
        return None
    version = f"{found[1]}.{found[2]}" if found[2] else found[1]
    if found[2] and version not in cuda_releases():
        hint = f"known: {' '.join(cuda_releases())}"
        raise unknown("CUDA version", version, cuda_releases(), hint=hint)
    return _toolkit(Backend.CUDA, version)


def _gpu_parts(found: NamedGpus) -> Parts:
    return {"backend": found.backend, "gpus": found.gpus}


def _targets(found: re.Match[str]) -> Parts | None:
    targets = joined_targets(found[0])
    return _gpu_parts(targets) if targets else None


def _number(found: re.Match[str]) -> Parts:
    """Read ``9.0`` as a GPU architecture and ``12.8`` as a CUDA version; 12.0 and 12.1 are both."""
    number, known = found[0], (*cuda_archs(), *cuda_releases())
    if number not in known:
        raise unknown("GPU architecture or CUDA version", number, known)
    if number in cuda_archs():
        return _gpu_parts(cuda_target(number))
    return _toolkit(Backend.CUDA, number)


def _numbers(found: re.Match[str]) -> str:
    """Join the numbers of a match by dots, without leading zeros: ``6.4``."""
    return ".".join(number.lstrip("0") or "0" for number in found.groups())


def _python(minor: str) -> str:
    """Return ``3.14``, or ``3.14t`` for the free-threaded build."""
    return f"3.{minor.lstrip('0') or '0'}"


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], Parts | None]], ...] = (
    (r"cu(?:da)?-?(\d{2})(?:\.?(\d+))?", _cuda_toolkit),
    (r"rocm-?(\d+)\.(\d+)", lambda found: _toolkit(Backend.ROCM, _numbers(found))),
    (r"xpu-?(\d{4})\.(\d+)", lambda found: _toolkit(Backend.XPU, _numbers(found))),
    (r"(?:py|cp|python)-?3\.?(\d+t?)", lambda found: {"python": _python(found[1])}),
    (r"\d+\.\d+[af]?", _number),
    (TARGETS, _targets),
)


def _native(machine: Machine, *, cpu_only: bool) -> Parts:
    """Return what this machine is: its CPU, and its GPUs if it has any."""
    cpu = machine.cpu.microarchitecture
    parts: Parts = {"cpu": cpu} if cpu in cpu_names() else {}
    if cpu_only:
        return parts
    if machine.gpus:
        # NVIDIA's come first on a machine with several kinds.
        kinds = [row.backend for gpu in machine.gpus if (row := gpus().get(gpu.capability))]
        nvidias = any(gpu.is_nvidias for gpu in machine.gpus)
        backend = Backend.CUDA if nvidias else next(iter(kinds), Backend.CPU)
        known = {arch for arch, gpu in gpus().items() if gpu.backend is backend}
        archs = sorted({gpu.capability for gpu in machine.gpus} & known)
        return parts | {"backend": backend, "gpus": tuple(GpuTarget(arch=arch) for arch in archs)}
    return parts | {"backend": Backend.MPS} if machine.os.system == "macos" else parts


def _unknown_words(text: str, words: list[str]) -> UsageError:
    """Name the words that mean nothing, as many as stand together, and words like them."""
    from stoker.knowledge.compiler_modes import linker_programs

    strange = list(takewhile(lambda word: is_decoration(word) or not _means(word), words))
    named = [word for word in strange if not is_decoration(word)] or strange
    if "+" in named[0]:
        named = [item for item in named[0].split("+") if item and not one_target(item)] or named
    patterns = ["cuda", "cu130", "cu128", "rocm6.4", "native", "py312"]
    names = [*_vocabulary(), *patterns, *(GpuTarget(arch=a).word for a in cuda_archs())]
    word = " ".join(named)
    where = "" if text.casefold() == word else f" in variant '{text}'"
    cutoff = 0.7 if word[:1].isdigit() else 0.5  # of a number, few characters tell something
    near = _of_one_kind(
        nearest(squeeze(word), names, cutoff=cutoff) or nearest(named[0], names, cutoff=cutoff)
    )
    hints = [f"did you mean {' or '.join(near)}?"] if near else []
    if word in {mode.value for mode in linker_programs()}:
        hints = [f"a setting chooses the linker: --linker {word}"]
    message = f"unknown {'words' if named[1:] else 'word'} '{word}'{where}"
    hints.append("`stoker plan --list` lists the words")
    return UnknownWordError(message, text=text, hints=hints)


def _of_one_kind(near: Sequence[str]) -> list[str]:
    """Return the suggestions that mean the same kind of part as the first one."""

    def kind(word: str) -> str:
        parts = {} if word in _NATIVE else _meaning([word]) or {}
        return next((part for part in ("gpus", "backend", *parts) if part in parts), "")

    return [word for word in near if kind(word) == kind(near[0])]


def _means(word: str) -> bool:
    return squeeze(word) in _NATIVE or _meaning([word]) is not None


def _assemble(text: str, given: list[tuple[str, Any]]) -> Variant:
    """Put parts together: lists add up; anything else that is said twice must agree."""
    fields: Parts = {}
    for name, value in given:
        if name in ("gpus", "features"):
            fields[name] = (*fields.get(name, ()), *value)
        elif fields.setdefault(name, value) != value:
            raise UsageError(
                f"variant '{text}' gives two values for {name}: {fields[name]} and {value}",
                hints=["leave one of them out"],
            )
    if "cpu" in fields and is_apple(fields["cpu"]):
        fields.setdefault("backend", Backend.MPS)
    return canonical(Variant(**fields))


def canonical(variant: Variant) -> Variant:
    """Return the variant with lists sorted and without duplicates; refuse contradictions."""
    by_name: dict[str, Feature] = {}
    for feature in variant.features:
        if by_name.setdefault(feature.name, feature) != feature:
            raise UsageError(f"feature {feature.name} is both asked for and refused")
    return msgspec.structs.replace(
        variant,
        gpus=sorted_targets(variant.gpus),
        features=tuple(sorted(by_name.values())),
    )


def parse_part(part: str, text: str, where: str | None = None) -> Any:
    """Read one part given apart from the name: ``parse_part("blas", "OpenBLAS")``."""
    words = re.split(r"[-\s]+", text.casefold().strip())
    if part == "python":
        words = [f"py{text}"] if re.fullmatch(r"\d+\.\d+t?", text, re.ASCII) else words
    parts = {} if squeeze(text) in _NATIVE else _meaning(words) or {}
    if part in parts:
        return parts[part]
    choices: dict[str, Iterable[object]] = {
        "blas": blas_libraries(),
        "build_type": BuildType,
        "sanitizer": Sanitizer,
        "features": features(),
        "platform": platforms(),
    }
    named = [str(choice) for choice in choices.get(part, ())]
    hint = "for example: 3.12" if part == "python" else None
    raise unknown(part.replace("_", " "), text, named, where=where, hint=hint)


def parts_beside(variant: Variant, allowed: Iterable[str]) -> list[str]:
    """Return the names of the parts that a variant gives and that are not ``allowed``."""
    default = Variant()
    return [
        part.replace("_", " ")
        for part in Variant.__struct_fields__
        if part not in allowed and getattr(variant, part) != getattr(default, part)
    ]


def label(variant: Variant) -> str:
    """Return the PEP 440 local version label: ``cu130.sm90.avx512``. The platform is in the wheel's
    tag.
    """
    return re.sub(r"[^a-z0-9]+", ".", msgspec.structs.replace(variant, platform=None).name)
