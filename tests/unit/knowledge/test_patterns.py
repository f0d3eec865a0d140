import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_patterns import literals, problem


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
        ("died due to signal 9", [{"died due to signal 9"}]),
        (r"(?P<tool>cicc|ptxas) died", [{"cicc died", "ptxas died"}]),
        (r"(?:cannot find|unable to find) -l\w+", [{"cannot find -l", "unable to find -l"}]),
        (r"(?:no \w(?:abc|abcd)|has .xyz)", [{"has ", "no "}, {"abc", "abcd", "xyz"}]),
        (r"错误|[Ff]ehler", [{"错误", "ehler"}]),
        (r"[Nn]o space left", [{"o space left"}]),
        (r"fatal error: .{0,3}nccl\w*\.h", [{"fatal error: "}, {"nccl"}]),
        (r"abc\dabc", [{"abc"}]),
        (r"(?:optional)?\d+", []),
        (r"(?:abc)+", [{"abc"}]),
        (r"^x(?:err)or", [{"xerror"}]),
        (r"a|bcd", []),
    ],
)
def test_what_every_match_holds(pattern: str, expected: list[set[str]]) -> None:
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
    assert all(any(literal in text for literal in words) for words in literals(pattern))
