"""Decisions of `stoker tune`: the sample, the ways, and what the figures say."""

import pytest

from stoker.accelerate.advice import (
    advise,
    best_linker,
    change,
    choose_sample,
    order_of,
    results_of,
    trial_command,
    trials_of,
)
from stoker.model.govern import Collector, CompileMode, Role
from stoker.model.tuning import (
    BASELINE,
    Measurement,
    RelativeChange,
    Sampled,
    Topic,
    TrialResult,
    TuningTrial,
)
from stoker.settings.declared import OPTIONS

EVERYTHING = frozenset({"clang++", "ccache", "mold", "lld", "gold"})
CERTAIN = RelativeChange(ratio=0.5, least=0.48, most=0.52, noise=0.02, rounds=3)
NOISY = RelativeChange(ratio=0.98, least=0.9, most=1.1, noise=0.05, rounds=3)


def compiled(name: str, seconds: float | None = 1.0, *words: str) -> Sampled:
    return Sampled(
        title=f"{name}.cc",
        role=Role.CXX,
        directory="/b",
        command=("g++", "-O2", *words, "-c", f"{name}.cc", "-o", f"{name}.o"),
        output=f"{name}.o",
        wall_s=seconds,
    )


def linked(name: str, seconds: float = 1.0) -> Sampled:
    command = ("g++", "-shared", "-o", f"{name}.so", "a.o")
    return Sampled(
        title=f"{name}.so",
        role=Role.LINK,
        directory="/b",
        command=command,
        output=f"{name}.so",
        wall_s=seconds,
        link=name,
    )


def names(steps: tuple[Sampled, ...]) -> list[str]:
    return [step.title for step in steps]


def test_the_sample_has_the_heaviest_and_random_steps_and_the_heaviest_links() -> None:
    steps = [compiled(f"s{n}", float(n)) for n in range(20)] + [linked("a", 1), linked("b", 9)]
    steps.append(linked("c", 5))
    chosen = choose_sample(steps, count=6, seed=1, seconds=10_000)
    assert names(chosen)[:3] == ["s19.cc", "s18.cc", "s17.cc"]
    assert len(set(names(chosen)[3:6]) - {"s19.cc", "s18.cc", "s17.cc"}) == 3
    assert names(chosen)[6:] == ["b.so", "c.so"]
    assert choose_sample(steps, count=6, seed=1, seconds=10_000) == chosen
    others = {tuple(names(choose_sample(steps, count=6, seed=n, seconds=10_000))) for n in range(9)}
    assert len(others) > 1


def test_steps_that_would_take_too_long_are_left_out() -> None:
    steps = [compiled("huge", 900.0), compiled("large", 400.0), compiled("small", 1.0)]
    chosen = choose_sample(steps, count=4, seed=0, seconds=100)
    assert names(chosen) == ["small.cc"]
    assert names(choose_sample(steps[:2], count=4, seed=0, seconds=100)) == ["large.cc"]


def test_the_ways_are_those_that_suit_the_step_and_the_machine() -> None:
    plain = trials_of(compiled("a"), Collector.FREE, EVERYTHING)
    assert [trial.name for trial in plain] == [
        "as it is", "fast", "lean", "low", "clang++", "ccache, empty", "ccache, hit",
    ]  # fmt: skip
    debug = trials_of(compiled("a", 1.0, "-g"), Collector.NONE, frozenset())
    assert [trial.name for trial in debug] == ["as it is", "-g0", "-g1", "-gsplit-dwarf", "-gz"]
    links = trials_of(linked("a"), Collector.NONE, frozenset({"mold", "gold"}))
    assert [trial.name for trial in links] == ["as it is", "mold", "gold"]


def test_the_command_of_a_way() -> None:
    step = compiled("a", 1.0, "-g", "-ggdb3")
    by_name = {t.name: t for t in trials_of(step, Collector.RECORDED, EVERYTHING)}
    rest = ["-O2", "-c", "a.cc", "-o", "a.o"]
    assert list(trial_command(by_name["-g0"], step.command)) == ["g++", *rest, "-g0"]
    lean = trial_command(by_name["lean"], step.command)
    assert lean[:3] == ("g++", "--param=ggc-min-expand=30", "--param=ggc-min-heapsize=262144")
    assert trial_command(by_name["clang++"], step.command)[0] == "clang++"
    assert trial_command(by_name["ccache, hit"], step.command)[:2] == ("ccache", "g++")
    assert trial_command(BASELINE, step.command) == step.command
    link = trial_command(
        TuningTrial(name="mold", topic=Topic.LINKER, mode=CompileMode.MOLD), linked("a").command
    )
    assert link[:2] == ("g++", "-fuse-ld=mold")


def test_topics_take_turns_and_a_miss_comes_before_its_hit() -> None:
    ways = trials_of(compiled("a"), Collector.FREE, EVERYTHING)
    assert order_of(ways, 0)[0] is BASELINE  # links are compared with it
    firsts = {order_of(ways, number)[0].topic for number in range(4)}
    assert firsts == {None, Topic.MEMORY, Topic.COMPILER, Topic.CACHE}
    for number in range(4):
        order = [trial.name for trial in order_of(ways, number)]
        assert sorted(order) == sorted(trial.name for trial in ways)
        assert order.index("ccache, empty") + 1 == order.index("ccache, hit")


def rounds(*amounts: float) -> list[tuple[int, float]]:
    return list(enumerate(amounts))


@pytest.mark.parametrize(
    ("ours", "theirs", "gain"),
    [
        ((5.0, 5.1, 5.2), (10.0, 10.1, 10.2), True),
        ((9.9, 10.0, 10.1), (10.0, 10.1, 10.2), False),  # smaller than the noise
        ((8.0, 11.0, 8.0), (10.0, 10.0, 10.0), False),  # the rounds disagree
        ((12.0, 12.0), (10.0, 10.0), False),  # a loss
        ((5.0,), (10.0,), False),  # measured once
    ],
)
def test_a_gain_is_more_than_noise_in_every_round(
    ours: tuple[float, ...], theirs: tuple[float, ...], gain: bool
) -> None:
    found = change(rounds(*ours), rounds(*theirs))
    assert found is not None
    assert found.is_gain is gain


def test_incomplete_rounds_do_not_count() -> None:
    ours = [(0, 1.0), (0, 1.0), (1, 1.0)]
    found = change(ours, [(0, 2.0), (0, 2.0), (1, 2.0), (1, 2.0)])
    assert found is not None
    assert (found.ratio, found.rounds) == (0.5, 1)
    assert change([], [(0, 1.0)]) is None
    assert change([(0, 0.0)], [(0, 1.0)]) is None  # a peak that was not measured


def test_compiles_count_together_and_links_one_by_one() -> None:
    steps = (compiled("a"), compiled("b"), linked("x"), linked("y"))
    lean = TuningTrial(name="lean", topic=Topic.MEMORY, mode=CompileMode.LEAN)
    mold = TuningTrial(name="mold", topic=Topic.LINKER, mode=CompileMode.MOLD)

    def measured(step: int, trial: TuningTrial, number: int, digest: str) -> Measurement:
        wall = 0.5 if trial is mold else 1.0
        return Measurement(
            step=step, trial=trial.name, round=number, wall_s=wall, cpu_s=2.0, digest=digest
        )

    found = [
        measured(step, trial, number, digest)
        for number in range(2)
        for step, trial, digest in [
            (0, BASELINE, "a"), (0, lean, "a"), (1, BASELINE, "b"), (1, lean, "other"),
            (2, BASELINE, "x"), (2, mold, "m"), (3, BASELINE, "y"), (3, mold, "m"),
        ]
    ]  # fmt: skip
    found.append(Measurement(step=3, trial="mold", round=0, problem="unknown option"))
    differences = {(2, "mold"): ()}
    memory, first, second = results_of(steps, (BASELINE, lean, mold), found, differences)
    assert (memory.steps, memory.same, memory.is_same) == (("a.cc", "b.cc"), 1, False)
    assert (first.steps, first.is_same, best_linker([first])) == (("x.so",), True, first)
    assert (second.steps, second.problems) == ((), ("y.so: unknown option",))
    assert best_linker([second]) is None


def result(
    topic: Topic,
    trial: str,
    same: int = 1,
    *,
    time: RelativeChange | None = None,
    peak: RelativeChange | None = None,
) -> TrialResult:
    return TrialResult(topic=topic, trial=trial, steps=("a",), same=same, time=time, peak=peak)


def test_only_settings_that_exist_and_that_the_figures_support_are_advised() -> None:
    hit = result(Topic.CACHE, "ccache, hit", time=CERTAIN)
    miss = result(Topic.CACHE, "ccache, empty", time=NOISY)
    lean = result(Topic.MEMORY, "lean", peak=CERTAIN, time=NOISY)
    mold = result(Topic.LINKER, "mold", time=CERTAIN)
    threads = result(Topic.THREADS, "--threads=0", time=CERTAIN)
    debug = result(Topic.DEBUG, "-g0", time=CERTAIN)
    settings = [advice.setting for advice in advise([hit, miss, lean, mold, threads, debug])]
    assert settings == [
        'gc = "auto"', 'linker = "auto"',
        'nvcc_threads = "auto"', 'cache = "ccache"',
    ]  # fmt: skip
    recorded = result(Topic.MEMORY, "lean", same=0, peak=CERTAIN)
    settings += [advice.setting for advice in advise([recorded])]
    assert settings[-1] == 'gc = "always"'
    for name, value in (setting.split(" = ") for setting in settings):
        assert value.strip('"') in OPTIONS[name].choices


@pytest.mark.parametrize(
    "found",
    [
        result(Topic.LINKER, "mold", time=NOISY),
        result(Topic.LINKER, "mold", same=0, time=CERTAIN),
        result(Topic.MEMORY, "low", peak=NOISY),
    ],
)
def test_nothing_is_advised_for_noise_or_for_files_that_differ(found: TrialResult) -> None:
    assert advise([found]) == ()
