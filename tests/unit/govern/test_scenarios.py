"""Simulated builds keep their stored results, so that every change of the governor is noticed.

One draw of a row is chaotic: it does not say whether a change is good. `python tests/scenarios.py`
judges by all draws, and `--store "why"` keeps a change that it accepts.
"""

import pytest

import scenarios

_SAME = 0.01
# One of eight tables shows what a mode changes, and its duration in it is part of the history of
# the third run, in which steps begin in another order.
_OF_GC_OFF = 1.015
_STORED = scenarios.stored()
_WHOLE = [name for name in scenarios.ROWS if name.startswith("whole")]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in _WHOLE else ())
        for name in scenarios.ROWS
    ],
)
def test_a_build_takes_as_long_as_stored(name: str) -> None:
    now, stored = scenarios.drawn(name, 0), _STORED[name].draws[0]
    why = "python tests/scenarios.py says whether that is better or worse"
    assert now.seconds == pytest.approx(stored.seconds, rel=_SAME), why
    assert (now.preemptions, now.oom_kills) == (stored.preemptions, stored.oom_kills), why


@pytest.mark.parametrize(
    "name", [name for name in scenarios.ROWS if f"{name}-gc-off" in scenarios.ROWS]
)
def test_modes_of_gcc_never_cost_more_than_they_bring(name: str) -> None:
    auto, off = (
        sum(each.seconds for each in _STORED[row].draws) for row in (name, f"{name}-gc-off")
    )
    assert auto <= _OF_GC_OFF * off


@pytest.mark.parametrize(("row", "most"), [("first", 1.12), ("second", 1.05)])
def test_large_steps_overlap_under_a_tight_limit(row: str, most: float) -> None:
    result = scenarios.ROWS[f"tables-2cpu-{row}"].run(0)
    assert result.wall_s <= most * result.bounds.lower_s


def test_every_row_is_stored() -> None:
    rows = scenarios.ROWS
    assert {name: len(kept.draws) for name, kept in _STORED.items()} == {
        name: row.draws for name, row in rows.items()
    }
