"""The page of `stoker tune`."""

import re

import pytest

from stoker.accelerate.tuning_page import page
from stoker.model.govern import Role
from stoker.model.tuning import Advice, RelativeChange, Sampled, Topic, TrialResult, Tuning
from stoker.outside.terminal import show


def changed(ratio: float, noise: float = 0.01, rounds: int = 3) -> RelativeChange:
    return RelativeChange(
        ratio=ratio, least=ratio - 0.01, most=ratio + 0.01, noise=noise, rounds=rounds
    )


RESULTS = (
    TrialResult(
        topic=Topic.MEMORY, trial="lean", steps=("a.cc",), same=1,
        time=changed(1.06), peak=changed(0.73), size=RelativeChange(
            ratio=1.0, least=1.0, most=1.0, noise=0.0, rounds=3
        ),
    ),
    TrialResult(
        topic=Topic.LINKER, trial="mold", steps=("a.so",), same=0, time=changed(0.97, 0.2),
        differences=("a.so: does not export f",),
    ),
    TrialResult(topic=Topic.LINKER, trial="lld", steps=(), problems=("a.so: unknown option",)),
    TrialResult(topic=Topic.DEBUG, trial="-g0", steps=("a.cc",), time=changed(0.7, rounds=1)),
)  # fmt: skip


def shown(capsys: pytest.CaptureFixture[str], *advice: Advice) -> str:
    step = Sampled(title="a.cc", role=Role.CXX, directory="/b", command=("g++",), output="a.o")
    tuning = Tuning(
        folder="/b",
        seed=0,
        rounds=3,
        cpus=2,
        sample=(step, step),
        baseline_s=12.0,
        results=RESULTS,
        advice=advice,
        notes=("the budget ended",),
    )
    show(page(tuning))
    return capsys.readouterr().out


def test_gains_noise_and_failures_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, Advice(setting='linker = "auto"', why="it is faster"))
    lines = {line.split("  ")[1]: line for line in text.splitlines() if line.startswith("  ")}
    assert "+6 %  +5 % to +7 %, noise 1 %  -27 %" in re.sub("   +", "  ", lines["lean"])
    assert "1 of 1 objects identical" in lines["lean"]
    for name, parts in {
        "a.so: mold": ("no gain", "differs"),
        "lld": ("failed",),
        "-g0": ("-30 % (once)",),
    }.items():
        assert all(part in lines[name] for part in parts)
    for fact in ("2 compiles, 3 rounds", "does not export f", "unknown option", "it is faster"):
        assert fact in text
    assert "the budget ended" in text


def test_without_a_gain_nothing_is_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    assert "No setting of stoker makes this build faster" in shown(capsys)
