"""The critical path of random graphs, compared with all chains of steps."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from stoker.govern.policy.critical_path import earliest_ends, in_order, longest_chain, paths_left

# Each step has its seconds, and needs some of the steps before it.
_STEPS = st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 7))), max_size=8)


def _chains(needs: dict[int, set[int]], last: int) -> Iterator[tuple[int, ...]]:
    yield (last,)
    for need in needs[last]:
        yield from ((*chain, last) for chain in _chains(needs, need))


@given(_STEPS)
def test_no_chain_is_longer_than_the_critical_path(steps: list[tuple[int, set[int]]]) -> None:
    needs = {index: {n for n in below if n < index} for index, (_, below) in enumerate(steps)}

    def seconds(index: int) -> float:
        return steps[index][0]

    chains = [chain for last in needs for chain in _chains(needs, last)]
    ends, left = earliest_ends(needs, seconds), paths_left(needs, seconds)
    for index in needs:
        assert ends[index] == max(sum(map(seconds, c)) for c in chains if c[-1] == index)
        assert left[index] == max(sum(map(seconds, c)) for c in chains if c[0] == index)
    path = longest_chain(needs, ends)
    assert not steps or path in chains
    assert sum(map(seconds, path)) == max(left.values(), default=0.0)


def test_steps_in_a_circle_count_as_none() -> None:
    circle = {"a": ["b"], "b": ["a"], "c": []}
    assert in_order(circle) == []
    assert longest_chain(circle, earliest_ends(circle, lambda _: 1.0)) == ()
