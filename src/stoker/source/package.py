"""Reads the Python package of a tree: PKG-INFO, pyproject.toml, setup.py, __init__.py.

Does not know CMake, nor whether stoker can build the package.
"""

from email.parser import HeaderParser

import msgspec
from packaging.utils import canonicalize_name

from stoker.model.distribution import read_requirement
from stoker.model.source import FrontEnd
from stoker.model.value import UNDECODABLE, Value, checked_toml
from stoker.source.files import TreeFiles
from stoker.source.python_code import read_setup, read_version
from stoker.source.requirements import parse_requirements

_LARGEST_HEAD = 256 << 10  # characters of PKG-INFO that are searched for fields


class _BuildSystem(msgspec.Struct, frozen=True, rename="kebab"):
    requires: tuple[str, ...] = ()
    build_backend: str = "setuptools.build_meta:__legacy__"


class _Project(msgspec.Struct, frozen=True):
    name: str | None = None
    version: str | None = None


class _Pyproject(msgspec.Struct, frozen=True, rename="kebab"):
    build_system: _BuildSystem | None = None
    project: _Project | None = None


class Package(Value, frozen=True, kw_only=True):
    """A Python package. ``front_end`` is ``None`` if pip has nothing to build. ``torch_names`` is
    what setup.py may use of torch; ``None`` if it does not import it.
    """

    name: str | None
    version: str | None
    front_end: FrontEnd | None
    requirements: tuple[str, ...]
    torch_names: frozenset[str] | None

    @property
    def needs_torch(self) -> bool:
        """Whether torch must be installed before this can be built."""
        return self.torch_names is not None or "torch" in required_names(self.requirements)


def required_names(requirements: tuple[str, ...]) -> set[str]:
    return {canonicalize_name(read_requirement(line).name) for line in requirements}


def read_package(files: TreeFiles) -> Package:
    pyproject = _read_pyproject(files)
    project = pyproject.project or _Project()
    setup = read_setup(files)
    metadata = HeaderParser().parsestr((files.text("PKG-INFO") or "")[:_LARGEST_HEAD])
    name = metadata["Name"] or project.name or setup.name
    version = metadata["Version"] or project.version or setup.version
    requirements = _requirements(files, pyproject)
    return Package(
        name=name,
        version=version or (_module_version(files, name) if name else None),
        front_end=_front_end(files, pyproject, requirements),
        requirements=requirements,
        torch_names=setup.torch_names,
    )


def _read_pyproject(files: TreeFiles) -> _Pyproject:
    try:
        text = checked_toml(files.text("pyproject.toml") or "")
        return msgspec.toml.decode(text, type=_Pyproject)
    except UNDECODABLE as error:
        files.note(f"pyproject.toml: not understood: {error}")
        return _Pyproject()


def _requirements(files: TreeFiles, pyproject: _Pyproject) -> tuple[str, ...]:
    if pyproject.build_system:
        return parse_requirements(
            files, [("pyproject.toml", line) for line in pyproject.build_system.requires]
        )
    # What PEP 518 says of a package without a build-system table.
    return ("setuptools",) if _is_package(files, pyproject) else ()


def _is_package(files: TreeFiles, pyproject: _Pyproject) -> bool:
    return pyproject.project is not None or files.is_file("setup.py")


def _front_end(
    files: TreeFiles, pyproject: _Pyproject, requirements: tuple[str, ...]
) -> FrontEnd | None:
    if not pyproject.build_system:
        return FrontEnd.SETUPTOOLS if _is_package(files, pyproject) else None
    # A backend of the tree's own may wrap scikit-build-core: what it requires gives it away.
    if "scikit-build-core" in required_names(requirements):
        return FrontEnd.SCIKIT_BUILD_CORE
    if pyproject.build_system.build_backend.startswith("setuptools."):
        return FrontEnd.SETUPTOOLS
    return FrontEnd.OTHER_BACKEND


def _module_version(files: TreeFiles, name: str) -> str | None:
    module = canonicalize_name(name).replace("-", "_")
    versions = (read_version(files, f"{at}{module}/__init__.py") for at in ("", "src/"))
    return next(filter(None, versions), None)
