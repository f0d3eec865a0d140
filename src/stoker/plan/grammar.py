"""The one grammar of variants, both ways: words to a ``Variant``, a ``Variant`` to its name.

A variant is a list of words in any order: ``cu130-sm90-avx512``, ``h100 with AVX-512``,
``8.0;8.6;9.0+PTX``. Every word means one part; spelling (case, dashes, underscores, spaces) does
not matter, because words are looked up squeezed. ``native`` needs a machine, so it becomes plain
words before anything else is read.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from stoker.knowledge.cpus import cpu_levels, cpu_names, cpu_products
from stoker.knowledge.cuda import cuda_archs, cuda_releases
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import generations, gpus
from stoker.knowledge.platforms import platforms
from stoker.model.errors import UsageError, unknown
from stoker.model.machine import Machine
from stoker.model.variant import (
    Backend,
    BuildType,
    Feature,
    GpuTarget,
    Sanitizer,
    Variant,
)

Parts = dict[str, Any]  # fields of Variant that one word gives

_LONGEST = 1000  # characters of a variant
_MOST_TOGETHER = 12  # words that mean one thing
_FILLERS = frozenset({"with", "and", "for", "only", "on", "the", "a"})
_CATALOGUE = re.compile(r"^(?:python(?P<major>\d)(?P<minor>\d+)packages\.)?(?:py)?torch-", re.ASCII)
_ARCH_LIST = re.compile(r"^\d+\.\d+[af]?(\+ptx)?([;, ]+\d+\.\d+[af]?(\+ptx)?)*$", re.ASCII)
_CAPABILITY = re.compile(r"\d+\.\d+[af]?", re.ASCII)


# -- words to a variant ------------------------------------------------------------------------


def parse(text: str, machine: Machine | None = None) -> Variant:
    """Read a variant; ``machine`` is what ``native`` and ``this machine`` stand for."""
    if len(text) > _LONGEST:
        raise UsageError(f"a variant of {len(text):,} characters: '{text[:40]}...'")
    folded = text.casefold().strip()
    if _ARCH_LIST.match(folded):
        return _assemble(text, [("gpus", _arch_list(folded)), ("backend", Backend.CUDA)])
    given: list[tuple[str, Any]] = []
    if catalogue := _CATALOGUE.match(folded):
        folded = folded[catalogue.end() :]
        if catalogue["major"]:
            given.append(("python", f"{catalogue['major']}.{catalogue['minor']}"))
    words = [word for word in re.split(r"[-\s,;]+", folded) if word]
    if not [word for word in words if word not in _FILLERS]:
        raise UsageError("a variant needs at least one word", hints=["for example: cu130-sm90"])
    if "cpu" in words and machine is not None:
        machine = msgspec.structs.replace(machine, gpus=())  # `cpu-native`: this CPU, no GPU
    for parts in _read(text, words, machine):
        given.extend(parts.items())
    return _assemble(text, given)


def _read(text: str, words: list[str], machine: Machine | None) -> Iterator[Parts]:
    """The longest run of words that means something, again and again."""
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + _MOST_TOGETHER), start, -1):
            parts = _meaning(words[start:end], machine)
            if parts is not None:
                yield parts
                start = end
                break
        else:
            if words[start] not in _FILLERS:
                raise _unknown_word(text, words[start])
            start += 1


def _meaning(words: list[str], machine: Machine | None) -> Parts | None:
    key = squeeze("".join(words))
    if key in ("native", "thismachine"):
        return _native(machine)
    if key in _vocabulary():
        return _vocabulary()[key]
    return _pattern("-".join(words))


def squeeze(word: str) -> str:
    """How a word is looked up: lower case, without what people put between letters."""
    return re.sub(r"[\s._-]", "", word.casefold())


@cache
def _vocabulary() -> dict[str, Parts]:
    """Every word with one fixed meaning. A test holds that no two tables claim the same word."""
    words: dict[str, Parts] = {backend.value: {"backend": backend} for backend in Backend}
    for row in gpus().values():
        target: Parts = {"backend": row.backend, "gpus": (GpuTarget(arch=row.arch),)}
        names = row.names if row.backend is Backend.CUDA else (row.arch, *row.names)
        words |= {squeeze(name): target for name in names}
    for name, archs in generations().items():
        words[name] = {"backend": Backend.CUDA, "gpus": _arch_list(archs.casefold())}
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
    return words


def _pattern(word: str) -> Parts | None:
    """Words with a number in them: versions and lists of GPU targets."""
    for expression, read in _PATTERNS:
        if found := re.fullmatch(expression, word, re.ASCII):
            return read(found)
    return None


def _toolkit(backend: Backend, version: str) -> Parts:
    return {"backend": backend, "toolkit": version}


def _cuda_toolkit(found: re.Match[str]) -> Parts:
    version = f"{found[1]}.{found[2]}"
    if version not in cuda_releases():
        raise unknown("CUDA version", version, cuda_releases(), hint="known: " + _known_cuda())
    return _toolkit(Backend.CUDA, version)


def _known_cuda() -> str:
    return " ".join(cuda_releases())


def _targets(found: re.Match[str]) -> Parts:
    """``sm80+sm90a+ptx``, ``h100+rtx4090``, ``gfx942+gfx90a``: joined by plus signs."""
    backend: Backend | None = None
    targets: list[GpuTarget] = []
    for item in found[0].split("+"):
        if item == "ptx" and targets:
            targets[-1] = msgspec.structs.replace(targets[-1], ptx=True)
            continue
        parts = _one_target(item)
        if parts is None:
            raise _unknown_word(found[0], item)
        if backend not in (None, parts["backend"]):
            raise UsageError(f"'{found[0]}' mixes {backend} and {parts['backend']} targets")
        backend = parts["backend"]
        targets.extend(parts["gpus"])
    return {"backend": backend, "gpus": tuple(targets)}


def _one_target(item: str) -> Parts | None:
    if number := re.fullmatch(r"(?:sm|compute)_?(\d+)(\d)([af]?)", item, re.ASCII):
        return _cuda_target(f"{number[1]}.{number[2]}{number[3]}")
    if _CAPABILITY.fullmatch(item):
        return _cuda_target(item)
    known = _vocabulary().get(squeeze(item), {})
    return known if "gpus" in known else None


def _cuda_target(arch: str) -> Parts:
    if arch not in cuda_archs():
        known = [_target_word(GpuTarget(arch=known)) for known in cuda_archs()]
        raise unknown("GPU architecture", _target_word(GpuTarget(arch=arch)), known)
    return {"backend": Backend.CUDA, "gpus": (GpuTarget(arch=arch),)}


def _arch_list(text: str) -> tuple[GpuTarget, ...]:
    """A TORCH_CUDA_ARCH_LIST."""
    targets: list[GpuTarget] = []
    for item in re.split(r"[;, ]+", text):
        arch, _, ptx = item.partition("+")
        targets += [
            msgspec.structs.replace(target, ptx=bool(ptx)) for target in _cuda_target(arch)["gpus"]
        ]
    return tuple(targets)


def _numbers(found: re.Match[str]) -> str:
    """``6.4`` of whatever was written, without leading zeros."""
    return ".".join(number.lstrip("0") or "0" for number in found.groups())


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], Parts]], ...] = (
    (r"cu(\d{2})(\d+)", _cuda_toolkit),
    (r"cuda-?(\d+)\.(\d+)", _cuda_toolkit),
    (r"rocm(\d+)\.(\d+)", lambda found: _toolkit(Backend.ROCM, _numbers(found))),
    (r"xpu(\d{4})\.(\d+)", lambda found: _toolkit(Backend.XPU, _numbers(found))),
    (r"(?:py|cp|python)(3)\.?(\d+)", lambda found: {"python": _numbers(found)}),
    (r"(?:sm|compute)_?\d+[af]?|\d+\.\d+[af]?|[a-z0-9_.]+(?:\+[a-z0-9_.]+)+", _targets),
)


def _native(machine: Machine | None) -> Parts:
    """What this machine is: its GPUs' architectures if it has any, and its CPU."""
    if machine is None:
        raise UsageError("'native' has no meaning here", hints=["name the GPU and CPU instead"])
    cpu = machine.cpu.microarchitecture
    parts: Parts = {"cpu": cpu} if cpu in cpu_names() else {}
    if machine.gpus:
        archs = sorted({gpu.capability for gpu in machine.gpus} & set(cuda_archs()))
        gpu_targets = tuple(GpuTarget(arch=arch) for arch in archs)
        return parts | {"backend": Backend.CUDA, "gpus": gpu_targets}
    backend = Backend.MPS if machine.os.system == "macos" else Backend.CPU
    return parts | {"backend": backend}


def _unknown_word(text: str, word: str) -> UsageError:
    patterns = ["cuda", "cu130", "cu128", "rocm6.4", "native", "py312"]
    names = [*_vocabulary(), *patterns, *(_target_word(GpuTarget(arch=a)) for a in cuda_archs())]
    where = "" if text.casefold() == word else f" in variant '{text}'"
    error = unknown("word", word, names)
    return UsageError(error.message + where, hints=[*error.hints, "`stoker variants` lists them"])


def _assemble(text: str, given: list[tuple[str, Any]]) -> Variant:
    """Put parts together; lists add up, anything else said twice must agree."""
    fields: Parts = {}
    for name, value in given:
        if name in ("gpus", "features"):
            fields[name] = (*fields.get(name, ()), *value)
        elif name == "backend" and fields.get(name) in (None, Backend.CPU):
            fields[name] = value  # `cpu-h100` says the less by its first word
        elif name == "backend" and value is Backend.CPU:
            continue
        elif fields.setdefault(name, value) != value:
            raise UsageError(
                f"variant '{text}' gives two values for {name}: {fields[name]} and {value}"
            )
    return canonical(Variant(**fields))


def canonical(variant: Variant) -> Variant:
    """Lists sorted and without doubles; contradictions refused."""
    by_arch: dict[str, GpuTarget] = {}
    for target in variant.gpus:
        ptx = target.ptx or (target.arch in by_arch and by_arch[target.arch].ptx)
        by_arch[target.arch] = GpuTarget(arch=target.arch, ptx=ptx)
    by_name: dict[str, Feature] = {}
    for feature in variant.features:
        if by_name.setdefault(feature.name, feature) != feature:
            raise UsageError(f"feature {feature.name} is both asked for and refused")
    return msgspec.structs.replace(
        variant,
        gpus=tuple(sorted(by_arch.values(), key=lambda target: target.sort_key)),
        features=tuple(sorted(by_name.values())),
    )


def parse_part(part: str, text: str, where: str | None = None) -> Any:
    """One part given apart from the name: ``parse_part("blas", "OpenBLAS")``."""
    words = re.split(r"[-\s]+", text.casefold().strip())
    if part == "python":
        words = [f"py{text}"] if re.fullmatch(r"\d+\.\d+", text, re.ASCII) else words
    parts = _meaning(words, None) or {}
    if part in parts:
        return parts[part]
    known = [word for word, meaning in _vocabulary().items() if part in meaning]
    raise unknown(part.replace("_", " "), text, known, where=where)


# -- a variant to its name ---------------------------------------------------------------------


def name(variant: Variant) -> str:
    """Every part that is not the default, in a fixed order; ``parse`` reads it back."""
    words = [
        _backend_word(variant),
        "+".join(_target_word(target) for target in variant.gpus),
        variant.cpu or "",
        variant.blas or "",
        "" if variant.python is None else "py" + variant.python.replace(".", ""),
        "" if variant.build_type is BuildType.RELEASE else variant.build_type.value.casefold(),
        variant.sanitizer or "",
        *(feature.name if feature.on else f"no{feature.name}" for feature in variant.features),
        "" if variant.platform is None else f"{variant.platform.os}_{variant.platform.cpu}",
    ]
    return "-".join(word for word in words if word)


def label(variant: Variant) -> str:
    """The PEP 440 local version label: ``cu130.sm90.avx512``. The platform is the wheel's tag."""
    return re.sub(r"[^a-z0-9]+", ".", name(msgspec.structs.replace(variant, platform=None)))


def _backend_word(variant: Variant) -> str:
    if variant.toolkit is None:
        return variant.backend.value
    if variant.backend is Backend.CUDA:
        return "cu" + variant.toolkit.replace(".", "")
    return f"{variant.backend}{variant.toolkit}"


def _target_word(target: GpuTarget) -> str:
    arch = target.arch
    word = "sm" + arch.replace(".", "") if _CAPABILITY.fullmatch(arch) else squeeze(arch)
    return word + ("+ptx" if target.ptx else "")
