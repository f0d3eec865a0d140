"""Reads which variables the build of a tree asks for, and where, without running any of it.

Python: setup.py, the tree's own build back end, and what they import from the tree. A name is found
where it is a literal: in ``os.environ`` or ``os.getenv``, in a call of a function that passes its
argument there, or in a list of names that are looked up in turn. A name that is put together at run
time is not found. CMake is read in ``options.py``.
"""

import ast
import posixpath
import re
from collections.abc import Iterator

from msgspec.structs import replace

from stoker.model.source import CompiledCode, ReadVariable, Standard
from stoker.model.value import Value
from stoker.source.files import TreeFiles
from stoker.source.python_builds import BuildReader
from stoker.source.python_code import NOT_PYTHON, syntax_tree, text_of

_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z]{4,}")
_OF_ENVIRONMENT = re.compile(r"_?(?:environ|env)")
_PASSED = re.compile(r"-D([A-Za-z_]\w*)(?::[A-Z]+)?=(\w+)")
_CHANGED = ("lower", "upper", "strip", "casefold")  # methods of str after which it is compared
_STANDARD = re.compile(r"[-/]std[=:](?:c|gnu)\+\+(\d\d)")
_MOST_FILES = 120
_MOST_DEPTH = 4  # imports from the root
_READERS = {
    "BuildExtension": "torch.utils.cpp_extension",
    "CUDAExtension": "torch.utils.cpp_extension",
    "CppExtension": "torch.utils.cpp_extension",
    "SyclExtension": "torch.utils.cpp_extension",
    "skbuild": "scikit-build",
    "scikit_build_core": "scikit-build-core",
}


class PythonAsks(Value, frozen=True, kw_only=True):
    """What the Python files of a build ask for. ``names`` are those they use of other modules."""

    asks: tuple[ReadVariable, ...] = ()
    overwrites: tuple[ReadVariable, ...] = ()
    passed: dict[str, str] = {}  # options that are given to CMake in every case
    code: CompiledCode = CompiledCode(compiles=False)
    standards: tuple[Standard, ...] = ()
    names: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()

    @property
    def readers(self) -> tuple[str, ...]:
        return tuple(sorted({_READERS[name] for name in self.names if name in _READERS}))


class _Module(Value, frozen=True, kw_only=True):
    """A file and all nodes of its syntax tree. ``early`` are those outside functions."""

    file: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    early: frozenset[int]


def read_python_asks(files: TreeFiles, roots: tuple[str, ...]) -> PythonAsks:
    """Return what setup.py, a back end of the tree's own and their imports ask for."""
    modules = list(_modules(files, roots))
    wrappers = {node.name: node for module in modules for node in _wrappers(module.nodes)}
    reader, code = _Reader(set(wrappers)), BuildReader(dict(wrappers), _key)
    for module in modules:
        reader.read(module)
        code.read(module.file, module.tree)
    read = tuple(module.file for module in modules)
    return replace(reader.result(), code=code.result(), files=read)


def _modules(files: TreeFiles, roots: tuple[str, ...]) -> Iterator[_Module]:
    """Yield the roots and the modules of the tree that they import, nearest first.

    Of a module that is not a root, only the imports outside functions count: the others belong to
    what the package does when it runs.
    """
    waiting = [(root, 0) for root in roots if files.is_file(root)]
    seen = {file for file, _ in waiting}
    count = 0
    while waiting and count < _MOST_FILES:
        file, depth = waiting.pop(0)
        count += 1
        try:
            tree = syntax_tree(files.text(file) or "")
        except NOT_PYTHON:
            continue  # `read_setup` notes what it cannot read
        nodes, early = tuple(ast.walk(tree)), frozenset(_early(tree))
        module = _Module(file=file, tree=tree, nodes=nodes, early=early)
        yield module
        if depth == _MOST_DEPTH:
            continue
        for imported in _imported(files, module, everything=not depth):
            if imported not in seen:
                seen.add(imported)
                waiting.append((imported, depth + 1))


def _early(tree: ast.Module) -> Iterator[int]:
    """Yield the ids of the import statements that run when a module is imported."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Import() | ast.ImportFrom():
                yield id(node)
            case ast.Try(body=body, handlers=handlers, orelse=others):
                waiting += [*body, *others, *(s for each in handlers for s in each.body)]
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                continue
            case ast.If(body=body, orelse=others):
                waiting += [*body, *others]


def _imported(files: TreeFiles, module: _Module, *, everything: bool) -> Iterator[str]:
    folder = posixpath.dirname(module.file)
    for node in module.nodes:
        counts = everything or id(node) in module.early
        match node:
            case ast.Import(names=names) if counts:
                for alias in names:
                    yield from _found(files, folder, alias.name)
            case ast.ImportFrom(module=name, level=level, names=names) if counts:
                base = folder
                for _ in range(level - 1):
                    base = posixpath.dirname(base)
                yield from _found(files, base, name or "")
                for alias in names:
                    yield from _found(files, base, f"{name or ''}.{alias.name}".strip("."))
            case ast.Call(args=[*arguments]) if everything:
                yield from _joined_path(files, folder, arguments)


def _found(files: TreeFiles, folder: str, module: str) -> Iterator[str]:
    """Yield the file of a module, looked for beside the importing file, then from the root."""
    path = module.replace(".", "/")
    if not path:
        return
    for base in dict.fromkeys((folder, "", "install", "python")):
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            full = posixpath.join(base, candidate)
            if files.is_file(full):
                yield full
                return


def _joined_path(files: TreeFiles, folder: str, arguments: list[ast.expr]) -> Iterator[str]:
    """Yield a module that is loaded by its path: ``load(os.path.join(ROOT, "tools", "x.py"))``."""
    parts = [text for argument in arguments if (text := text_of(argument)) is not None]
    if not parts or not parts[-1].endswith(".py") or len(parts) > 8:
        return
    for base in dict.fromkeys((folder, "")):
        full = posixpath.normpath(posixpath.join(base, *parts))
        if not full.startswith("..") and not full.startswith("/") and files.is_file(full):
            yield full
            return


def _wrappers(
    nodes: tuple[ast.AST, ...],
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions that look up an argument of theirs in the environment."""
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parameters = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        for inner in ast.walk(node):
            key = _key(inner)
            if isinstance(key, ast.Name) and key.id in parameters:
                yield node
                break


def _key(node: ast.AST) -> ast.expr | None:
    """Return the name that a node looks up in the environment, if it does."""
    match node:
        case ast.Call(func=ast.Attribute(attr="getenv") | ast.Name(id="getenv"), args=[key, *_]):
            return key
        case ast.Call(func=ast.Attribute(attr="get" | "pop", value=value), args=[key, *_]):
            return key if _is_environment(value) else None
        case ast.Subscript(value=value, slice=key, ctx=ast.Load()):
            return key if _is_environment(value) else None
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]):
            return key if _is_environment(value) else None
    return None


def _is_environment(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _OF_ENVIRONMENT.fullmatch(name) is not None
        case ast.Call(func=ast.Attribute(attr="copy", value=value)):
            return _is_environment(value)
    return False


class _Reader:
    """Collects from several modules; the first place of a name counts."""

    def __init__(self, wrappers: set[str]) -> None:
        self._wrappers = wrappers
        self._asks: dict[str, ReadVariable] = {}
        self._listed: dict[str, ReadVariable] = {}
        self._overwrites: dict[str, ReadVariable] = {}
        self._standards: dict[int, Standard] = {}
        self._names: set[str] = set()
        self._compared: dict[str, dict[str, None]] = {}
        self._passed: dict[str, set[str]] = {}
        self._looks_up_lists = False

    def result(self) -> PythonAsks:
        asks = dict(self._asks)
        if self._looks_up_lists:
            asks = self._listed | asks
        return PythonAsks(
            asks=tuple(
                replace(asks[name], compared=tuple(self._compared.get(name, ())))
                for name in sorted(asks)
            ),
            passed={name: next(iter(v)) for name, v in self._passed.items() if len(v) == 1},
            overwrites=tuple(self._overwrites[name] for name in sorted(self._overwrites)),
            standards=tuple(self._standards.values()),
            names=frozenset(self._names),
        )

    def read(self, module: _Module) -> None:
        documentation = {id(node) for node in _docstrings(module.nodes)}
        defaults = set(_defaults(module.nodes))
        conditional = {
            id(inner)
            for node in module.nodes
            if isinstance(node, ast.If | ast.IfExp)
            for inner in ast.walk(node)
        }
        held = dict(_held(module.nodes))
        for node in module.nodes:
            if id(node) in documentation or not hasattr(node, "lineno"):
                continue
            where = f"{module.file}:{node.lineno}"
            self._lookup(node, where)
            if id(node) not in defaults:
                self._overwrite(node, where)
            self._literal(node, where)
            self._comparison(node, held)
            if (text := text_of(node)) and (option := _PASSED.fullmatch(text)):
                unsure = {"?"} if id(node) in conditional else set()
                self._passed.setdefault(option[1], set()).update({option[2]} | unsure)
            self._name(node)

    def _lookup(self, node: ast.AST, where: str) -> None:
        key = _key(node)
        if key is not None:
            name = text_of(key)
            if name is None:
                self._looks_up_lists = True
            elif _VARIABLE.fullmatch(name):
                default = node.args[1] if isinstance(node, ast.Call) and node.args[1:] else None
                ask = ReadVariable(name=name, where=where, default=text_of(default))
                self._asks.setdefault(name, ask)
            return
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[*arguments]):
                if name in self._wrappers:
                    self._wrapped(arguments, where)

    def _wrapped(self, arguments: list[ast.expr], where: str) -> None:
        named = [text for text in map(text_of, arguments) if text and _VARIABLE.fullmatch(text)]
        for text in named:
            self._asks.setdefault(text, ReadVariable(name=text, where=where))
        if not named:
            self._looks_up_lists = True

    def _overwrite(self, node: ast.AST, where: str) -> None:
        match node:
            case ast.Assign(targets=[ast.Subscript(value=value, slice=key)], value=new):
                name = text_of(key)
                if name and _is_environment(value):
                    ask = ReadVariable(name=name, where=where, default=text_of(new))
                    self._overwrites.setdefault(name, ask)

    def _literal(self, node: ast.AST, where: str) -> None:
        """Note names in lists and C++ standards among the literals."""
        match node:
            case ast.Constant(value=str(text)):
                if found := _STANDARD.search(text):
                    standard = Standard(version=int(found[1]), where=where)
                    self._standards.setdefault(standard.version, standard)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                self._list(parts, where)
            case ast.Dict(keys=parts):
                self._list([part for part in parts if part], where)
            case ast.Assign(value=ast.Constant() as value):
                self._list([value], where)

    def _list(self, parts: list[ast.expr], where: str) -> None:
        file = where.rpartition(":")[0]
        for part in parts:
            text = text_of(part)
            if text and "_" in text and _VARIABLE.fullmatch(text):
                place = f"{file}:{part.lineno}"
                self._listed.setdefault(text, ReadVariable(name=text, where=place, certain=False))

    def _comparison(self, node: ast.AST, held: dict[str, str]) -> None:
        """Note with which words the value of a variable is compared."""
        match node:
            case ast.Compare(left=left, ops=[_], comparators=[right]):
                name = held.get(left.id) if isinstance(left, ast.Name) else _looked_up(left)
                words = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
                texts = [text for text in map(text_of, words) if text]
                if name and texts:
                    self._compared.setdefault(name, {}).update(dict.fromkeys(texts))

    def _name(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                self._names.add(name)
            case ast.Import(names=names):
                self._names.update(alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                self._names.add(module.partition(".")[0])


def _looked_up(node: ast.AST) -> str | None:
    """Return the variable of the environment whose value this is, perhaps in lower case."""
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _CHANGED:
            return _looked_up(value)
    return None if isinstance(node, ast.Compare) else text_of(_key(node))


def _held(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[str, str]]:
    """Yield the names of Python that hold the value of a variable of the environment."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if variable := _looked_up(value):
                    yield name, variable


def _defaults(nodes: tuple[ast.AST, ...]) -> Iterator[int]:
    """Yield the statements that set a variable of the environment only where it is not set:
    ``if os.getenv("ARCHS") is None: os.environ["ARCHS"] = "7.0"``.
    """
    for node in nodes:
        if not isinstance(node, ast.If):
            continue
        match node.test:
            case ast.Compare(ops=[ast.NotIn()]):
                lookup: ast.expr = node.test
            case ast.UnaryOp(op=ast.Not(), operand=lookup):
                pass
            case ast.Compare(
                left=lookup, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=None | "")]
            ):
                pass
            case _:
                continue
        name = text_of(_key(lookup))
        for each in ast.walk(node):
            match each:
                case ast.Assign(targets=[ast.Subscript(slice=key)]) if (
                    name and text_of(key) == name
                ):
                    yield id(each)


def _docstrings(nodes: tuple[ast.AST, ...]) -> Iterator[ast.AST]:
    """Yield the strings that are statements of their own: they are documentation."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text
