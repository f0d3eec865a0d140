from hypothesis import given
from hypothesis import strategies as st

from stoker.diagnose.lines import Texts
from stoker.diagnose.messages import paragraphs
from stoker.diagnose.sieve import Line

LOG = """
-- before
CMake Error at cmake/ProtoBuf.cmake:55 (add_subdirectory):
  add_subdirectory given source
  "/home/someone/pytorch/cmake/../third_party/protobuf/cmake" which is not an
  existing directory.

  Another paragraph of one line.

  And a third
  of two.
Call Stack (most recent call first):
  CMakeLists.txt:1 (include)
  CMakeLists.txt:2 (include)
-- after
"""
MESSAGE = LOG.split("\n")


def found(texts: list[str]) -> list[range]:
    lines = [Line(number=number, text=text) for number, text in enumerate(texts, 1)]
    return list(paragraphs(lines, Texts(texts)))


def test_a_message_has_its_paragraphs() -> None:
    assert found(MESSAGE) == [range(3, 6), range(9, 11)]


def test_an_indented_one_has_the_same() -> None:
    assert found([f"      {line}" if line else "" for line in MESSAGE]) == found(MESSAGE)


def test_it_may_be_the_end_of_the_log() -> None:
    assert found(MESSAGE[:5]) == [range(3, 5)]


@given(st.lists(st.sampled_from(["CMake Error at x", "  a", "", "b", "    c"]), max_size=60))
def test_paragraphs_are_whole_lines_in_order(texts: list[str]) -> None:
    for paragraph in found(texts):
        assert len(paragraph) > 1
        assert all(texts[index].startswith("  ") for index in paragraph)
