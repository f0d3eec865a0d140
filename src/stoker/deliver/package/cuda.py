"""Finds the CUDA version of a wheel: from the user, PyTorch's version file or libraries. Pure."""

import re

from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.values import PackageRequest
from stoker.knowledge.wheels import cuda_of
from stoker.model.errors import UsageError
from stoker.model.value import Value

_RELEASE = re.compile(r"([0-9]{2})(\.[0-9]{1,2})?")


class Cuda(Value, frozen=True, kw_only=True):
    """``release`` is a version such as 13.2, or only 13 if the minor version is unknown."""

    major: int
    release: str

    @property
    def is_exact(self) -> bool:
        return "." in self.release


def wheel_cuda(built: BuiltWheel, request: PackageRequest) -> Cuda | None:
    told = {major for name in built.needed if (major := cuda_of(name))}
    if len(told) > 1:
        words = " and ".join(map(str, sorted(told)))
        raise UsageError(f"the libraries need both CUDA {words}", where=built.path)
    said = request.cuda or built.cuda
    if said is None:
        return Cuda(major=min(told), release=str(min(told))) if told else None
    match = _RELEASE.fullmatch(said)
    if match is None:
        raise UsageError(f"'{said}' is not a CUDA version", hints=["use for example --cuda 12.8"])
    cuda = Cuda(major=int(match[1]), release=said)
    if told and cuda.major not in told:
        raise UsageError(f"the libraries need CUDA {min(told)}, not {said}", where=built.path)
    return cuda


def known_cuda_of(built: BuiltWheel, request: PackageRequest) -> Cuda:
    """Return the CUDA version, or raise an error if it is unknown."""
    if cuda := wheel_cuda(built, request):
        return cuda
    raise UsageError(
        "the CUDA version of the wheel is unknown",
        hints=["name it with --cuda, for example --cuda 13.0"],
        where=built.path,
    )
