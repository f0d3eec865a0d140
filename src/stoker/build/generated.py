"""Which sources the build tool generates before anything is compiled. Pure: edges in, names out."""

from collections.abc import Sequence

from stoker.source.ninja import Edge

_GENERATES = "CUSTOM_COMMAND"
_BUILDS = ("_COMPILER__", "_LINKER__")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl")


def generated_sources(edges: Sequence[Edge], target: str) -> tuple[str, ...]:
    """One output of each command that makes sources for ``target`` by scripts alone.

    A generator that must itself be compiled first is left to compiling.
    """
    maker = {output: index for index, edge in enumerate(edges) for output in edge.outputs}
    reached = _order(edges, maker, target)
    compiled: set[int] = set()  # and all that needs it
    found = []
    for index in reached:
        edge = edges[index]
        below = {maker[need] for need in (*edge.needs, *edge.after) if need in maker}
        if any(word in edge.rule for word in _BUILDS) or below & compiled:
            compiled.add(index)
        elif edge.rule == _GENERATES and edge.outputs[0].endswith(_SOURCES):
            found.append(edge.outputs[0])
    return tuple(found)


def _order(edges: Sequence[Edge], maker: dict[str, int], target: str) -> list[int]:
    """All that a target needs, each behind what it needs itself."""
    order: list[int] = []
    entered: set[int] = set()
    waiting = [(maker[target], False)] if target in maker else []
    while waiting:
        index, ready = waiting.pop()
        if ready:
            order.append(index)
        elif index not in entered:
            entered.add(index)
            waiting.append((index, True))
            edge = edges[index]
            waiting += [
                (maker[need], False) for need in (*edge.needs, *edge.after) if need in maker
            ]
    return order
