"""Every entry of knowledge/failures and knowledge/changes is complete, matches quickly and
recognises its own examples.
"""

from io import BytesIO

import pytest
from failure_index import examples, index_text

from stoker.diagnose.sieve import read_log
from stoker.diagnose.verdict import diagnose
from stoker.knowledge import generated_content
from stoker.knowledge.failures import failures, stated
from stoker.knowledge.suspects import suspected_causes


def test_the_index_is_up_to_date() -> None:
    """If not: `pip install --no-deps --editable .` makes it again. That checks each entry: whether
    it is complete, and whether its patterns end soon.
    """
    assert generated_content("failures.json").decode() == index_text()


def test_every_cause_has_an_example() -> None:
    assert {name for name, _ in examples()} == {*failures()}


@pytest.mark.parametrize(("name", "log"), list(examples()))
def test_an_example_is_diagnosed_as_its_own_cause_first(name: str, log: str) -> None:
    diagnosis = diagnose(read_log(BytesIO(log.encode())))
    found = diagnosis.findings
    assert found, "no sign matches"
    assert found[0].cause == name, [(one.cause, one.confidence) for one in found]


def test_a_stronger_sign_says_more() -> None:
    said = [stated("argument-list-too-long", hundredth / 100) for hundredth in range(101)]
    assert said == sorted(said)
    assert 0 < said[0] < 0.6 < 0.9 < said[-1] < 1


def test_a_cause_that_was_often_wrong_says_less() -> None:
    assert stated("gcc-strict-c", 0.9) < stated("gcc-c23-default", 0.9) < 1


def test_what_is_tried_without_a_message_proves_a_known_cause() -> None:
    for row in suspected_causes():
        assert row.cause in failures()
        assert bool(row.text) == bool(row.commands)


def test_no_text_shows_a_mark_of_its_file() -> None:
    """A backslash at the end of a line joins lines in one kind of TOML string only."""
    for cause in failures().values():
        assert not any(mark in cause.why for mark in ("\\ ", "\\\n")), cause.name
