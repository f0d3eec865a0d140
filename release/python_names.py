"""Finds the names that the modules of a Python package have for its users, without importing it.

A name is there if a module defines or imports it at its top level. Stubs come before modules, and
their conditions on `sys.version_info` are decided for one release of Python.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

# What modules import from elsewhere is not theirs.
_OF_PYTHON = {*sys.stdlib_module_names, "typing_extensions", "six"} - {"distutils"}


def module_of(path: str) -> str | None:
    """Return the name of the module that a file of a package is; ``None`` for other files."""
    stem, dot, suffix = path.rpartition(".")
    if suffix not in ("py", "pyi") or not dot:
        return None
    parts = stem.split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if parts and all(map(str.isidentifier, parts)) else None


def python_names(sources: Mapping[str, bytes], python: tuple[int, ...]) -> set[str]:
    """Return the modules and their names, such as numpy.distutils, for files by their path."""
    trees: dict[str, ast.Module] = {}
    for path, content in sorted(sources.items(), reverse=True):  # x.pyi before x.py
        module = module_of(path)
        if module and module not in trees:
            with suppress(SyntaxError, ValueError, RecursionError):  # templates, old Pythons
                trees[module] = ast.parse(content)
    packages = {module_of(path) for path in sources if "/__init__.py" in path}
    found = set(trees)
    for module in trees:
        for name in _names(module, trees, packages, python, frozenset()):
            found.add(f"{module}.{name}")
    return found


def _names(
    module: str,
    trees: Mapping[str, ast.Module],
    packages: set[str | None],
    python: tuple[int, ...],
    asking: frozenset[str],
) -> Iterator[str]:
    for node in _statements(trees[module].body, python):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.Import):
            named = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            yield from (name for name in named if name not in _OF_PYTHON)
        elif isinstance(node, ast.ImportFrom):
            if not node.level and (node.module or "").partition(".")[0] in _OF_PYTHON:
                continue
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name
                    continue
                other = _imported(node, module, packages)
                if other in trees and other not in asking:
                    names = _names(other, trees, packages, python, asking | {module})
                    yield from (name for name in names if not name.startswith("_"))


def _imported(node: ast.ImportFrom, module: str, packages: set[str | None]) -> str:
    """Return the module that a statement imports from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    up = node.level - (module in packages)
    base = parts[: len(parts) - up] if up else parts
    return ".".join([*base, *filter(None, [node.module])])


def _statements(body: list[ast.stmt], python: tuple[int, ...]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those below conditions that hold."""
    for node in body:
        if isinstance(node, ast.If):
            holds = _holds(node.test, python)
            if holds is not False:
                yield from _statements(node.body, python)
            if holds is not True:
                yield from _statements(node.orelse, python)
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse], python)
            for handler in node.handlers:
                yield from _statements(handler.body, python)
        elif isinstance(node, ast.With):
            yield from _statements(node.body, python)
        else:
            yield node


def _holds(test: ast.expr, python: tuple[int, ...]) -> bool | None:
    """Return whether a condition on the release of Python holds; ``None`` for all others."""
    if not isinstance(test, ast.Compare) or ast.unparse(test.left) != "sys.version_info":
        return None
    try:
        wanted = ast.literal_eval(test.comparators[0])
    except ValueError:
        return None
    if isinstance(test.ops[0], ast.GtE):
        return python >= tuple(wanted)[:2]
    return python < tuple(wanted)[:2] if isinstance(test.ops[0], ast.Lt) else None
