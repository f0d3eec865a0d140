"""Which CUDA a wheel is for: as the user says, as PyTorch's wheel says, as libraries tell. Pure."""

import re

from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.values import PackageRequest
from stoker.knowledge.nvidia_packages import cuda_of
from stoker.model.errors import UsageError
from stoker.model.value import Value

_RELEASE = re.compile(r"([0-9]{2})(\.[0-9]{1,2})?")


class Cuda(Value, frozen=True, kw_only=True):
    """``release`` such as 13.2, or just 13 where nothing tells more."""

    major: int
    release: str

    @property
    def is_exact(self) -> bool:
        return "." in self.release


def wheel_cuda(built: BuiltWheel, request: PackageRequest) -> Cuda | None:
    told = {major for name in built.needed if (major := cuda_of(name))}
    if len(told) > 1:
        words = " and ".join(map(str, sorted(told)))
        raise UsageError(f"the libraries need CUDA {words} at once", where=built.path)
    said = request.cuda or built.cuda
    if said is None:
        return Cuda(major=min(told), release=str(min(told))) if told else None
    match = _RELEASE.fullmatch(said)
    if match is None:
        raise UsageError(f"'{said}' is not a release of CUDA", hints=["for example: --cuda 12.8"])
    cuda = Cuda(major=int(match[1]), release=said)
    if told and cuda.major not in told:
        raise UsageError(f"the libraries need CUDA {min(told)}, not {said}", where=built.path)
    return cuda


def known_cuda_of(built: BuiltWheel, request: PackageRequest) -> Cuda:
    """For what cannot be done without knowing."""
    if cuda := wheel_cuda(built, request):
        return cuda
    raise UsageError(
        "it does not show which CUDA the wheel is for",
        hints=["--cuda 13.0 says it"],
        where=built.path,
    )
