"""Reads what a source tree is: its kind, version, front end, options and parts.

Reads; neither runs anything of the tree nor decides how it is built.
"""

import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from stoker.knowledge.projects import projects
from stoker.model.distribution import read_version
from stoker.model.errors import StorageError, UsageError, nearest
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import (
    CompiledCode,
    CudaCode,
    FrontEnd,
    ProjectKind,
    ReadVariable,
    SourceTree,
    Submodule,
)
from stoker.source.asks import PythonAsks, read_python_asks
from stoker.source.back_ends import back_ends, hinted_back_ends
from stoker.source.files import TreeFiles
from stoker.source.options import CMakeFacts, read_options, read_project
from stoker.source.package import Package, read_package, required_names
from stoker.source.present import read_presence
from stoker.source.python_code import CPP_EXTENSION, read_cuda_archs
from stoker.source.pytorch import read_release
from stoker.source.requirements import read_requirements

_OF_PYTORCH = ("CMakeLists.txt", "version.txt", CPP_EXTENSION)
_DEVICE_SOURCES = (".cu", ".hip", ".sycl")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".mm", ".pyx", *_DEVICE_SOURCES)
_ARCHIVES = (".gz", ".xz", ".bz2", ".zst", ".tar", ".zip", ".whl")
_SUBMODULE_PATH = re.compile(r"^[ \t]*path[ \t]*=(.*)$", re.MULTILINE)
_COPIED = re.compile(r'"(third_party/[^"]+\.py)"')
_MAY_START_CMAKE = re.compile(
    r"cmake|skbuild|scikit.build|subprocess|os\.(?:system|exec|spawn|popen)|\.spawn\(|meson|conan",
    re.IGNORECASE,
)
_OWN_EXTENSION = re.compile(r"\b(?:Extension|Pybind11Extension|cythonize)\(")
_ARCH_OF_MAKE = re.compile(
    r"^[ \t]*(?:ifn?def[ \t]+|(?:export[ \t]+)?)"
    r"(\w*(?:GENCODE|COMPUTE_CAPABILITY|CUDA_ARCH\w*|CUDAARCHS|GPU_ARCHS?)|SMS)\b",
    re.MULTILINE,
)
_LOOKED_FOR = (
    "looked for: CMakeLists.txt; setup.py or pyproject.toml of a package with C, C++, Cython or "
    "CUDA sources"
)


def read_tree(path: Path, recipes: Sequence[ProjectRecipe] = ()) -> SourceTree:
    """Return the facts of the tree at ``path``; raise an error if stoker cannot build it.

    ``recipes`` are the user's own; they come before those that are shipped.
    """
    # Unlike pathlib's, these functions raise for neither an unknown user nor a loop of links.
    root = Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111
    content = _content(root)
    files = TreeFiles(root)
    package = read_package(files)
    recipe = _recognized(files, package, (*recipes, *projects().values()))
    python = read_python_asks(files, package.roots)
    kind = (recipe.kind if recipe else None) or _kind(files, package, python)
    if kind is None:
        raise _nothing_to_build(files, package, content)
    pytorch = kind is ProjectKind.PYTORCH
    folder = recipe.folder if recipe else package.cmake_folder
    cmake = read_options(files, folder, alone=recipe is None and bool(folder))
    by_cmake = recipe is not None or _calls_cmake(package, kind, python)
    code = _code(files, package, cmake if by_cmake else None, python)
    submodules = _submodules(files)
    whole = by_cmake and not files.notes and all(module.present for module in submodules)
    reads_cuda = cmake.cuda_code is not CudaCode.NONE
    asks = tuple(_asks(python, cmake if by_cmake else None, package))
    backends = back_ends(files, code, cmake, asks, python, recipe, by_cmake=by_cmake)
    hinted = {} if recipe else dict(hinted_back_ends(files, asks, backends))
    return SourceTree(
        path=str(root),
        kind=kind,
        name=_name(kind, files, package, cmake, recipe),
        version=_version(kind, files, package, cmake),
        front_end=_front_end(files, package, recipe),
        options=cmake.options,
        variables=cmake.variables,
        printed=cmake.printed,
        cmake_minimum=cmake.minimum,
        submodules=submodules,
        requirements=_requirements(kind, files, package),
        own_protobuf=files.is_filled("third_party/protobuf") if pytorch else None,
        lacks=tuple(_copied_and_missing(files)) if pytorch else (),
        release=read_release(files) if pytorch else None,
        cuda_archs=read_cuda_archs(files) if pytorch else (),
        backends=(*backends, *hinted),
        recipe=recipe.name if recipe else None,
        folder=folder,
        asks=asks,
        readers=_readers(python, cmake if by_cmake else None, package),
        overwrites=python.overwrites,
        code=code,
        passed=python.passed if by_cmake else {},
        hinted=hinted,
        standards=python.standards,
        # Files that were not read may compile CUDA code in another way.
        cuda_code=cmake.cuda_code if whole or reads_cuda else CudaCode.UNKNOWN,
        requires_cuda=by_cmake and cmake.requires_cuda,
        cuda_switches=cmake.cuda_switches if by_cmake else frozenset(),
        presence=read_presence(files, recipe, (*python.files, *cmake.files)),
        notes=tuple(files.notes),
    )


def _copied_and_missing(files: TreeFiles) -> Iterator[str]:
    """Yield Python files of third_party that PyTorch's setup.py names and the tree does not have.

    It copies them into the package after everything is compiled, and fails without them.
    """
    for match in _COPIED.finditer(files.text("setup.py") or ""):
        if not files.is_file(match[1]):
            yield match[1]


def _recognized(
    files: TreeFiles, package: Package, recipes: Sequence[ProjectRecipe]
) -> ProjectRecipe | None:
    """Return the first recipe whose names and files the tree has."""
    project = read_project(files)
    names = {canonicalize_name(n) for n in (package.name, project.name if project else None) if n}
    for recipe in recipes:
        named = names & {canonicalize_name(name) for name in recipe.packages}
        fits = bool(named) if recipe.packages else bool(recipe.files)
        if fits and all(map(files.is_file, recipe.files)):
            return recipe
    return None


def _code(
    files: TreeFiles,
    package: Package,
    cmake: CMakeFacts | None,
    python: PythonAsks,
) -> CompiledCode:
    """Return what the build compiles: by its Python files, by CMake if they use it, or by both."""
    code = python.code
    if cmake:
        code = replace(
            code,
            targets=(*code.targets, *cmake.own_targets),
            native=(*code.native, *cmake.native),
            device_source=code.device_source or cmake.device_source,
            cuda_minimum=cmake.cuda_minimum or code.cuda_minimum,
            compiles=True,
        )
    read = any(map(files.is_file, package.roots)) and not files.notes
    if not read and not cmake:
        # Another back end, or a setup.py that could not be read: what is there may be compiled.
        device = next((file for file in files.walk() if file.endswith(_DEVICE_SOURCES)), None)
        code = replace(code, device_source=code.device_source or device, compiles=True)
    return code


def _calls_cmake(package: Package, kind: ProjectKind, python: PythonAsks) -> bool:
    """Tell whether CMakeLists.txt is part of the build, and not only there for an editor."""
    if kind in (ProjectKind.CMAKE, ProjectKind.PYTORCH) or package.front_end is None:
        return True
    wanted = required_names(package.requirements) & {"scikit-build", "scikit-build-core", "cmake"}
    return bool(wanted or python.code.calls_cmake)


def _asks(python: PythonAsks, cmake: CMakeFacts | None, package: Package) -> Iterator[ReadVariable]:
    yield from python.asks
    known = {ask.name for ask in python.asks}
    yield from (
        ReadVariable(name=n, where="pyproject.toml") for n in package.environment if n not in known
    )
    yield from cmake.asks if cmake else ()


def _readers(python: PythonAsks, cmake: CMakeFacts | None, package: Package) -> tuple[str, ...]:
    """Return the libraries that read variables for the build: see knowledge/readers.toml."""
    found = set(python.readers)
    if cmake and "Torch" in cmake.packages:
        found.add("torch's CMake package")
    if cmake and "CUDA" in cmake.packages:
        found.add("FindCUDA")
    if cmake and (cmake.project or "cmake" in python.names):
        found.add("CMake")
    required = required_names(package.requirements)
    found |= {name for name in ("scikit-build-core", "scikit-build") if name in required}
    return tuple(sorted(found))


def _front_end(files: TreeFiles, package: Package, recipe: ProjectRecipe | None) -> FrontEnd:
    if recipe and recipe.front_end:
        return recipe.front_end
    if package.pure and files.is_file("CMakeLists.txt"):
        return FrontEnd.CMAKE
    return package.front_end or FrontEnd.CMAKE


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


def _kind(files: TreeFiles, package: Package, python: PythonAsks) -> ProjectKind | None:
    if all(map(files.is_file, _OF_PYTORCH)):
        return ProjectKind.PYTORCH
    if "cpp_extension" in (package.torch_names or ()):
        return ProjectKind.EXTENSION
    cmake = files.is_file(posixpath.join(package.cmake_folder, "CMakeLists.txt"))
    if package.needs_torch and not (cmake and package.front_end is FrontEnd.SCIKIT_BUILD_CORE):
        return ProjectKind.EXTENSION if _holds(files, _SOURCES) else None
    if cmake and not _compiles_itself(files, package, python):
        return ProjectKind.CMAKE
    # Its sources may be in a folder of vendored code, or made by a program such as SWIG.
    compiles = _holds(files, _SOURCES) or _says(files, python, _OWN_EXTENSION)
    return ProjectKind.PACKAGE if package.front_end and compiles else None


def _compiles_itself(files: TreeFiles, package: Package, python: PythonAsks) -> bool:
    """Tell whether setup.py compiles its extensions without CMake: its CMakeLists.txt is for users
    of another language. A program that it starts, or a tool that it requires, may start CMake.
    """
    if package.front_end is not FrontEnd.SETUPTOOLS or "setup.py" not in python.files:
        return False
    starts_nothing = not _says(files, python, _MAY_START_CMAKE)
    return starts_nothing and _says(files, python, _OWN_EXTENSION)


def _says(files: TreeFiles, python: PythonAsks, pattern: re.Pattern[str]) -> bool:
    """Return whether one of the files that describe a package has a match of a pattern."""
    names = (*python.files, "pyproject.toml", "setup.cfg")
    return any(pattern.search(files.text(name) or "") for name in names)


def _holds(files: TreeFiles, suffixes: tuple[str, ...]) -> bool:
    return any(file.endswith(suffixes) for file in files.walk())


def _nothing_to_build(files: TreeFiles, package: Package, content: list[str]) -> UsageError:
    if not content or content == [".git"]:
        return UsageError(f"{files.root} is an empty folder", hints=[_LOOKED_FOR])
    visible = [name for name in content if not name.startswith(".")]
    more = ", ..." if len(visible) > 8 else ""
    hints = [_LOOKED_FOR, f"found: {', '.join(visible[:8])}{more}"]
    outside = posixpath.normpath(files.root / package.cmake_outside)
    if package.cmake_outside and files.is_file(f"{outside}/CMakeLists.txt"):
        by_itself = f"`stoker plan --source {shlex.quote(outside)}`"
        hints = [
            f"pyproject.toml names the CMake project in {outside}; {by_itself} plans it",
            f"the package itself: `stoker run -- pip wheel {shlex.quote(str(files.root))}`",
        ]
    elif package.front_end:
        command = f"stoker run -- pip wheel {shlex.quote(str(files.root))}"
        of_rust = required_names(package.requirements) & {"maturin", "setuptools-rust"}
        what = "whose code is Rust" if of_rust else "without code to compile"
        hints.append(f"this is a Python package {what}: `{command}`")
    hints += _by_make(files)
    below = [name for name in content if files.is_file(f"{name}/CMakeLists.txt")]
    if below:
        hints.append(_did_you_mean(files.root, below[:3]))
    return UsageError(f"{files.root} is not a source tree that stoker builds", hints=hints)


def _by_make(files: TreeFiles) -> list[str]:
    """Return how a tree is built that has only a Makefile, with the variable of its targets."""
    text = next(filter(None, map(files.text, ("Makefile", "makefile", "GNUmakefile"))), None)
    if text is None:
        return []
    found = _ARCH_OF_MAKE.search(text)
    example = {"GENCODE": "-gencode=arch=compute_90,code=sm_90", "SMS": "90"}
    word = next((v for end, v in example.items() if found and found[1].endswith(end)), "90")
    setting = f" {found[1]}='{word}'" if found else ""
    return [f"its Makefile builds it: `stoker run make{setting}`"]


def _name(
    kind: ProjectKind,
    files: TreeFiles,
    package: Package,
    cmake: CMakeFacts,
    recipe: ProjectRecipe | None,
) -> str:
    if package.pure and _front_end(files, package, recipe) is FrontEnd.CMAKE and cmake.project:
        return cmake.project.name
    if package.name or kind is ProjectKind.PYTORCH:
        return package.name or "torch"
    if recipe and not cmake.project:
        return recipe.name
    return cmake.project.name if cmake.project else files.root.name


def _version(
    kind: ProjectKind, files: TreeFiles, package: Package, cmake: CMakeFacts
) -> str | None:
    in_file = _version_file(files)
    own = cmake.project.version if cmake.project else None
    if kind is ProjectKind.PYTORCH:
        return in_file
    if package.pure and kind is ProjectKind.CMAKE:
        return own or in_file
    return package.version or in_file or own


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
    """Return the build requirements. A PyTorch tree without such a list has them in
    requirements.txt, among those of its developers.
    """
    named = ["requirements-build.txt"]
    if kind is ProjectKind.PYTORCH and package.requirements:
        return package.requirements
    if kind is ProjectKind.PYTORCH:
        named.append("requirements.txt")
    file = next(filter(files.is_file, named), None)
    found = (read_requirements(files, file) if file else ()) + package.requirements
    if kind is ProjectKind.EXTENSION and "torch" not in required_names(found):
        found += ("torch",)
    return tuple(dict.fromkeys(found))
