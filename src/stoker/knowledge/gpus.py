"""GPU architectures, the cards people own, CUDA releases, and which code runs where.

GPUs are named as people, drivers and compilers do: ``h100``, ``sm_90a+ptx``, ``8.0;8.6;9.0+PTX``.
Spelling (case, dashes, underscores, spaces) does not matter, because words are looked up without
it. Words that makers put around the name of a chip (``NVIDIA H100 80GB HBM3``) are ignored beside
that name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from stoker.knowledge import Row, load, rows, table
from stoker.model.artifact import Compression
from stoker.model.errors import UsageError, unknown
from stoker.model.value import version_numbers
from stoker.model.variant import Backend, GpuTarget

_SERIES = re.compile(r"(?:RTX|GTX|RX) (\d{4}(?: Ti| D| XTX?)?)", re.ASCII)
LONGEST = 1000  # characters of a text
FILLERS = frozenset({"with", "and", "for", "only", "on", "the", "a"})
_MOST_TOGETHER = 12  # words that mean one thing together
_TRADEMARK = re.compile(r"\((?:r|tm|c|nvgpu)\)|[()]")
_PTX = re.compile(r"(?<=[a-z0-9])(?:\s+(?:with|and))?[\s+-]+ptx\b")
_CAPABILITY = re.compile(r"\d+\.\d+[af]?", re.ASCII)
_NUMBER = re.compile(r"(?:sm_?|compute_?)?(\d+)(\d)([af]?)", re.ASCII)
TARGETS = r"(?:sm_?|compute_?)\d+[af]?|\d{2,3}[af]?|[a-z0-9_.-]+(?:\+[a-z0-9_.-]+)+"

Meaning = TypeVar("Meaning")


class GpuModel(Row, frozen=True, kw_only=True):
    backend: Backend
    arch: str
    names: tuple[str, ...]
    exact: bool = False
    pci: tuple[str, ...] = ()  # PCI devices of Intel, as sysfs writes them
    device_ip: str | None = None  # Intel's number of the platform, as `ocloc ids` prints it


class _GpuTable(Row, frozen=True, kw_only=True):
    gpu: tuple[GpuModel, ...]
    generation: dict[str, str]
    host: dict[str, tuple[str, ...]]
    decoration: tuple[str, ...]


_gpu_table = table("gpus", _GpuTable)


@cache
def gpus() -> dict[str, GpuModel]:
    """Return the GPUs by architecture without suffix."""
    return {row.arch: row for row in _gpu_table().gpu}


@cache
def generations() -> dict[str, tuple[GpuTarget, ...]]:
    """Return the names of GPU generations and the targets that each stands for."""
    return {
        name: tuple(map(_target, text.split(";"))) for name, text in _gpu_table().generation.items()
    }


def _target(text: str) -> GpuTarget:
    arch, _, ptx = text.partition("+")
    return GpuTarget(arch=arch, ptx=bool(ptx))


@cache
def decorations() -> frozenset[str]:
    """Return the words that makers put before and after the name of a chip."""
    return frozenset(_gpu_table().decoration)


def runs_on(target: GpuTarget, capability: str) -> str | None:
    """Return how CUDA code for ``target`` runs on a GPU: ``cubin``, ``ptx`` (compiled at load) or
    not.
    """
    gpu = GpuTarget(arch=capability)
    (major, minor), (gpu_major, gpu_minor) = target.capability, gpu.capability
    bare, exact = f"{major}.{minor}", {row.arch for row in _gpu_table().gpu if row.exact}
    if target.suffix == "a" or {bare, capability} & exact:
        fits = bare == capability
    else:
        fits = major == gpu_major and minor <= gpu_minor
    if fits:
        return "cubin"
    # PTX of an `a` target holds instructions of that one chip; of an `f` target, of its family.
    forward = target.ptx and not target.suffix and (major, minor) <= (gpu_major, gpu_minor)
    return "ptx" if forward else None


class CudaRelease(Row, frozen=True, kw_only=True):
    version: str
    archs: tuple[str, ...]
    gcc_max: int
    clang_below: int
    driver: int


class _DeviceCode(Row, frozen=True, kw_only=True):
    driver: dict[Compression, str]


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """Return the known releases by version, oldest first."""
    return {release.version: release for release in rows("cuda", CudaRelease)()}


@cache
def cuda_archs() -> tuple[str, ...]:
    """Return every architecture that any release makes."""
    return tuple(dict.fromkeys(arch for row in cuda_releases().values() for arch in row.archs))


@cache
def _drivers() -> dict[Compression, str]:
    return load("device_code", _DeviceCode).driver


def oldest_driver(compressions: Iterable[Compression]) -> str | None:
    """Return the oldest driver that unpacks all of these; None if any driver does."""
    drivers = [_drivers()[kind] for kind in compressions if kind in _drivers()]
    return max(drivers, key=version_numbers, default=None)


_LISTED = re.compile(
    r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)([af]?)(\+ptx|-real|-virtual)?", re.ASCII | re.IGNORECASE
)
_UNRESOLVED = ("all", "all-major", "native", "auto", "common", "off")


class ListedGpus(NamedTuple):
    """What a list of architectures names: ``odd`` are words in a spelling of another tool, and
    ``open`` the words that leave the targets to the build.
    """

    targets: tuple[GpuTarget, ...]
    odd: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def listed_gpus(text: str, *, of_cmake: bool = False) -> ListedGpus | None:
    """Read the value of TORCH_CUDA_ARCH_LIST, or of CMAKE_CUDA_ARCHITECTURES; ``None`` if a word
    is no target.
    """
    targets, odd, left = list[GpuTarget](), list[str](), list[str]()
    for word in re.split(r"[;,\s]+", text.strip()):
        name, _, ptx = word.partition("+")
        if not word or word.casefold() in _UNRESOLVED:
            left += [word] if word else []
        elif found := _LISTED.fullmatch(word):
            arch, form = f"{found[1]}.{found[2]}{found[3].lower()}", (found[4] or "").lower()
            if arch not in cuda_archs():
                return None
            with_ptx = form in ("+ptx", "-virtual") or (of_cmake and not form)
            targets.append(GpuTarget(arch=arch, ptx=with_ptx))
            if ("." in word) is of_cmake or not word[0].isdigit():
                odd.append(word)
        elif (row := gpu_names().get(squeeze(name))) and row.backend is Backend.CUDA:
            targets += [replace(gpu, ptx=gpu.ptx or ptx.upper() == "PTX") for gpu in row.gpus]
        else:
            return None
    return ListedGpus(sorted_targets(targets), tuple(odd), tuple(left))


class NamedGpus(NamedTuple):
    backend: Backend
    gpus: tuple[GpuTarget, ...]


def cuda_gpus(text: str) -> tuple[GpuTarget, ...] | None:
    """Return the targets that a text names, in order; None if a word is no GPU of NVIDIA."""
    found: list[GpuTarget] = []
    words = split_words(folded(text)) if len(text) <= LONGEST else ["?"]
    for _, named in longest_runs(words, _gpus_of):
        if named is None or named.backend is not Backend.CUDA:
            return None
        found += named.gpus
    return sorted_targets(found) or None


def _gpus_of(words: Sequence[str]) -> NamedGpus | None:
    if found := gpus_named(words):
        return found
    word = "-".join(words)
    if _CAPABILITY.fullmatch(word):
        return cuda_target(word) if word in cuda_archs() else None  # else a release of CUDA
    return joined_targets(word) if re.fullmatch(TARGETS, word, re.ASCII) else None


def folded(text: str) -> str:
    """Return a text in lower case, without trademarks."""
    return _TRADEMARK.sub(" ", text.casefold()).strip()


def split_words(text: str) -> list[str]:
    """Return the words of a folded text; what a plus sign joins is one word."""
    joined = re.sub(r"\s*\+\s*", "+", _PTX.sub("+ptx", text))
    return [word for word in re.split(r"[-\s,;]+", joined) if word]


def longest_runs(
    words: Sequence[str], meaning: Callable[[Sequence[str]], Meaning | None]
) -> Iterator[tuple[int, Meaning | None]]:
    """Yield the meaning of the longest run of words that has one, until no words are left, with the
    index of its first word; None for a word that means nothing and is no filler.
    """
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + _MOST_TOGETHER), start, -1):
            found = meaning(words[start:end])
            if found is not None:
                yield start, found
                start = end
                break
        else:
            if words[start] not in FILLERS:
                yield start, None
            start += 1


def squeeze(word: str) -> str:
    """Return the form in which a word is looked up: lower case, without dashes, dots and blanks."""
    return re.sub(r"[\s._-]", "", word.casefold())


def is_decoration(word: str) -> bool:
    """Return whether makers put the word before or after the name of a chip."""
    return word in decorations() or re.fullmatch(r"\d+gb", word, re.ASCII) is not None


@cache
def gpu_names() -> dict[str, NamedGpus]:
    """Return what names of cards, chips and generations stand for."""
    names: dict[str, NamedGpus] = {}
    for row in gpus().values():
        target = NamedGpus(row.backend, (GpuTarget(arch=row.arch),))
        spelled = row.names if row.backend is Backend.CUDA else (row.arch, *row.names)
        names |= {squeeze(name): target for name in spelled}
        # People leave out the name of the series: 4090.
        names |= {squeeze(n[1]): target for n in map(_SERIES.fullmatch, row.names) if n}
    for name, archs in generations().items():
        names[name] = NamedGpus(gpus()[archs[0].arch].backend, archs)
    return names


@cache
def hosts_of_gpus() -> dict[str, str]:
    """Return the family of the CPU to which GPUs are soldered, by their squeezed names."""
    return {squeeze(name): cpu for cpu, names in _gpu_table().host.items() for name in names}


def gpus_named(words: Sequence[str]) -> NamedGpus | None:
    """Read a name, also as the driver or the maker prints it: ``NVIDIA H100 80GB HBM3``."""
    bare = "".join(word for word in words if not is_decoration(word))
    return gpu_names().get(squeeze("".join(words))) or gpu_names().get(squeeze(bare))


def joined_targets(word: str) -> NamedGpus | None:
    """Read ``sm80+sm90a+ptx``, ``h100+rtx4090`` or ``gfx942+gfx90a``."""
    backend: Backend | None = None
    targets: list[GpuTarget] = []
    for item in word.split("+"):
        if item == "ptx" and targets:
            targets[-1] = replace(targets[-1], ptx=True)
            continue
        found = one_target(item)
        if found is None:
            return None
        if backend not in (None, found.backend):
            raise UsageError(f"'{word}' mixes {backend} and {found.backend} targets")
        backend = found.backend
        targets.extend(found.gpus)
    return NamedGpus(backend, tuple(targets)) if backend else None


def one_target(item: str) -> NamedGpus | None:
    """Read one of the words that plus signs join."""
    if number := _NUMBER.fullmatch(item):
        return cuda_target(f"{number[1]}.{number[2]}{number[3]}")
    return cuda_target(item) if _CAPABILITY.fullmatch(item) else gpus_named(item.split("-"))


def cuda_target(arch: str) -> NamedGpus:
    if arch not in cuda_archs():
        known = [GpuTarget(arch=known).word for known in cuda_archs()]
        raise unknown("GPU architecture", GpuTarget(arch=arch).word, known)
    return NamedGpus(Backend.CUDA, (GpuTarget(arch=arch),))


def sorted_targets(targets: Iterable[GpuTarget]) -> tuple[GpuTarget, ...]:
    """Return each target once, with PTX if any of the same architecture has it, in order."""
    by_arch: dict[str, GpuTarget] = {}
    for target in targets:
        ptx = target.ptx or (target.arch in by_arch and by_arch[target.arch].ptx)
        by_arch[target.arch] = GpuTarget(arch=target.arch, ptx=ptx)
    return tuple(sorted(by_arch.values(), key=lambda target: target.sort_key))
