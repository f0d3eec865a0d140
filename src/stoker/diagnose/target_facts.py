"""Facts of the GPUs that a build is for: those here, and those that the log or nvcc names.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import math
import re
from collections.abc import Sequence

from stoker.diagnose.about import About, Facts
from stoker.diagnose.cuda_facts import used_cuda

FACTS = Facts()


@FACTS.text(
    "machine.arch_list", "the architectures of the GPUs here, or of the build, that nvcc makes"
)
def _arch_list(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases
    from stoker.machine.gpus import nvidia_gpus

    release = cuda_releases().get(used_cuda(about) or "")
    makes = release.archs if release else ()
    here = nvidia_gpus(lambda _: None) if about.is_here else ()
    present = sorted({gpu.capability for gpu in here})
    asked = sorted(_asked_archs(about), key=float)
    refused = _refused_archs(about)
    present = [arch for arch in present if arch not in refused]
    chosen = [arch for arch in present or asked if not makes or arch in makes]
    return ";".join(chosen) or _any_arch(makes, about)


def _any_arch(makes: Sequence[str], about: About) -> str | None:
    """Return the first architecture that nvcc makes and the log allows, with its PTX, which newer
    GPUs translate: that runs everywhere.
    """
    allowed = _allowed_archs(makes, about)
    return f"{min(allowed, key=float)}+PTX" if allowed else None


def _allowed_archs(makes: Sequence[str], about: About) -> list[str]:
    refused = _refused_archs(about)
    plain = [arch for arch in makes if re.fullmatch(r"[\d.]+", arch) and arch not in refused]
    return [arch for arch in plain if float(arch) * 10 >= _least_arch(about)]


def _refused_archs(about: About) -> set[str]:
    """Return the architectures that the log says are not supported. Where 9.0a is refused, 9.0 may
    do.
    """
    named = [word for word in about.words("arch") if not re.fullmatch(r"\d+\.\d[af]", word)]
    numbers = [re.sub(r"\D", "", word) for word in named]
    return {f"{number[:-1]}.{number[-1]}" for number in numbers if len(number) > 1}


@FACTS.text("machine.arch_list_ptx", "the newest that nvcc makes, with PTX for newer GPUs")
def _arch_list_ptx(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases

    release = cuda_releases().get(used_cuda(about) or "")
    known = _allowed_archs(release.archs if release else sorted(_asked_archs(about)), about)
    too_new = min(map(float, _refused_archs(about)), default=math.inf)
    allowed = [arch for arch in known if float(arch) < too_new]
    return f"{max(allowed, key=float)}+PTX" if allowed else None


def _least_arch(about: About) -> int:
    words = about.words("needed")
    return max((int(word[3:]) for word in words if re.fullmatch(r"sm_\d+", word)), default=0)


def _asked_archs(about: About) -> set[str]:
    """Return the architectures of the compile commands, without one that the log refuses."""
    numbers = {
        number
        for line in about.lines
        for number in re.findall(r"(?:compute|sm)_(\d{2,3})\b", line.text)
    }
    refused = {word: re.sub(r"\D", "", word) for word in about.words("arch")}
    # Where 9.0a is refused, 9.0 may do.
    plain = {number for word, number in refused.items() if re.fullmatch(r"\d+\.\d[af]", word)}
    numbers = numbers - set(refused.values()) | plain
    least = _least_arch(about)
    return {f"{number[:-1]}.{number[-1]}" for number in numbers if int(number) >= least}


@FACTS.text(
    "machine.arch_of_the_chip",
    "the target with the features of one chip, such as 9.0a, where the log refuses 9.0",
)
def _arch_of_the_chip(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases

    release = cuda_releases().get(used_cuda(about) or "")
    numbers = sorted({word.removeprefix("sm_") for word in about.words("plain")}, key=int)
    archs = [f"{number[:-1]}.{number[-1]}a" for number in numbers]
    return ";".join(arch for arch in archs if release is None or arch in release.archs) or None


@FACTS.text("machine.arch_numbers_of_the_chip", "the same as numbers, such as 90a, for CMake")
def _arch_numbers_of_the_chip(about: About) -> str | None:
    return (_arch_of_the_chip(about) or "").replace(".", "") or None


@FACTS.text("machine.arch_numbers", "the same as numbers, for CMake")
def _arch_numbers(about: About) -> str | None:
    archs = _arch_list(about)
    return archs.removesuffix("+PTX").replace(".", "") if archs else None


@FACTS.text("machine.arch_number", "the first of them")
def _arch_number(about: About) -> str | None:
    return (_arch_numbers(about) or "").partition(";")[0] or None
