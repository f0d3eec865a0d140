"""Reads names and literals from the syntax trees of Python files.

No code is ever run, so what a file computes is not known.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator

from stoker.model.value import Value
from stoker.source.files import TreeFiles

CPP_EXTENSION = "torch/utils/cpp_extension.py"
_ARCH = re.compile(r"\d+\.\d+[af]?")
_ARCH_LIST = re.compile(r"_*supported_(?:cuda_)?arch(?:e?s|itectures)", re.IGNORECASE)
_IMPORT_OF_TORCH = re.compile(r"^[ \t]*(?:from|import)[ \t]+torch\b", re.MULTILINE)
_WORD = re.compile(r"\w+")
# What parsing may raise, also for null bytes and endless nesting.
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)


class Setup(Value, frozen=True, kw_only=True):
    """A setup.py. ``torch_names`` is what it may use of torch; ``None`` if it does not
    import it.
    """

    name: str | None = None
    version: str | None = None
    torch_names: frozenset[str] | None = None
    understood: bool = True


def read_setup(files: TreeFiles) -> Setup:
    text = files.text("setup.py")
    if text is None:
        return Setup()
    module = _parsed(files, "setup.py", text)
    if module is None:
        # Perhaps it is newer Python than this one: what it imports can still be told.
        imports = _IMPORT_OF_TORCH.search(text)
        names = frozenset(_WORD.findall(text)) if imports else None
        return Setup(torch_names=names, understood=False)
    keywords = _keywords_of_setup(module)
    return Setup(
        name=keywords.get("name"),
        version=keywords.get("version"),
        torch_names=_names_of_torch(module),
    )


def read_module_version(files: TreeFiles, file: str) -> str | None:
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
            archs |= dict.fromkeys(
                filter(_ARCH.fullmatch, filter(None, map(text_of, ast.walk(value))))
            )
    if module and not archs:
        files.note(f"{CPP_EXTENSION}: no list of supported architectures found")
    return tuple(archs)


def _parsed(files: TreeFiles, file: str, text: str) -> ast.Module | None:
    try:
        return syntax_tree(text)
    except SyntaxError as error:
        files.note(f"{file}:{error.lineno}: not understood: {error.msg}")
    except NOT_PYTHON as error:
        files.note(f"{file}: not understood: {error}")
    return None


def syntax_tree(text: str) -> ast.Module:
    """Return the syntax tree of a file, or raise one of the ``NOT_PYTHON`` errors."""
    with warnings.catch_warnings(action="ignore"):  # about the tree's own string escapes
        return ast.parse(text)


def text_of(node: ast.AST | None) -> str | None:
    """Return the string that a node is, if it is a literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def names_in(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield every ``name = value`` among the nodes themselves."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _literals(module: ast.Module) -> dict[str, str]:
    """Return the names that are always assigned a plain string, so not inside a try or if."""
    assigned = _assignments(module.body)
    return {name: text for name, value in assigned if (text := text_of(value)) is not None}


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
