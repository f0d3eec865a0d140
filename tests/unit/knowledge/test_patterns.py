import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failure_files import problem
from stoker.knowledge.failures import any_of, literals


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("(", "does not compile"),
        ("error.*", "write .{0,200}"),
        ("error.+here", "write .{0,200}"),
        (r"(?:\d+\.)+release", "may never end"),
        (r"(?:a*)*error", "may never end"),
        (r"(?:(?:ab?)+c){2,9}", "may never end"),
        ("(?i)error", "flags"),
    ],
)
def test_a_pattern_that_may_not_end_soon_is_refused(pattern: str, part: str) -> None:
    assert part in (problem(pattern) or "")


@pytest.mark.parametrize(
    "pattern", [r"(?:\d+\.){1,3}\d+ release", r"[^']+error", r".{0,200}error", r"(?=error)\w+"]
)
def test_a_pattern_that_ends_soon_is_taken(pattern: str) -> None:
    assert problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("died due to signal 9", {"died due to signal 9"}),
        (r"(?P<tool>cicc|ptxas) died", {" died"}),
        (r"(?:CMake Error: a|CMake Error: b)", {"CMake Error: a", "CMake Error: b"}),
        (r"(?<!no )(?=err)error\b: \(x\)", {"error: (x)"}),
        (r"no{1,2} (?:more )?space\.", {"space."}),
        (r"[]x]abc[^\]]d{0}efg", {"abc"}),
        (r"(?:cannot find|unable to find) -l\w+", {"cannot find", "unable to find"}),
        (r"[Nn]o space left", {"o space left"}),
        (r"(?:optional)?\d+", set()),
        (r"(?:abc)+", {"abc"}),
        (r"^x(?:err)or", {"xerror"}),
        (r"a|bcd", set()),
    ],
)
def test_what_every_match_holds(pattern: str, expected: set[str]) -> None:
    assert literals(pattern) == expected


_PATTERNS = st.recursive(
    st.text(alphabet="abc", min_size=1, max_size=5),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda body: f"(?:{body})?"),
        inner.map(lambda body: f"(?:{body}){{1,2}}"),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.data())
def test_no_match_is_without_one_of_its_literals(pattern: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    found = literals(pattern)
    assert not found or any(literal in text for literal in found)


@given(st.sets(st.text(alphabet="abc.", min_size=1, max_size=4), min_size=1), st.text("abc.d"))
def test_the_longest_word_at_a_place_is_found(words: set[str], text: str) -> None:
    found = re.compile(any_of(words)).match(text)
    expected = max((word for word in words if text.startswith(word)), key=len, default=None)
    assert (found[0] if found else None) == expected
