"""Stretches of a file against plain sets of its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.wheel.slim.cutting import Shift
from stoker.wheel.slim.spans import ByteSpan, Spans, merged_spans, spans_without

spans = st.lists(st.builds(ByteSpan, st.integers(0, 60), st.integers(0, 60)), max_size=8)


def members(found: list[ByteSpan]) -> set[int]:
    return {byte for span in found for byte in range(span.start, span.end)}


@given(spans)
def test_merged_spans_hold_the_same_bytes_in_order_and_apart(given_spans: list[ByteSpan]) -> None:
    found = list(merged_spans(given_spans))
    assert members(found) == members(given_spans)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(set(edges))


@given(st.integers(0, 60), st.integers(0, 60), spans)
def test_what_is_left_of_a_span(start: int, size: int, holes: list[ByteSpan]) -> None:
    whole = ByteSpan(start, start + size)
    found = list(spans_without(whole, holes))
    assert members(found) == members([whole]) - members(holes)
    assert all(span.size > 0 for span in found)


@given(st.integers(0, 60), st.integers(1, 60), spans)
def test_which_spans_overlap(start: int, size: int, others: list[ByteSpan]) -> None:
    span = ByteSpan(start, start + size)
    assert Spans(others).overlap(span) == bool(members([span]) & members(others))


@given(spans)
def test_offsets_shift_as_bytes_do(given_spans: list[ByteSpan]) -> None:
    cuts = list(merged_spans(given_spans))
    shift = Shift(cuts)
    left = [byte for byte in range(70) if byte not in members(cuts)]
    assert [shift(byte) for byte in left] == list(range(len(left)))
    for cut in cuts:
        assert {shift(byte) for byte in range(cut.start, cut.end)} == {shift(cut.end)}
