"""Reads the Python package of a tree: PKG-INFO, pyproject.toml, setup.py, __init__.py.

Does not know CMake, nor whether stoker can build the package.
"""

import posixpath
import re
from collections.abc import Iterator
from email.parser import HeaderParser
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from stoker.model.distribution import read_requirement
from stoker.model.source import FrontEnd
from stoker.model.value import UNDECODABLE, Value, checked_toml, prepared
from stoker.source.files import TreeFiles
from stoker.source.python_code import read_module_version, read_setup
from stoker.source.requirements import parse_requirements

_LARGEST_HEAD = 256 << 10  # characters of PKG-INFO that are searched for fields


class _BuildSystem(msgspec.Struct, frozen=True, rename="kebab"):
    requires: tuple[str, ...] = ()
    build_backend: str = "setuptools.build_meta:__legacy__"
    backend_path: tuple[str, ...] = ()


class _Project(msgspec.Struct, frozen=True):
    name: str | None = None
    version: str | None = None


class _Pyproject(msgspec.Struct, frozen=True, rename="kebab"):
    build_system: _BuildSystem | None = None
    project: _Project | None = None
    tool: dict[str, Any] = {}


class Package(Value, frozen=True, kw_only=True):
    """A Python package. ``front_end`` is ``None`` if pip has nothing to build. ``torch_names`` is
    what setup.py may use of torch; ``None`` if it does not import it.
    """

    name: str | None
    version: str | None
    front_end: FrontEnd | None
    requirements: tuple[str, ...]
    torch_names: frozenset[str] | None
    roots: tuple[str, ...] = ("setup.py",)  # files that the build runs first
    # It only packs Python: what CMake builds in the same tree is not part of it.
    pure: bool = False
    defines: dict[str, str] = {}  # what pyproject.toml has scikit-build-core pass to CMake
    environment: tuple[str, ...] = ()  # variables that pyproject.toml has scikit-build-core read
    cmake_folder: str = ""  # where pyproject.toml says that CMakeLists.txt is
    cmake_outside: str = ""  # the same, if it is outside of the tree

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
    # A setup.py that is no Python builds nothing; beside it, CMake does.
    is_setup = files.is_file("setup.py") and (
        setup.understood or setup.torch_names is not None or not files.is_file("CMakeLists.txt")
    )
    is_package = pyproject.project is not None or is_setup
    requirements = _requirements(files, pyproject, is_package=is_package)
    folder = _cmake_folder(pyproject)
    return Package(
        name=name,
        version=version or (_module_version(files, name) if name else None),
        front_end=_front_end(pyproject, requirements, is_package=is_package),
        requirements=requirements,
        torch_names=setup.torch_names,
        roots=tuple(_roots(pyproject)),
        pure=_is_pure(files, pyproject),
        defines=_defines(pyproject),
        environment=tuple(sorted(_environment(pyproject.tool.get("scikit-build", {})))),
        cmake_folder="" if _is_outside(folder) else folder,
        cmake_outside=folder if _is_outside(folder) else "",
    )


# Back ends that compile nothing, unless a hook of theirs is configured.
_PURE = ("poetry.", "flit_core", "uv_build", "hatchling", "pdm.")


def _is_pure(files: TreeFiles, pyproject: _Pyproject) -> bool:
    backend = pyproject.build_system.build_backend if pyproject.build_system else ""
    hooks = any(
        word in str(pyproject.tool.get(tool, ""))
        for tool, word in (("hatch", "hooks"), ("pdm", "run-setuptools"), ("poetry", "'build'"))
    )
    return backend.startswith(_PURE) and not hooks and not files.is_file("setup.py")


def _roots(pyproject: _Pyproject) -> Iterator[str]:
    """Yield setup.py and the back end that the tree brings along."""
    yield "setup.py"
    system = pyproject.build_system
    for folder in system.backend_path if system else ():
        module = system.build_backend.partition(":")[0].replace(".", "/") if system else ""
        yield posixpath.normpath(posixpath.join(folder, f"{module}.py"))


def _cmake_table(pyproject: _Pyproject) -> dict[str, Any]:
    """Return what pyproject.toml says about CMake to scikit-build-core."""
    table = pyproject.tool.get("scikit-build", {})
    cmake = table.get("cmake", {}) if isinstance(table, dict) else {}
    return cmake if isinstance(cmake, dict) else {}


def _cmake_folder(pyproject: _Pyproject) -> str:
    folder = posixpath.normpath(str(_cmake_table(pyproject).get("source-dir", "")))
    return "" if folder == "." else folder


def _is_outside(folder: str) -> bool:
    return folder.startswith("/") or folder.split("/")[0] == ".."


def _defines(pyproject: _Pyproject) -> dict[str, str]:
    """Return scikit-build-core's cmake.define, and the -D options in its cmake.args."""
    cmake = _cmake_table(pyproject)
    defines = cmake.get("define", {})
    found = (
        {str(name): _scalar(value) for name, value in defines.items()}
        if isinstance(defines, dict)
        else {}
    )
    arguments = cmake.get("args", [])
    for word in arguments if isinstance(arguments, list) else ():
        if define := re.fullmatch(r"-D\s*([A-Za-z0-9_]+)(?::\w+)?=(.*)", str(word)):
            found[define[1]] = define[2]
    return found


def _environment(table: object) -> set[str]:
    """Return the variables in ``{env = "NAME"}`` and in the ``if.env`` of overrides."""
    if isinstance(table, list):
        return {name for part in table for name in _environment(part)}
    if not isinstance(table, dict):
        return set()
    given = table.get("env")
    names = {given} if isinstance(given, str) else set(given) if isinstance(given, dict) else set()
    return names.union(*map(_environment, table.values()))


def _scalar(value: object) -> str:
    return ("ON" if value else "OFF") if isinstance(value, bool) else str(value)


def _read_pyproject(files: TreeFiles) -> _Pyproject:
    try:
        text = checked_toml(files.text("pyproject.toml") or "")
        return msgspec.toml.decode(text, type=prepared(_Pyproject))
    except UNDECODABLE as error:
        files.note(f"pyproject.toml: not understood: {error}")
        return _Pyproject()


def _requirements(files: TreeFiles, pyproject: _Pyproject, *, is_package: bool) -> tuple[str, ...]:
    if pyproject.build_system:
        return parse_requirements(
            files, [("pyproject.toml", line) for line in pyproject.build_system.requires]
        )
    # What PEP 518 says of a package without a build-system table.
    return ("setuptools",) if is_package else ()


def _front_end(
    pyproject: _Pyproject, requirements: tuple[str, ...], *, is_package: bool
) -> FrontEnd | None:
    if not pyproject.build_system:
        return FrontEnd.SETUPTOOLS if is_package else None
    # scikit-build-core's plugin for setuptools takes no settings of the back end.
    if pyproject.build_system.build_backend.startswith(("setuptools.", "scikit_build_core.setup")):
        return FrontEnd.SETUPTOOLS
    # A backend of the tree's own may wrap scikit-build-core: what it requires gives it away.
    if "scikit-build-core" in required_names(requirements):
        return FrontEnd.SCIKIT_BUILD_CORE
    return FrontEnd.OTHER_BACKEND


def _module_version(files: TreeFiles, name: str) -> str | None:
    module = canonicalize_name(name).replace("-", "_")
    versions = (read_module_version(files, f"{at}{module}/__init__.py") for at in ("", "src/"))
    return next(filter(None, versions), None)
