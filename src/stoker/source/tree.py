"""Reads what a source tree is: its kind, version, front end, options and parts.

Reads; neither runs anything of the tree nor decides how it is built.
"""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion

from stoker.model.distribution import read_version
from stoker.model.errors import StorageError, UsageError, nearest
from stoker.model.plan import Backend
from stoker.model.source import FrontEnd, ProjectKind, SourceTree, Submodule
from stoker.source.files import TreeFiles
from stoker.source.options import CMakeFacts, read_options
from stoker.source.package import (
    CPP_EXTENSION,
    Package,
    read_cuda_archs,
    read_package,
    read_requirements,
    required_names,
)

_OF_PYTORCH = ("CMakeLists.txt", "version.txt", CPP_EXTENSION)
_CUDA_SOURCES = (".cu",)
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".mm", *_CUDA_SOURCES)
_ARCHIVES = (".gz", ".xz", ".bz2", ".zst", ".tar", ".zip", ".whl")
_SUBMODULE_PATH = re.compile(r"^[ \t]*path[ \t]*=(.*)$", re.MULTILINE)
_LOOKED_FOR = (
    "looked for: CMakeLists.txt; setup.py that uses torch.utils.cpp_extension; "
    "pyproject.toml that requires torch, with C++ or CUDA sources"
)


def read_tree(path: Path) -> SourceTree:
    """Return the facts of the tree at ``path``; raise an error if stoker cannot build it."""
    # Unlike pathlib's, these functions raise for neither an unknown user nor a loop of links.
    root = Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111
    content = _content(root)
    files = TreeFiles(root)
    package = read_package(files)
    kind = _kind(files, package)
    if kind is None:
        raise _nothing_to_build(files, package, content)
    pytorch = kind is ProjectKind.PYTORCH
    cmake = read_options(files)
    return SourceTree(
        path=str(root),
        kind=kind,
        name=_name(kind, files, package, cmake),
        version=_version(kind, files, package, cmake),
        front_end=package.front_end or FrontEnd.CMAKE,
        options=cmake.options,
        variables=cmake.variables,
        cmake_minimum=cmake.minimum,
        submodules=_submodules(files),
        requirements=_requirements(kind, files, package),
        own_protobuf=files.is_filled("third_party/protobuf") if pytorch else None,
        cuda_archs=read_cuda_archs(files) if pytorch else (),
        backends=_backends(files, package, cmake),
        notes=tuple(files.notes),
    )


def _content(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in root.iterdir())
    except FileNotFoundError:
        raise UsageError(f"there is no folder {root}", hints=_similar(root)) from None
    except NotADirectoryError:
        hint = "unpack it first" if root.suffix in _ARCHIVES else "name the folder of a source tree"
        raise UsageError(f"{root} is not a folder", hints=[hint]) from None
    except OSError as error:
        raise StorageError(f"cannot read {root}: {error.strerror}") from error


def _similar(root: Path) -> list[str]:
    try:
        names = nearest(root.name, (entry.name for entry in root.parent.iterdir()))
    except OSError:
        names = ()
    return [_did_you_mean(root.parent, names)] if names else []


def _did_you_mean(folder: Path, names: Sequence[str]) -> str:
    return f"did you mean {' or '.join(str(folder / name) for name in names)}?"


def _kind(files: TreeFiles, package: Package) -> ProjectKind | None:
    if all(map(files.is_file, _OF_PYTORCH)):
        return ProjectKind.PYTORCH
    if "cpp_extension" in (package.torch_names or ()):
        return ProjectKind.EXTENSION
    if package.needs_torch and _holds(files, _SOURCES):
        return ProjectKind.EXTENSION
    return ProjectKind.CMAKE if files.is_file("CMakeLists.txt") else None


def _holds(files: TreeFiles, suffixes: tuple[str, ...]) -> bool:
    return any(file.endswith(suffixes) for file in files.walk())


def _nothing_to_build(files: TreeFiles, package: Package, content: list[str]) -> UsageError:
    if not content or content == [".git"]:
        return UsageError(f"{files.root} is an empty folder", hints=[_LOOKED_FOR])
    visible = [name for name in content if not name.startswith(".")]
    more = ", ..." if len(visible) > 8 else ""
    hints = [_LOOKED_FOR, f"found: {', '.join(visible[:8])}{more}"]
    if package.front_end:
        command = f"stoker run -- pip wheel {shlex.quote(str(files.root))}"
        hints.append(f"this is a Python package without code for torch or CMake: `{command}`")
    below = [name for name in content if files.is_file(f"{name}/CMakeLists.txt")]
    if below:
        hints.append(_did_you_mean(files.root, below[:3]))
    return UsageError(f"{files.root} is not a source tree that stoker builds", hints=hints)


def _name(kind: ProjectKind, files: TreeFiles, package: Package, cmake: CMakeFacts) -> str:
    if package.name or kind is ProjectKind.PYTORCH:
        return package.name or "torch"
    return cmake.project.name if cmake.project else files.root.name


def _version(
    kind: ProjectKind, files: TreeFiles, package: Package, cmake: CMakeFacts
) -> str | None:
    in_file = _version_file(files)
    if kind is ProjectKind.PYTORCH:
        return in_file
    return package.version or in_file or (cmake.project.version if cmake.project else None)


def _version_file(files: TreeFiles) -> str | None:
    """Return the version from version.txt, which PyTorch and related projects have."""
    text = files.text("version.txt")
    if text is None:
        return None
    try:
        return str(read_version(text))
    except InvalidVersion:
        files.note("version.txt: does not hold a version")
        return None


def _submodules(files: TreeFiles) -> tuple[Submodule, ...]:
    told = _SUBMODULE_PATH.findall(files.text(".gitmodules") or "")
    paths = [path.strip().removeprefix('"').removesuffix('"') for path in told]
    return tuple(Submodule(path=path, present=files.is_filled(path)) for path in paths if path)


def _requirements(kind: ProjectKind, files: TreeFiles, package: Package) -> tuple[str, ...]:
    """Return the build requirements. Only in PyTorch does requirements.txt list those of
    the build.
    """
    named = ["requirements-build.txt"]
    if kind is ProjectKind.PYTORCH:
        named.append("requirements.txt")
    file = next(filter(files.is_file, named), None)
    found = (read_requirements(files, file) if file else ()) + package.requirements
    if kind is ProjectKind.EXTENSION and "torch" not in required_names(found):
        found += ("torch",)
    return tuple(dict.fromkeys(found))


def _backends(files: TreeFiles, package: Package, cmake: CMakeFacts) -> tuple[str, ...]:
    options = {option.name for option in cmake.options}
    torch_names = package.torch_names or frozenset()
    possible = {
        Backend.CPU: True,
        Backend.CUDA: "USE_CUDA" in options
        or "CUDA" in cmake.gpu_languages
        or "CUDAExtension" in torch_names
        or _holds(files, _CUDA_SOURCES),
        Backend.ROCM: "USE_ROCM" in options or "HIP" in cmake.gpu_languages,
        Backend.XPU: "USE_XPU" in options or "SyclExtension" in torch_names,
        Backend.MPS: "USE_MPS" in options or files.is_filled("aten/src/ATen/mps"),
        Backend.VULKAN: "USE_VULKAN" in options,
    }
    return tuple(backend.value for backend, built in possible.items() if built)
