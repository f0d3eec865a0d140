"""Decides what provides each library that a wheel needs. Pure."""

from collections.abc import Collection
from enum import StrEnum
from fnmatch import fnmatchcase

from stoker.deliver.package.built_wheel import BuiltWheel
from stoker.deliver.package.values import Mode, PackageRequest
from stoker.knowledge.wheels import bringer, is_of_driver, is_system_library, never_bundled


class Provider(StrEnum):
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

    def of(self, name: str) -> Provider:
        if name in self._own:
            return Provider.WHEEL
        if self._is_given(name):
            return Provider.SYSTEM
        row = bringer(name)
        if row and row.name == "torch" and not self._is_torch:
            return Provider.TORCH
        if row and row.name != "torch" and self._mode is Mode.PYPI:
            return Provider.PACKAGE
        return Provider.BUNDLE

    def _is_given(self, name: str) -> bool:
        return (
            is_system_library(name)
            or is_of_driver(name)
            or never_bundled(name)
            or any(fnmatchcase(name, pattern) for pattern in self._exclude)
        )
