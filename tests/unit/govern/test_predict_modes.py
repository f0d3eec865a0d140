"""Prediction: what modes of gcc change, as measured and as shipped."""

import pytest
from msgspec.structs import replace

from governed_steps import GB, row, step
from stoker.govern.policy.predict import Predictor
from stoker.knowledge.compiler_modes import shipped_effects
from stoker.model.govern import Basis, CompileMode, StepRecord


def measured(source: str, peak: float, seconds: float, mode: CompileMode) -> StepRecord:
    return replace(row(step(source), round(peak * GB), seconds=seconds), mode=mode)


@pytest.mark.parametrize("peak", [0.1, 0.5, 2.0])
def test_a_lean_peak_is_not_taken_for_a_default_one(peak: float) -> None:
    _, lean, _ = shipped_effects(peak * GB)
    row = measured("a.cc", peak * lean.memory, 10.0, CompileMode.LEAN)
    known = Predictor([row]).predict(step("a.cc"))
    assert known.peak == pytest.approx(peak * GB, rel=0.01)
    assert known.seconds == pytest.approx(10 / lean.seconds)
    assert known.basis is Basis.EXACT


def test_large_steps_have_more_garbage() -> None:
    rows = [measured(f"{peak}.cc", peak, 10.0, CompileMode.DEFAULT) for peak in (0.5, 2.0)]
    effects = Predictor(rows).effects
    small, large = (effects(step(f"{peak}.cc"))[1] for peak in (0.5, 2.0))
    assert large.memory < small.memory


def test_what_was_measured_by_default_counts_more_than_what_was_converted() -> None:
    rows = [
        measured("a.cc", 2.0, 10.0, CompileMode.DEFAULT),
        measured("a.cc", 1.9, 11.0, CompileMode.LEAN),
    ]
    for order in (rows, rows[::-1]):
        assert Predictor(order).predict(step("a.cc")).peak == pytest.approx(2 * GB, rel=0.01)


def test_factors_of_a_step_are_learned_once_both_modes_were_measured() -> None:
    predictor = Predictor([measured("a.cc", 2.0, 10.0, CompileMode.DEFAULT)])
    shipped = shipped_effects(2 * GB)
    assert predictor.effects(step("a.cc")) == tuple(replace(e, assumed=True) for e in shipped)
    predictor.learn(measured("a.cc", 1.8, 11.0, CompileMode.LEAN))
    predictor.learn(measured("a.cc", 2.2, 9.0, CompileMode.FAST))
    fast, lean, low = predictor.effects(step("a.cc"))
    assert (fast.memory, lean.memory) == pytest.approx((1.1, 0.9), rel=0.01)
    assert (fast.seconds, lean.seconds) == (shipped[0].seconds, shipped[1].seconds)
    # The lean mode saved 37 % of what it is shipped to save; so does the low one.
    assert low.memory == pytest.approx(1 - 0.1 / 0.27 * (1 - shipped[2].memory), rel=0.01)
    other_flags = replace(step("a.cc"), key="other flags")
    assert predictor.effects(other_flags) == (fast, lean, low)


def test_modes_that_saved_nothing_of_one_source_are_not_expected_to_save_of_another() -> None:
    """Large tables have no garbage: what is shipped was measured of PyTorch's sources."""
    first, second = (replace(step(name), directory="build") for name in ("a.cc", "b.cc"))
    rows = [row(each, 2 * GB) for each in (first, second)]
    predictor = Predictor([*rows, replace(rows[0], mode=CompileMode.LEAN)])
    _, lean, low = predictor.effects(second)
    assert (lean.memory, low.memory, lean.assumed, low.assumed) == (1.0, 1.0, False, False)
