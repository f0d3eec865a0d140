"""Splits the compile steps of a graph among jobs. Pure.

The same graph and the same figures always give the same shares. A split that differs between jobs
costs time only: the last job compiles what it does not find.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from stoker.govern.server.graph import compiled_role
from stoker.knowledge.steps import prior_of, usual_seconds
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, Timing
from stoker.model.value import Value, whole_number
from stoker.source.ninja import Edge

# Memory that usual runners have for each CPU: a step with more keeps others from running.
_MEMORY_PER_CPU = 4 * 1024**3
_MOST_DIGITS = 4
_UNKNOWN_PEAK = 1024**3  # bytes; of a step whose last duration is known, but not its memory


class Shard(Value, frozen=True, kw_only=True):
    """One of several jobs that compile a build together; ``number`` counts from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


class Piece(Value, frozen=True, kw_only=True):
    """A compile step that is to be assigned: what it makes, and what it costs a runner."""

    output: str
    cost: float


def parse_shard(text: str) -> Shard:
    """Return the shard that ``3/8`` names."""
    number, of = (whole_number(word, _MOST_DIGITS) for word in text.partition("/")[::2])
    if not number or not of or number > of:
        raise UsageError(f"--shard {text}: not a shard", hints=["--shard 3/8 is the third of 8"])
    return Shard(number=number, of=of)


def compile_pieces(
    edges: Sequence[Edge], wanted: Sequence[int], known: Mapping[str, Timing]
) -> tuple[Piece, ...]:
    """Return the compile steps among the wanted edges. ``known`` is what steps took, by output; a
    step that never ran counts with what such sources usually take.
    """
    return tuple(
        Piece(output=edges[index].outputs[0], cost=_cost(edges[index], known))
        for index in sorted(wanted)
        if compiled_role(edges[index]) is not Role.OTHER
    )


def _cost(edge: Edge, known: Mapping[str, Timing]) -> float:
    """Return the CPU seconds of a runner that a step takes, by its time and its memory."""
    if timing := known.get(edge.outputs[0]):
        return cost(timing.seconds, timing.peak or _UNKNOWN_PEAK)
    role, source = compiled_role(edge), edge.needs[0]
    return cost(usual_seconds(role, source), prior_of(Step(key="", role=role, source=source)).peak)


def cost(seconds: float, peak: float) -> float:
    return seconds * max(1.0, peak / _MEMORY_PER_CPU)


def split_pieces(pieces: Sequence[Piece], shards: int) -> tuple[tuple[str, ...], ...]:
    """Return the outputs of each shard. The most expensive step goes to the shard with the least
    work so far, then the next one: at most a third above the optimum (Graham 1969).
    """
    loads = [(0.0, number) for number in range(shards)]
    heapify(loads)
    shares: list[list[str]] = [[] for _ in range(shards)]
    for piece in sorted(pieces, key=lambda piece: (-piece.cost, piece.output)):
        load, number = loads[0]
        shares[number].append(piece.output)
        heapreplace(loads, (load + piece.cost, number))
    return tuple(map(tuple, shares))
