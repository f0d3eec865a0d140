"""Nothing that a terminal obeys, or that changes the order of a text, is shown as it is."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.html import html_text, json_in_page
from stoker.model.visible import visible

KEPT = {"\t", "\n", "\u200c", "\u200d"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x9b2Jb", r"a\u009b2Jb"),
        ("gpj\u202eexe", r"gpj\u202eexe"),
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("a\rb", r"a\u000db"),
        ("\U000e0041", r"\udb40\udc41"),
        ("t\u00e9xt \u4e2d \U0001f468\u200d\U0001f469\n\t", None),
    ],
)
def test_what_is_shown(text: str, shown: str | None) -> None:
    assert visible(text) == (text if shown is None else shown)


@given(st.text())
def test_no_control_or_direction_is_left(text: str) -> None:
    for one in visible(text):
        left = unicodedata.category(one) in ("Cc", "Zl", "Zp")
        left |= unicodedata.bidirectional(one) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")
        left |= unicodedata.bidirectional(one) in ("FSI", "PDI")
        assert one in KEPT or not left


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_means_the_same(text: str) -> None:
    document = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible(document)) == text


@given(st.text(st.characters(exclude_categories=["Cs"], min_codepoint=0x20)))
def test_a_page_shows_escapes(text: str) -> None:
    """JSON has no raw controls below U+0020, and a page does not obey any of them."""
    document = json_in_page(json.dumps(text, ensure_ascii=False))
    assert json.loads(document) == visible(text)
    assert not set(document) & set("<>&")


def test_html_is_escaped_too() -> None:
    assert html_text("<b>\u202e") == r"&lt;b&gt;\u202e"
