"""Targets of single kernels, of which a build lists those that each kernel has code for. Pure.

Of each list and each target of the build, the kernel is compiled for the newest listed target that
runs there: one of the same generation, or an older one whose PTX is compiled as well.
"""

from collections.abc import Iterable, Iterator, Sequence

from stoker.model.variant import GpuTarget


def loose_targets(
    lists: Iterable[Sequence[str]], wanted: Sequence[str], *, families: bool
) -> tuple[str, ...]:
    """Return the targets of all kernels. ``families``: of ``10.0a`` and ``10.0f``, which are for
    different releases of CUDA, the second one counts.
    """
    lists = list(lists)
    named = {arch for each in lists for arch in each}
    found = dict.fromkeys(arch for each in lists for arch in _of_list(each, wanted))
    return tuple(arch for arch in found if not _is_of_other_cuda(arch, named, families=families))


def _is_of_other_cuda(arch: str, named: set[str], *, families: bool) -> bool:
    if arch.endswith("f"):
        return not families
    return arch.endswith("a") and families and f"{arch[:-1]}f" in named


def _of_list(listed: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    with_ptx = {arch.removesuffix("+PTX") for arch in listed if arch.endswith("+PTX")}
    plain = sorted(
        (arch.removesuffix("+PTX") for arch in listed if not arch.endswith(("a", "f"))),
        key=_capability,
    )
    left = list(wanted)
    for arch in listed:
        served = [gpu for gpu in left if _is_for(arch, gpu)]
        if served:
            yield arch
            left = [gpu for gpu in left if gpu not in served]
    for gpu in left:
        fitting = [arch for arch in plain if _capability(arch) <= _capability(gpu)]
        fitting = [a for a in fitting if a in with_ptx or _generation(a) == _generation(gpu)]
        yield from fitting[-1:]
        yield from (f"{arch}+PTX" for arch in fitting[-1:] if arch in with_ptx)


def _is_for(arch: str, gpu: str) -> bool:
    """Tell whether a target with a suffix is for this GPU: its own, or that of its family."""
    if arch.endswith("f"):
        same = _generation(arch) == _generation(gpu)
        return same and _capability(arch) <= _capability(gpu)
    return arch.endswith("a") and arch[:-1] == gpu


def _capability(arch: str) -> tuple[int, int]:
    return GpuTarget(arch=arch).capability


def _generation(arch: str) -> int:
    return _capability(arch)[0]
