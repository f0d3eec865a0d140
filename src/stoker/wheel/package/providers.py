"""Decides what provides each library that a wheel needs, for its CUDA version. Pure.

The CUDA version comes from the user, from PyTorch's version file, or from the libraries.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from fnmatch import fnmatchcase

from stoker.knowledge.manylinux import is_system_library
from stoker.knowledge.nvidia_packages import never_bundled
from stoker.knowledge.sonames import bringer, cuda_of, is_of_driver
from stoker.model.errors import UsageError
from stoker.model.value import Value
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.values import PackageMode, PackageRequest


class LibraryProvider(StrEnum):
    WHEEL = "wheel"  # already in it
    SYSTEM = "system"  # the target machine: Linux, driver, Python, or excluded by the user
    TORCH = "torch"
    PACKAGE = "package"  # a package of NVIDIA
    BUNDLE = "bundle"  # it has to be added to the wheel


class Providers:
    """The providers of all libraries, for one wheel and one request."""

    def __init__(self, built: BuiltWheel, request: PackageRequest):
        self._own: Collection[str] = built.own
        self._exclude = request.exclude
        self._mode = request.mode
        self._is_torch = built.is_torch

    def of(self, name: str) -> LibraryProvider:
        if name in self._own:
            return LibraryProvider.WHEEL
        if (
            is_system_library(name)
            or is_of_driver(name)
            or never_bundled(name)
            or any(fnmatchcase(name, pattern) for pattern in self._exclude)
        ):
            return LibraryProvider.SYSTEM
        row = bringer(name)
        if row and row.name == "torch" and not self._is_torch:
            return LibraryProvider.TORCH
        if row and row.name != "torch" and self._mode is PackageMode.PYPI:
            return LibraryProvider.PACKAGE
        return LibraryProvider.BUNDLE


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
