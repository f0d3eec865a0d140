"""Errors have a place, hints and an exit status."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.model.errors import (
    UsageError,
    nearest,
    unknown,
)


def test_the_place_precedes_the_message() -> None:
    error = UsageError("unknown key 'x'", hints=iter(["one", "two"]), where="stoker.toml:3")
    assert str(error) == "stoker.toml:3: unknown key 'x'"
    assert error.hints == ("one", "two")


def test_the_nearest_names_come_best_first_and_keep_their_case() -> None:
    known = ["USE_CUDA", "USE_CUDNN", "USE_MKLDNN", "OpenBLAS"]
    assert nearest("use_cuddn", known)[0] == "USE_CUDNN"
    assert nearest("openblas", known) == ("OpenBLAS",)
    assert nearest("qqqq", known) == ()
    assert len(nearest("USE_CUDN", known, count=1)) == 1


def test_an_unknown_name_comes_with_similar_names_and_a_hint() -> None:
    error = unknown("option", "USE_CUDDN", ["USE_CUDNN"], where="command line", hint="look there")
    assert str(error) == "command line: unknown option 'USE_CUDDN'"
    assert error.hints == ("did you mean USE_CUDNN?", "look there")
    assert unknown("option", "zzz", map(str, range(31))).hints == ()


def test_an_unknown_name_lists_the_known_ones_if_they_are_few() -> None:
    assert unknown("policy", "zzz", ["one", "two"]).hints == ("choose from: one, two",)
    assert unknown("policy", "ones", ["one", "two"]).hints[-1] == "choose from: one, two"
    assert unknown("option", "on", ["one"]).hints == ("did you mean one?",)


@given(st.text(), st.lists(st.text()))
def test_nearest_names_are_always_known_names(word: str, known: list[str]) -> None:
    assert set(nearest(word, known)) <= set(known)
