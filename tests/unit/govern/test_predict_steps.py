"""Prediction: from the same command down to shipped figures, and corrections after errors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import governed_steps as make
from governed_steps import GB, killed, row, step
from stoker.govern.policy.predict import Knowledge, Predictor
from stoker.govern.policy.profile import Profile, climb
from stoker.knowledge.steps import prior_of, usual_seconds
from stoker.model.govern import PARTS, Basis, CompileMode, Pace, Role, StepRecord


def test_the_best_basis_is_taken() -> None:
    predictor = Predictor()
    other = step("src/core/deep/b.cpp")
    assert predictor.predict(other).basis is Basis.PRIOR
    for name in "cdef":
        predictor.learn(row(step(f"src/core/{name}.cpp"), GB))
    assert predictor.predict(other).basis is Basis.FOLDER
    predictor.learn(row(step("src/core/deep/b.cpp", key="other flags"), 3 * GB))
    assert predictor.predict(other).basis is Basis.SOURCE
    predictor.learn(row(other, 2 * GB))
    assert predictor.predict(other).basis is Basis.EXACT
    assert predictor.predict(other).peak == pytest.approx(2 * GB)


def test_the_nearest_folder_with_enough_rows_counts() -> None:
    rows = [row(step(f"src/heavy/{n}.cpp"), 2 * GB) for n in range(6)]
    rows += [row(step(f"src/light/{n}.cpp"), GB / 5) for n in range(30)]
    predictor = Predictor(rows)
    assert predictor.predict(step("src/heavy/new.cpp")).peak == pytest.approx(2 * GB)
    assert predictor.predict(step("src/light/new.cpp")).peak == pytest.approx(GB / 5)
    assert predictor.predict(step("src/elsewhere/new.cpp")).peak == pytest.approx(GB / 5)


def test_roles_do_not_mix() -> None:
    predictor = Predictor([row(step(f"src/{n}.cpp"), GB) for n in range(10)])
    assert predictor.predict(step("src/x.c", role=Role.C)).basis is Basis.PRIOR


def test_a_source_is_not_its_other_language() -> None:
    predictor = Predictor([row(step("src/x.cu", key="as C++"), GB)])
    cuda = predictor.predict(step("src/x.cu", key="as CUDA", role=Role.CUDA))
    assert cuda.basis is Basis.PRIOR


def test_duration_and_course_are_remembered() -> None:
    hill = make.profile(20, 100, 40)
    known = Predictor([row(step(), GB, seconds=40, share=0.7, profile=hill)]).predict(step())
    assert known.seconds == 40
    assert known.profile == hill


def test_without_a_duration_or_a_course_there_is_none() -> None:
    assert Predictor([row(step(), GB)]).predict(step()).profile == ()
    assert Predictor().predict(step()).profile == ()
    assert Predictor().predict(step()).seconds is None


def test_with_a_mean_alone_a_climb_is_predicted() -> None:
    assert Predictor([row(step(), GB, share=0.7)]).predict(step()).profile == climb(0.7)


def test_the_most_of_the_latest_four_counts() -> None:
    predictor = Predictor([row(step(), GB, profile=make.profile(90, 100, 90, 90))])
    for percent in (20, 30, 10):
        predictor.learn(row(step(), GB, profile=make.profile(percent, 5, 5, 100)))
    assert predictor.predict(step()).profile == make.profile(90, 100, 90, 100)
    predictor.learn(row(step(), GB, profile=make.profile(10, 40, 5, 100)))
    assert predictor.predict(step()).profile == make.profile(30, 40, 5, 100)


def test_what_a_command_needed_long_ago_does_not_count() -> None:
    predictor = Predictor([row(step(), 4 * GB) for _ in range(100)])
    for _ in range(64):
        predictor.learn(row(step(), GB))
    assert predictor.predict(step()).peak == pytest.approx(GB)


def test_rows_without_a_course_do_not_push_others_out() -> None:
    predictor = Predictor([row(step(), GB, profile=make.profile(20, 100))])
    for _ in range(10):
        predictor.learn(row(step(), GB))
    assert predictor.predict(step()).profile == make.profile(20, 100)


def test_only_courses_with_as_many_rounds_count() -> None:
    """nvcc climbs once for each round: two are not the stretched course of one."""
    targets = ("80", "90")
    one = step("k.cu", key="1", role=Role.CUDA, archs=targets, threads=2)
    two = step("k.cu", key="2", role=Role.CUDA, archs=targets, threads=1)
    predictor = Predictor([row(one, 2 * GB, profile=make.profile(20, 100))])
    assert predictor.predict(one).profile == make.profile(20, 100)
    assert (predictor.predict(two).basis, predictor.predict(two).profile) == (Basis.SOURCE, ())
    predictor.learn(row(two, GB, profile=make.profile(20, 100, 20, 100)))
    assert predictor.predict(two).profile == make.profile(20, 100, 20, 100)
    assert predictor.predict(two).waves == 2


def test_a_folder_has_a_course_too() -> None:
    rows = [row(step(f"src/{n}.cpp"), GB, profile=make.profile(20, 100)) for n in range(6)]
    known = Predictor(rows).predict(step("src/new.cpp"))
    assert (known.basis, known.profile) == (Basis.FOLDER, make.profile(20, 100))


def test_a_step_that_was_killed_takes_at_least_what_it_took_until_then() -> None:
    heavy = replace(step("src/heavy.cpp"), directory="build", output="heavy.o")
    predictor = Predictor([killed(heavy, 5 * GB, 190.0)])
    found = predictor.predict(heavy)
    assert (found.seconds, found.at_least, found.basis) == (190.0, True, Basis.PRIOR)
    assert found.peak == 5 * GB
    assert predictor.durations["build"]["heavy.o"] == 190.0
    assert not predictor.predict(step("src/other.cpp")).at_least, "others are not like it"
    predictor.learn(killed(heavy, 1 * GB, 90.0))
    assert predictor.predict(heavy) == found
    predictor.learn(row(heavy, 4 * GB, seconds=150.0))
    found = predictor.predict(heavy)
    assert (found.seconds, found.peak, found.at_least) == (150.0, 4 * GB, False)
    assert predictor.durations["build"]["heavy.o"] == 150.0


def test_a_step_that_was_killed_early_is_predicted_as_before() -> None:
    brief = step("src/brief.cpp")
    usual = usual_seconds(Role.CXX, brief.source)
    found = Predictor([killed(brief, 1000, usual / 2)]).predict(brief)
    assert found == Predictor().predict(brief)
    known = Predictor([row(brief, GB, seconds=20.0), killed(brief, GB / 2, 5.0)]).predict(brief)
    assert (known.seconds, known.peak, known.at_least) == (20.0, GB, False)


def test_a_killed_step_says_nothing_about_its_folder_or_the_pace() -> None:
    rows = [killed(step(f"src/{n}.cpp"), GB, 30.0) for n in range(9)]
    assert Predictor(rows).predict(step("src/new.cpp")).basis is Basis.PRIOR
    predictor = Predictor([row(step(), GB, seconds=10.0)])
    before = predictor.pace
    predictor.learn(killed(step(), GB, 40.0))
    assert predictor.pace == before


def made_in(folder: str, output: str, seconds: float) -> StepRecord:
    made = make.record(output, seconds=seconds)
    return replace(made, step=replace(made.step, directory=folder))


def test_the_latest_duration_of_each_output_of_a_folder_is_known() -> None:
    predictor = Predictor([made_in("/x/build", "a.o", 10), made_in("/y/build", "a.o", 3)])
    durations = predictor.durations
    assert durations == {"/x/build": {"a.o": 10}, "/y/build": {"a.o": 3}}
    predictor.learn(made_in("/x/build", "a.o", 7))
    assert durations == {"/x/build": {"a.o": 7}, "/y/build": {"a.o": 3}}


def test_a_row_that_does_not_tell_its_folder_says_nothing_of_any() -> None:
    assert Predictor([make.record("a.o")]).durations == {}


def test_nvcc_needs_memory_for_each_target_it_compiles_at_once() -> None:
    """LMCache's kernel: 2.7 GiB and 153 s with one thread, 5.4 GiB and 91 s with two."""
    archs = tuple("1234567")
    one = step("k.cu", key="1", role=Role.CUDA, archs=archs, threads=1)
    two = step("k.cu", key="2", role=Role.CUDA, archs=archs, threads=2)
    every = step("k.cu", key="0", role=Role.CUDA, archs=archs, threads=0)
    predictor = Predictor([row(one, 2.7 * GB, seconds=153)])
    assert predictor.predict(two).peak == pytest.approx(5.4 * GB)
    assert predictor.predict(two).seconds == pytest.approx(91, rel=0.01)
    assert predictor.predict(every).peak == pytest.approx(7 * 2.7 * GB)


def test_threads_are_predicted_by_shipped_figures_until_they_were_measured() -> None:
    kernel = step("k.cu", role=Role.CUDA, archs=("80", "90", "100", "120"))
    wide = replace(kernel, threads=4)
    predictor = Predictor([row(kernel, 2 * GB, seconds=440)])
    two, four = predictor.faster(kernel)
    assert [(each.threads, each.memory) for each in (two, four)] == [(2, 2.0), (4, 4.0)]
    assert four.seconds == pytest.approx(1.4 / 4.4)
    predictor.learn(replace(row(wide, 6 * GB, seconds=220), mode=CompileMode.THREADS))
    assert predictor.faster(kernel)[0] == two
    measured = predictor.faster(kernel)[1]
    assert [measured.memory, measured.seconds] == pytest.approx([3.0, 0.5])
    assert predictor.predict(kernel).peak == 2 * GB  # the measurement with one thread counts
    assert predictor.predict(kernel).seconds == pytest.approx(440)


def test_only_numbers_of_threads_that_save_a_round_are_considered() -> None:
    kernel = step("k.cu", role=Role.CUDA, archs=tuple("1234567"))
    assert [effect.threads for effect in Predictor().faster(kernel)] == [2, 3, 4, 7]
    assert Predictor().faster(step("k.cu", role=Role.CUDA, archs=("90",))) == ()


def test_threads_without_targets_change_nothing() -> None:
    single = step("k.cu", role=Role.CUDA, archs=("90",), threads=8)
    assert (single.targets_at_once, single.rounds) == (1, 1)


def test_a_link_needs_memory_for_its_inputs() -> None:
    small = step("small.so", role=Role.LINK, input_bytes=10**6)
    large = step("large.so", role=Role.LINK, input_bytes=2 * GB)
    predictor = Predictor()
    assert predictor.predict(large).peak > 3 * GB > 10 * predictor.predict(small).peak
    # What links of this project really need shifts links of every size.
    halves = [step(f"{n}.so", role=Role.LINK, input_bytes=n * 10**8) for n in range(1, 9)]
    predictor = Predictor([row(link, prior_of(link).peak / 2) for link in halves])
    assert predictor.predict(large).peak == pytest.approx(prior_of(large).peak / 2)


def test_a_notorious_source_stays_heavier_than_its_folder() -> None:
    rows = [row(step(f"gen/{n}.cpp"), GB / 4) for n in range(20)]
    predictor = Predictor(rows)
    usual, notorious = step("gen/new.cpp"), step("gen/RegisterCPU.cpp")
    assert predictor.predict(notorious).peak > 1.5 * predictor.predict(usual).peak


def test_predictions_that_were_too_low_rise() -> None:
    predictor = Predictor([row(step(), GB)])
    before = predictor.predict(step("x.cpp", key="key of src/core/a.cpp")).high
    for n in range(10):
        predictor.learn(row(step(f"{n}.cpp"), GB))
        predictor.learn(row(step(f"{n}.cpp"), 3 * GB))
    assert predictor.predict(step()).high > 1.5 * before


def test_predictions_that_were_too_high_fall_but_not_below_the_peak() -> None:
    predictor = Predictor()
    for _ in range(200):
        predictor.learn(row(step(), GB))
    known = predictor.predict(step())
    assert known.high < 1.02 * GB
    assert known.high >= known.peak == pytest.approx(GB)


def test_a_step_that_ran_by_a_lease_was_not_predicted_and_shows_no_error() -> None:
    known = [row(step(f"{n}.cpp"), GB, seconds=10) for n in range(20)]
    predictor, before = Predictor(known), Predictor(known)
    for n in range(20):
        predictor.learn(row(step(f"{n}.cpp"), GB, seconds=90), predicted=False)
    assert predictor.pace == before.pace
    assert predictor.predict(step("0.cpp")).seconds == 50


def test_about_the_wanted_share_stays_below() -> None:
    """Peaks within 10 % of the first, evenly: nine of ten stay below ``high``."""
    predictor = Predictor()
    below = 0
    for n in range(400):
        source = step(f"{n}.cpp")
        predictor.learn(row(source, GB))
        peak = GB * (0.9 + 0.2 * (n * 37 % 100) / 100)
        below += peak <= predictor.predict(source).high
        predictor.learn(row(source, peak))
    assert 0.85 < below / 400 < 0.95


def paced(*seconds: float, folder: str = "") -> Pace:
    """Of a machine on which steps of 10 s take so long today."""
    known = [row(step(f"{n}.cpp"), GB, seconds=10) for n in range(100)]
    predictor = Predictor(known)
    for n, each in enumerate(seconds):
        predictor.learn(row(step(f"{folder}{n}.cpp"), GB, seconds=each))
    return predictor.pace


def test_before_a_step_has_ended_the_pace_is_a_guess() -> None:
    assert paced().usual == 1.0
    assert paced().spread > 1.3


def test_a_few_steps_show_how_fast_the_machine_is_today() -> None:
    assert paced(*[20] * 6).usual == 2.0
    assert paced(*[20] * 15) == Pace(usual=2.0, spread=1.02)
    assert paced(*[5] * 15) == Pace(usual=0.5, spread=1.02)


def test_steps_that_differ_widen_the_spread_but_a_single_one_does_not() -> None:
    assert paced(*[10] * 14, 90) == Pace(usual=1.0, spread=1.02)
    assert paced(*[7, 10, 14] * 5).spread == pytest.approx(10 / 7)


def test_steps_that_were_never_seen_say_nothing_about_the_pace() -> None:
    assert paced(*[20] * 15, folder="new/") == paced()


def test_steps_below_a_second_show_the_pace_too() -> None:
    """A build of light steps knew nothing of the machine until the first heavy one had ended."""
    known = [row(step(f"{n}.cpp"), GB, seconds=0.8) for n in range(20)]
    predictor = Predictor(known)
    for measured in known:
        predictor.learn(measured)
    assert predictor.pace == Pace(usual=1.0, spread=1.02)


def test_a_source_of_which_nothing_is_left_says_nothing_about_its_folder() -> None:
    """It ends before its memory can be measured: others in its folder were predicted with 0."""
    empty = row(step("src/mkldnn/empty.cpp", input_bytes=5000), 0, seconds=0.01)
    source = step("src/mkldnn/shape.cpp", input_bytes=6000)
    known = Predictor([empty])
    assert known.predict(source).basis is Basis.PRIOR
    known.learn(row(step("src/other/large.cpp", input_bytes=7000), GB / 4))
    assert known.predict(source).peak == pytest.approx(GB / 4)


def test_many_brief_steps_say_something_about_the_next_one() -> None:
    brief = [row(step(f"src/{n}.cpp", input_bytes=5000), GB / 50, seconds=0.01) for n in range(4)]
    another = step("src/a.cpp", input_bytes=5000)
    assert Predictor(brief[:3]).predict(another).basis is Basis.PRIOR
    assert Predictor(brief).predict(another).peak == pytest.approx(GB / 50)


def test_a_prediction_follows_what_is_learned_while_the_step_waits() -> None:
    """An estimate is kept until a row arrives that changes it."""
    waiting = step("src/deep/a.cpp", input_bytes=5000)
    known = Predictor()
    before = known.predict(waiting)
    assert known.predict(waiting) == before
    known.learn(row(step("src/other/b.cpp", input_bytes=5000), GB / 5))
    assert known.predict(waiting).peak == pytest.approx(GB / 5)
    known.learn(row(step("src/deep/c.cpp", input_bytes=5000), GB / 10))
    assert known.predict(waiting).peak == pytest.approx(GB / 10)
    known.learn(row(waiting, GB / 2))
    assert known.predict(waiting).basis is Basis.EXACT


def test_a_folder_seen_a_few_times_is_not_trusted_alone() -> None:
    few = Predictor([row(step(f"src/{n}.cpp"), GB / 10) for n in range(4)])
    many = Predictor([row(step(f"src/{n}.cpp"), GB / 10) for n in range(60)])
    new = step("src/new.cpp")
    assert few.predict(new).high > 3 * many.predict(new).high
    assert few.predict(new).high < Predictor().predict(new).high


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a/b/c.cpp", "a/b/d.cpp", "a/e.cpp", "x.cu", "", "/abs/y.c"]),
            st.sampled_from(Role),
            st.integers(0, 100 * GB),
            st.floats(0, 1e5),
            st.integers(0, 4),
            make.profiles(),
        ),
        max_size=40,
    )
)
def test_any_history_gives_usable_predictions(
    rows: list[tuple[str, Role, int, float, int, Profile]],
) -> None:
    predictor = Predictor()
    for source, role, peak, seconds, threads, profile in rows:
        measured = step(source, role=role, archs=("80", "90"), threads=threads)
        predictor.learn(row(measured, peak, seconds=seconds, share=0.5, profile=profile))
        known = predictor.predict(measured)
        assert 0 <= known.peak <= known.high
        assert len(known.profile) in (0, PARTS)
        assert max(known.profile, default=100) == 100
        assert known.seconds is None or known.seconds >= 0


def test_what_was_learned_can_be_stored() -> None:
    known = replace(step("torch/csrc/jit/python/init.cpp"), directory="build")
    rows = [row(replace(step(f"{n}.cc"), directory="build"), (n + 1) * GB // 10) for n in range(9)]
    rows += [row(known, 2 * GB), replace(row(known, GB), mode=CompileMode.LEAN)]
    rows += [killed(step("ended.cc"), 3 * GB, 900.0)]
    first = Predictor(rows)
    content = msgspec.msgpack.encode(first.knowledge())
    second = Predictor(known=msgspec.msgpack.decode(content, type=Knowledge))
    others = [
        step("3.cc"),
        known,
        step("ended.cc"),
        step("new.cc"),
        replace(step("3.cc"), key="other flags"),
    ]
    assert [second.predict(each) for each in others] == [first.predict(each) for each in others]
    assert [second.effects(each) for each in others] == [first.effects(each) for each in others]
    assert second.durations == first.durations
    assert second.knowledge() == first.knowledge()
