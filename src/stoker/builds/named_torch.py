"""The PyTorch that a user names for the build of an extension: its requirement, index and CUDA."""

import re
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from stoker.model.distribution import read_requirement
from stoker.model.errors import UsageError
from stoker.model.value import Value, major
from stoker.model.variant import Backend, Variant
from stoker.wheel.inspect.torch_builds import toolkit_of

INDEX_EXAMPLE = "--torch-index https://HOST/whl/{cuda}; PyTorch's installation page names it"
_ADDRESS = re.compile(r"(?:https?|file)://[^\s'\"\\]+")


class NamedTorch(Value, frozen=True, kw_only=True):
    """``name`` is a version or a requirement."""

    name: str
    index: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `stoker build`."""
        return ("--torch", self.name, *(("--torch-index", self.index) if self.index else ()))

    @property
    def pip_words(self) -> tuple[str, ...]:
        """What follows `pip install`."""
        return (*(("--index-url", self.index) if self.index else ()), requirement(self.name))


def requirement(torch: str) -> str:
    """Return what pip installs for ``--torch``; raise UsageError for another package."""
    try:
        line = f"torch=={torch}" if torch[:1].isdigit() else torch
        if canonicalize_name(read_requirement(line).name) != "torch":
            raise InvalidRequirement("it names another package")
    except InvalidRequirement as error:
        hints = ["for example --torch 2.9.1"]
        raise UsageError(f"--torch {torch}: {error}", hints=hints) from None
    return line


def index_for(address: str, variant: Variant) -> str:
    """Return the address of a package index, filled in for a variant."""
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--torch-index {address} is not an address", hints=[INDEX_EXAMPLE])
    if "{cuda}" in address and variant.backend is Backend.CUDA and variant.toolkit is None:
        raise UsageError(
            f"--torch-index {address} needs the CUDA release of the variant",
            hints=["name it, such as cu130-sm90"],
        )
    return address.replace("{cuda}", variant.runtime)


def check_toolkit(environment: Path, variant: Variant) -> None:
    """Refuse a PyTorch of another CUDA than that of the variant: nothing compiled with it loads.

    A release that differs by its minor number is PyTorch's own to judge.
    """
    if variant.backend is not Backend.CUDA:
        return
    for folder in environment.glob("lib/python*/site-packages/torch"):
        found = toolkit_of(folder)
        if found and (variant.toolkit is None or major(found) == major(variant.toolkit)):
            continue
        what = f"is for CUDA {found}" if found else "has no CUDA"
        raise UsageError(
            f"the PyTorch that was installed for the build {what}, and the variant is "
            f"{variant.runtime}",
            hints=[INDEX_EXAMPLE],
        )
