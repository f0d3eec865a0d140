"""Reads what the Python files of a build compile, for which targets, and what they refuse.

Evaluates nothing. A target that depends on an environment variable is told with the variable; one
that depends on anything else is told as conditional.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise

from msgspec.structs import replace

from stoker.knowledge.gpus import cuda_archs
from stoker.model.source import (
    CompiledCode,
    Minimum,
    NamedTarget,
    NativeCode,
    ReadVariable,
    SupportedTargets,
)
from stoker.source.cmake_code import flag_targets
from stoker.source.cuda_guards import Test, cuda_guards, value_for
from stoker.source.python_code import names_in, text_of

_FLAG = re.compile(r"\b(?:compute|sm)_(?:$|\d{2,3})|--offload-arch=")
_BARE_NAME = re.compile(r"(?:compute|sm)_\d{2,3}[af]?")  # alone it may also be a key of a table
_TAKES_TARGET = re.compile(
    r"--?(?:arch|gpu-architecture|gencode|generate-code|code|gpu-code)|-Xarch_device"
)
_DEVICE_SOURCE = re.compile(r"[^\s]*\.(?:cu|hip)")
_SUPPORTED = re.compile(r"_?(?:\w+_)?SUPPORTED_(?:\w+_)?(?:ARCHS|ARCHITECTURES|CAPABILITIES)")
_UNSUPPORTED = re.compile(r"arch.*support", re.IGNORECASE | re.DOTALL)
_TARGET = re.compile(r"\d{1,2}\.\d[af]?")
_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_ARGUMENT = re.compile(r"--[a-z][\w-]*")
_CUDA_VERSION = re.compile(r"cuda|nvcc|bare_metal", re.IGNORECASE)
_ABOUT_CUDA = re.compile(r"CUDA|GPU")
_TOOLKIT = re.compile(r"[\"'/]nvcc\b|\bCUDA_HOME\b")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
# Tests that are true in every build for a GPU.
_WITH_CUDA = re.compile(
    r"(?:\w+_)?(?:WITH|USE|BUILD|ENABLE|HAVE|HAS|FORCE|IS)_(?:CUDA|GPU)|CUDA_HOME"
    r"|(?:torch\.)?cuda\.is_available\(\)",
    re.IGNORECASE,
)
_IS_AVAILABLE = re.compile(r"(?:torch\.)?cuda\.is_available\(\)")
_TRUE = ("1", "TRUE", "True", "true", "ON", "on", "YES", "yes", "Y", "y")
_COMPILING = {
    *("BuildExtension", "CppExtension", "CUDAExtension", "SyclExtension", "Extension"),
    *("cythonize", "Pybind11Extension", "CMakeExtension", "cmake", "ninja", "skbuild", "cffi"),
    *("build_ext", "build_clib", "RustExtension", "ext_modules", "make", "gcc", "nvcc"),
}


@cache
def _capabilities() -> frozenset[int]:
    """Return the capabilities of GPUs as numbers. A list of others, such as sizes of tiles, names
    no targets.
    """
    plain = (arch for arch in cuda_archs() if arch[-1].isdigit())
    return frozenset(int(arch.replace(".", "")) for arch in plain)


class BuildReader:
    """Collects from several modules; the first place counts. ``key`` returns the name that a node
    looks up in the environment.
    """

    def __init__(self, wrappers: dict[str, ast.AST], key: Callable[[ast.AST], ast.expr | None]):
        self._wrappers = wrappers
        self._key = key
        self._targets: dict[NamedTarget, None] = {}  # the parts of an f-string are one
        self._single: list[NamedTarget] = []
        self._flags: dict[str, ReadVariable] = {}
        self._native: list[NativeCode] = []
        self._device_source: str | None = None
        self._used: set[str] = set()  # names and words of what compiles
        self._cuda_if_found: str | None = None
        self._without_cuda: list[tuple[str, str] | None] = []
        self._by_name = False  # a CUDAExtension depends on a name that an argument may set
        self._needs_gpu: str | None = None
        self._cuda: Minimum | None = None
        self._gpu: Minimum | None = None
        self._supported: SupportedTargets | None = None

    def result(self) -> CompiledCode:
        computed = any(not target.arch for target in self._targets)
        switches = [switch for switch in self._without_cuda if switch]
        left_out = bool(self._without_cuda) and len(switches) == len(self._without_cuda)
        if self._by_name:
            left_out &= any(_ABOUT_CUDA.search(name.upper()) for name in self._flags)
        return CompiledCode(
            targets=(*self._targets, *(self._single if computed else ())),
            device_source=self._device_source,
            compiles=bool(self._used),
            cuda_if_found=self._cuda_if_found,
            without_cuda={n: v for n, v in switches if n} if left_out else None,
            needs_gpu=self._needs_gpu,
            calls_cmake=bool(self._used & {"cmake", "skbuild", "CMakeExtension"}),
            flags=tuple(self._flags.values()),
            native=tuple(self._native),
            cuda_minimum=self._cuda,
            oldest_gpu=self._gpu,
            supported=self._supported,
        )

    def read(self, file: str, tree: ast.Module) -> None:
        names = dict(_assignments(tree))
        if _refuses_unsupported(tree):
            self._supported = self._supported or next(_supported(file, tree), None)
        takes = any(map(_takes_arguments, ast.walk(tree)))
        looped = set(_compared_in_loops(tree)) if takes else set()
        self._without_cuda += [self._switch(tests, names) for tests in cuda_guards(tree)]
        of_flags, finders = set(_after_flags(tree)), set(_finders_of_cuda(tree))
        for node, tests in _with_tests(tree):
            where = f"{file}:{getattr(node, 'lineno', 0)}"
            match node:
                case ast.Constant(value=str(text)):
                    open_tests = (
                        t for t in tests if not _is_about_cuda(t) and not _is_without_gpu(t)
                    )
                    resolved = [self._resolved(test, names) for test in open_tests]
                    if _BARE_NAME.fullmatch(text) and node not in of_flags:
                        resolved.append(None)  # whether it becomes a flag is not known
                    self._text(text, where, resolved, without_gpu=any(map(_is_without_gpu, tests)))
                    self._used |= set(text.split()[:1]) & _COMPILING
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                    self._used |= {name} & _COMPILING
                case ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                    self._capabilities(parts, where)
                case ast.Import(names=imported):
                    self._used |= {alias.name for alias in imported} & _COMPILING
                case ast.If(test=test, body=body):
                    self._refusal(node, where)
                    if _refuses_without_gpu(node):
                        self._needs_gpu = self._needs_gpu or where
                    finds = "CUDA_HOME" in names_in(test) or not finders.isdisjoint(_called(test))
                    by_home = finds and any(map(_adds_cuda, body))
                    if by_home or _decides_by_version(node, names):
                        self._cuda_if_found = self._cuda_if_found or where
                case ast.Assert():
                    self._refusal(node, where)
            self._argument(node, where, takes=takes)
            match node:
                case ast.Compare(comparators=[ast.Constant(value=str(text))]) if node in looped:
                    self._flag(text, where)

    def _text(
        self,
        text: str,
        where: str,
        conditions: list[tuple[str, str, str] | None],
        *,
        without_gpu: bool,
    ) -> None:
        if _FLAG.search(text) and "\n" not in text:
            found = list(flag_targets(text, where, conditional=False))
            for target in found or [NamedTarget(where=where, amd="offload-arch" in text)]:
                found_here = replace(target, without_gpu=without_gpu)
                self._targets[_on_condition(found_here, conditions)] = None
        if _DEVICE_SOURCE.fullmatch(text):
            self._device_source = self._device_source or where
        if _NATIVE.search(text):
            self._native.append(NativeCode(where=where))

    def _capabilities(self, parts: list[ast.expr], where: str) -> None:
        """Note a list of numbers that are capabilities: targets of single extensions."""
        numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
        if len(numbers) < 2 or len(numbers) < len(parts) or not set(numbers) <= _capabilities():
            return
        for number in numbers:
            arch = f"{int(str(number)) // 10}.{int(str(number)) % 10}"
            self._single.append(NamedTarget(where=where, arch=arch, single=True))

    def _argument(self, node: ast.AST, where: str, *, takes: bool) -> None:
        """Note an argument that is looked for. One that stays on the command line is none:
        setuptools refuses what it does not know.
        """
        match node:
            case ast.Compare(left=ast.Constant(value=str(text)), comparators=[other]):
                given = takes and _is_argv(other)
            case ast.Call(
                func=ast.Attribute(attr="add_argument"),
                args=[ast.Constant(value=str(text)), *_],
            ):
                given = takes
            case ast.Call(args=[ast.Constant(value=str(text)), *others]):
                given = any(map(_is_argv, others))
            case _:
                return
        if given:
            self._flag(text, where)

    def _flag(self, text: str, where: str) -> None:
        if _ARGUMENT.fullmatch(text):
            self._flags.setdefault(text, ReadVariable(name=text, where=where, environment=False))

    def _switch(
        self, tests: tuple[Test, ...], names: dict[str, ast.expr]
    ) -> tuple[str, str] | None:
        """Return the variable and its value that leave out what tests guard, if its name is about
        CUDA. Without a name, an argument of setup.py may be what switches it on.
        """
        for test in tests:
            named, wanted = _without_not(test)
            expression, variables = self._asked(named, names)
            if len(variables) == 1:
                (variable,) = variables
                value = value_for(expression, wanted=not wanted)
                if value is not None and _ABOUT_CUDA.search(variable):
                    return variable, value
            elif isinstance(named, ast.Name) and isinstance(expression, ast.Name | ast.Constant):
                self._by_name = True
                return "", ""
        return None

    def _refusal(self, node: ast.If | ast.Assert, where: str) -> None:
        """Note ``if cuda_version < Version("12.3"): raise``, the same as assert, and of GPUs."""
        if isinstance(node, ast.If):
            if not any(isinstance(each, ast.Raise) for each in node.body):
                return
            operator: type[ast.cmpop] = ast.Lt
        else:
            operator = ast.GtE
        match node.test:
            case ast.Compare(left=left, ops=[comparison], comparators=[right]) if isinstance(
                comparison, operator
            ):
                subject = ast.unparse(left)
                version = _version(right)
                if version and _CUDA_VERSION.search(subject) and "torch" not in subject:
                    self._cuda = self._cuda or Minimum(version=version, where=where)
                match right:
                    case ast.Constant(value=int(number)) if number in _capabilities():
                        oldest = f"{number // 10}.{number % 10}"
                        self._gpu = self._gpu or Minimum(version=oldest, where=where)

    def _resolved(self, test: Test, names: dict[str, ast.expr]) -> tuple[str, str, str] | None:
        """Return the variable, the value that includes and the one that excludes what a test
        guards; ``None`` if the test is not about one environment variable.
        """
        named, wanted = _without_not(test)
        expression, variables = self._asked(named, names)
        if isinstance(expression, ast.BoolOp) or len(variables) != 1:
            return None
        value = _true_value([expression, *self._bodies(expression)])
        (variable,) = variables
        return (variable, value, "") if wanted else (variable, "", value)

    def _asked(self, expression: ast.expr, names: dict[str, ast.expr]) -> tuple[ast.expr, set[str]]:
        """Return an expression, or what its name stands for, and the variables that it reads."""
        if isinstance(expression, ast.Name):
            expression = names.get(expression.id, expression)
        return expression, set(filter(None, map(self._variable, ast.walk(expression))))

    def _variable(self, node: ast.AST) -> str | None:
        if (text := text_of(self._key(node))) is not None:
            return text
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]):
                if name in self._wrappers and isinstance(first, ast.Constant):
                    text = str(first.value)
                    return text if _VARIABLE.fullmatch(text) else None
        return None

    def _bodies(self, expression: ast.expr) -> Iterator[ast.AST]:
        """Yield the functions that an expression calls to look up a variable."""
        for node in ast.walk(expression):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    if name in self._wrappers:
                        yield self._wrappers[name]


def _without_not(test: Test) -> Test:
    """Return the expression under ``not``, and whether it has to be true."""
    expression, wanted = test
    while isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
        expression, wanted = expression.operand, not wanted
    return expression, wanted


def _after_flags(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the words that follow a flag that takes a target: ``["-arch", "sm_90"]``."""
    for node in ast.walk(tree):
        match node:
            case ast.List(elts=words) | ast.Tuple(elts=words) | ast.Call(args=words):
                for flag, word in pairwise(words):
                    if isinstance(flag, ast.Constant) and _TAKES_TARGET.fullmatch(str(flag.value)):
                        yield word


def _is_about_cuda(test: Test) -> bool:
    """Tell whether a test is true in every build for a GPU: ``if WITH_CUDA and CUDA_HOME``."""
    expression, wanted = test
    match expression:
        case ast.BoolOp(op=ast.And(), values=parts):
            return wanted and all(_is_about_cuda((part, True)) for part in parts)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            expression = left
    return wanted and bool(_WITH_CUDA.fullmatch(ast.unparse(expression)))


def _refuses_unsupported(tree: ast.Module) -> bool:
    """Tell whether a file refuses targets because they are not supported, in its own words."""
    return any(
        isinstance(node, ast.Raise) and _UNSUPPORTED.search(ast.unparse(node))
        for node in ast.walk(tree)
    )


def _supported(file: str, tree: ast.Module) -> Iterator[SupportedTargets]:
    """Yield the lists ``SUPPORTED_ARCHS = {"8.0", "9.0"}`` of a file, outside of all functions."""
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts),
            ) if _SUPPORTED.fullmatch(name):
                found = [part.value for part in parts if isinstance(part, ast.Constant)]
                archs = [
                    arch for arch in found if isinstance(arch, str) and _TARGET.fullmatch(arch)
                ]
                if archs and len(archs) == len(parts):
                    yield SupportedTargets(archs=tuple(archs), where=f"{file}:{node.lineno}")


def _is_without_gpu(test: Test) -> bool:
    """Tell whether a test is true only where no GPU is visible."""
    expression, wanted = _without_not(test)
    return not wanted and bool(_IS_AVAILABLE.fullmatch(ast.unparse(expression)))


def _refuses_without_gpu(node: ast.If) -> bool:
    """Tell whether a statement raises an error if no GPU is visible, whatever is set."""
    match node.test:
        case ast.UnaryOp(op=ast.Not(), operand=test):
            branch = node.body
        case test:
            branch = node.orelse
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    looks = any(_IS_AVAILABLE.fullmatch(ast.unparse(part)) for part in parts)
    return looks and any(isinstance(each, ast.Raise) for each in branch)


def _on_condition(
    target: NamedTarget, conditions: list[tuple[str, str, str] | None]
) -> NamedTarget:
    if not conditions:
        return target
    if len(conditions) > 1 or conditions[0] is None:
        return replace(target, conditional=True)
    variable, includes, excludes = conditions[0]
    return replace(target, variable=variable, includes=includes, excludes=excludes)


def _true_value(nodes: Iterable[ast.AST]) -> str:
    """Return the value with which a test of a variable succeeds: one that it is compared with."""
    compared = {
        text
        for node in nodes
        for comparison in ast.walk(node)
        if isinstance(comparison, ast.Compare)
        for side in comparison.comparators
        for constant in ast.walk(side)
        if (text := text_of(constant)) is not None
    }
    return next((value for value in _TRUE if value in compared), "1")


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value


Tests = tuple[Test, ...]


def _with_tests(tree: ast.AST) -> Iterator[tuple[ast.AST, Tests]]:
    """Yield every node, except documentation, with the tests of the if statements around it."""
    waiting: list[tuple[ast.AST, Tests]] = [(tree, ())]
    while waiting:
        node, tests = waiting.pop(0)
        yield node, tests
        match node:
            case ast.If(test=test, body=body, orelse=others):
                waiting.append((test, tests))
                waiting += [(each, (*tests, (test, True))) for each in body]
                waiting += [(each, (*tests, (test, False))) for each in others]
            case ast.Raise() | ast.Expr(value=ast.Constant()):
                continue  # messages and documentation
            case _:
                waiting += [(each, tests) for each in ast.iter_child_nodes(node)]


def _decides_by_version(node: ast.If, names: dict[str, ast.expr]) -> bool:
    """Tell whether a statement chooses between an extension with CUDA and one without by a version
    that it has found.
    """
    known = [names[name] for name in names_in(node.test) if name in names]
    text = " ".join(map(ast.unparse, (node.test, *known)))
    return (
        isinstance(node.test, ast.Compare)
        and bool(_CUDA_VERSION.search(text))
        and "is_available" not in text
        and "environ" not in text
        and not _is_about_cuda((node.test, True))
        and any(map(_adds_cuda, node.body))
        and any("CppExtension" in _called(each) for each in node.orelse)
    )


def _called(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield name


def _finders_of_cuda(tree: ast.Module) -> Iterator[str]:
    """Yield the functions of a file that look for a CUDA toolkit."""
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.FunctionDef) else ""
        other = "is_available" in text or "CUDAExtension" in text
        if isinstance(node, ast.FunctionDef) and _TOOLKIT.search(text) and not other:
            yield node.name


def _adds_cuda(node: ast.AST) -> bool:
    """Tell whether a branch compiles CUDA code."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id="CUDAExtension"):
                return True
            case ast.Constant(value=str(text)) if text in ("WITH_CUDA", "nvcc"):
                return True
            case ast.Constant(value=str(text)) if _DEVICE_SOURCE.fullmatch(text):
                return True
    return False


def _is_argv(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="argv") | ast.Attribute(attr="argv"):
            return True
    return False


def _compared_in_loops(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the comparisons with each word of the command line: ``if word == "--cuda"``."""
    for node in ast.walk(tree):
        match node:
            case ast.For(target=target, iter=words):
                pass
            case ast.ListComp(generators=[ast.comprehension(target=target, iter=words)]):
                pass
            case _:
                continue
        names = names_in(target)
        if not any(isinstance(each, ast.expr) and _is_argv(each) for each in ast.walk(words)):
            continue
        for each in ast.walk(node):
            match each:
                case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.NotEq()]):
                    if name in names:
                        yield each


def _takes_arguments(node: ast.AST) -> bool:
    """Tell whether a statement takes arguments off the command line."""
    match node:
        case ast.Assign(targets=[ast.Attribute(attr="argv")]):
            return True
        case ast.Call(func=ast.Attribute(attr="remove" | "pop", value=value)):
            return _is_argv(value)
        case ast.Call(func=ast.Attribute(attr="parse_known_args")):
            return True
    return False


def _version(node: ast.expr) -> str | None:
    match node:
        case ast.Call(
            func=ast.Name(id="Version" | "parse" | "LooseVersion") | ast.Attribute(attr="parse"),
            args=[ast.Constant(value=str(text))],
        ) if re.fullmatch(r"\d+(?:\.\d+)+", text):
            return text
    return None
