"""Finds the conditions under which Python files of a build use CUDAExtension. Evaluates nothing."""

import ast
from collections.abc import Iterator

# An expression, and whether it has to be true.
Test = tuple[ast.expr, bool]


def cuda_guards(module: ast.Module) -> Iterator[tuple[Test, ...]]:
    """Yield the tests around each call of CUDAExtension: those of its own place, and those around
    the calls of the function that it is in.
    """
    places = list(_places(module))
    calls: dict[str, list[tuple[Test, ...]]] = {}
    for node, tests, inside in places:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name != inside:
                calls.setdefault(name, []).append(tests)
    for node, tests, inside in places:
        match node:
            case ast.Call(func=ast.Name(id="CUDAExtension") | ast.Attribute(attr="CUDAExtension")):
                for around in calls.get(inside, [()]):
                    yield (*around, *tests)


def _places(module: ast.Module) -> Iterator[tuple[ast.AST, tuple[Test, ...], str]]:
    """Yield each node with its tests, and the name of the function that it is in."""
    waiting: list[tuple[ast.AST, tuple[Test, ...], str]] = [(module, (), "")]
    while waiting:
        node, tests, inside = waiting.pop()
        yield node, tests, inside
        match node:
            case ast.If(test=test, body=body, orelse=others):
                waiting.append((test, tests, inside))
                waiting += [(each, (*tests, (test, True)), inside) for each in body]
                waiting += [(each, (*tests, (test, False)), inside) for each in others]
            case ast.IfExp(test=test, body=chosen, orelse=other):
                waiting.append((test, tests, inside))
                waiting.append((chosen, (*tests, (test, True)), inside))
                waiting.append((other, (*tests, (test, False)), inside))
            case ast.FunctionDef(name=name):
                waiting += [(each, (), name) for each in ast.iter_child_nodes(node)]
            case _:
                waiting += [(each, tests, inside) for each in ast.iter_child_nodes(node)]


def value_for(expression: ast.expr, *, wanted: bool) -> str | None:
    """Return the value of the variable in a comparison with which it has the wanted result, if its
    form shows one.
    """
    match expression:
        case ast.Compare(
            ops=[ast.Eq() | ast.NotEq() as operator], comparators=[ast.Constant(value)]
        ):
            equal, values = isinstance(operator, ast.Eq), [str(value)]
        case ast.Compare(
            ops=[ast.In() | ast.NotIn() as operator],
            comparators=[ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts)],
        ):
            equal = isinstance(operator, ast.In)
            values = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
        case _:
            return None
    if equal is wanted:
        return next(filter(None, values), None)
    return next((value for value in ("0", "1") if value not in values), None)
