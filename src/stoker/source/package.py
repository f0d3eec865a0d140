"""What a Python package says about itself: its code, its requirements and its metadata."""

import ast
import posixpath
import re
import warnings
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from stoker.model.distribution import read_requirement
from stoker.model.source import FrontEnd
from stoker.model.value import UNDECODABLE, Value, checked_toml
from stoker.source.files import TreeFiles

# -- python code -----------------------------------------------------------------------------------
# Reads names and literals from the syntax trees of Python files, without running them.
#
# No code is ever run, so what a file computes is not known.


CPP_EXTENSION = "torch/utils/cpp_extension.py"
_ARCH = re.compile(r"\d+\.\d+[af]?")
_ARCH_LIST = re.compile(r"_*supported_(?:cuda_)?arch(?:e?s|itectures)", re.IGNORECASE)
_IMPORT_OF_TORCH = re.compile(r"^[ \t]*(?:from|import)[ \t]+torch\b", re.MULTILINE)
_WORD = re.compile(r"\w+")


class Setup(Value, frozen=True, kw_only=True):
    """A setup.py. ``torch_names`` is what it may use of torch; ``None`` if it does not
    import it.
    """

    name: str | None = None
    version: str | None = None
    torch_names: frozenset[str] | None = None


def read_setup(files: TreeFiles) -> Setup:
    text = files.text("setup.py")
    if text is None:
        return Setup()
    module = _parsed(files, "setup.py", text)
    if module is None:
        # Perhaps it is newer Python than this one: what it imports can still be told.
        imports = _IMPORT_OF_TORCH.search(text)
        return Setup(torch_names=frozenset(_WORD.findall(text)) if imports else None)
    keywords = _keywords_of_setup(module)
    return Setup(
        name=keywords.get("name"),
        version=keywords.get("version"),
        torch_names=_names_of_torch(module),
    )


def read_version(files: TreeFiles, file: str) -> str | None:
    """Return the literal that a module assigns to ``__version__``."""
    text = files.text(file)
    module = _parsed(files, file, text) if text and "__version__" in text else None
    return _literals(module).get("__version__") if module else None


def read_cuda_archs(files: TreeFiles) -> tuple[str, ...]:
    """Return the architectures that a PyTorch tree's cpp_extension accepts, wherever it
    lists them.
    """
    module = _parsed(files, CPP_EXTENSION, files.text(CPP_EXTENSION) or "")
    archs: dict[str, None] = {}
    for name, value in _assignments(ast.walk(module)) if module else ():
        if _ARCH_LIST.fullmatch(name):
            archs |= dict.fromkeys(filter(_ARCH.fullmatch, _strings(value)))
    if module and not archs:
        files.note(f"{CPP_EXTENSION}: no list of supported architectures found")
    return tuple(archs)


def _parsed(files: TreeFiles, file: str, text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # about the tree's own string escapes
            return ast.parse(text)
    except SyntaxError as error:
        files.note(f"{file}:{error.lineno}: not understood: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, endless nesting
        files.note(f"{file}: not understood: {error}")
    return None


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield every ``name = value`` among the nodes themselves."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _strings(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        match node:
            case ast.Constant(value=str(text)):
                yield text


def _literals(module: ast.Module) -> dict[str, str]:
    """Return the names that are always assigned a plain string, so not inside a try or if."""
    return {
        name: value.value
        for name, value in _assignments(module.body)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _keywords_of_setup(module: ast.Module) -> dict[str, str]:
    """Return the keywords of ``setup(...)`` that are strings or names of strings."""
    literals = _literals(module)
    found: dict[str, str] = {}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id="setup") | ast.Attribute(attr="setup")):
                for keyword in node.keywords:
                    match keyword:
                        case ast.keyword(arg=str(name), value=ast.Constant(value=str(text))):
                            found[name] = text
                        case ast.keyword(arg=str(name), value=ast.Name(id=other)):
                            found |= {name: literals[other]} if other in literals else {}
    return found


def _names_of_torch(module: ast.Module) -> frozenset[str] | None:
    """Return every name that is imported from torch or may be an attribute of it."""
    imported: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module=str(origin)) if _is_torch(origin):
                imported.update(origin.split("."), (alias.name for alias in node.names))
            case ast.Import():
                origins = (alias.name for alias in node.names if _is_torch(alias.name))
                imported.update(*(origin.split(".") for origin in origins))
            case ast.Attribute(attr=name):
                attributes.add(name)
    return frozenset(imported | attributes) if imported else None


def _is_torch(module: str) -> bool:
    return module.split(".")[0] == "torch"


# -- requirements ----------------------------------------------------------------------------------
# Requirement files, as pip reads them: comments, continued lines, files that include others.
#
# Independent of what is installed.


_MOST_LINES = 10_000
_MOST_INCLUDED = 100  # files
_COMMENT = re.compile(r"(?:^|\s)#.*")
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(?P<file>\S.*)")
_OPTIONS_AFTER = re.compile(r"\s--.*")  # such as the --hash of a pinned requirement


def read_requirements(files: TreeFiles, file: str) -> tuple[str, ...]:
    """Return the requirements of a file and of the files it includes, each once."""
    return parse_requirements(files, _lines(files, file, visited=set()))


def parse_requirements(files: TreeFiles, lines: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the valid PEP 508 requirements among lines with their places; note all other lines."""
    requirements: dict[str, None] = {}
    for count, (where, line) in enumerate(lines):
        if count >= _MOST_LINES:
            files.note(f"{where}: more than {_MOST_LINES:,} requirements: the rest was not read")
            break
        try:
            requirements[str(read_requirement(line))] = None
        except InvalidRequirement:
            files.note(f"{where}: not a requirement: {line[:200]}")
    return tuple(requirements)


def _lines(files: TreeFiles, file: str, visited: set[str]) -> Iterator[tuple[str, str]]:
    visited.add(file)
    for number, line in _joined_lines(files.text(file) or ""):
        where = f"{file}:{number}"
        line = _COMMENT.sub("", line).strip()
        if include := _INCLUDE.fullmatch(line):
            included = posixpath.normpath(posixpath.join(posixpath.dirname(file), include["file"]))
            if included.startswith(("/", "../")) or not files.is_file(included):
                files.note(f"{where}: {include['file']} is not in the tree")
            elif len(visited) >= _MOST_INCLUDED:
                files.note(f"{where}: {include['file']} is one file too many to read")
            elif included not in visited:
                yield from _lines(files, included, visited)
        # Other options say where pip looks, not what is needed.
        elif line and not line.startswith("-"):
            yield where, _OPTIONS_AFTER.sub("", line)


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return lines with continuations after a backslash joined, by the number of their
    last line.
    """
    line = ""
    for number, part in enumerate(text.splitlines(), start=1):
        line += part.removesuffix("\\")
        if not part.endswith("\\"):
            yield number, line
            line = ""


# -- package ---------------------------------------------------------------------------------------
# Reads the Python package of a tree: PKG-INFO, pyproject.toml, setup.py, __init__.py.
#
# Does not know CMake, nor whether stoker can build the package.


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
