"""How a plan is made: merging by origin, jobs, commands, origins."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.plan import Plan, Quantity
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.source import SourceTree
from stoker.plan.planning import make_plan, merge
from stoker.plan.records import Difference, compare
from subjects import (
    GIB,
    arm_linux,
    changed,
    cmake_tree,
    environment_of,
    extension_tree,
    file_line,
    linux,
    memory,
    plan,
    pytorch_tree,
    subject,
    tool,
    toolbox,
    tools,
    unknown_estimate,
    zen4,
)

SETTINGS = st.builds(
    Setting,
    place=st.sampled_from(SettingPlace),
    name=st.sampled_from(["A", "B", "C"]),
    value=st.text(max_size=3),
    origin=st.builds(Origin, kind=st.sampled_from(OriginKind)),
)


def rank_and_key(setting: Setting) -> tuple[SettingPlace, str, OriginKind]:
    return setting.place, setting.name, setting.origin.kind


@given(st.lists(SETTINGS, unique_by=rank_and_key, max_size=12), st.randoms(use_true_random=False))
def test_the_strongest_origin_wins_in_whatever_order(
    gathered: list[Setting], random: Random
) -> None:
    shuffled = list(gathered)
    random.shuffle(shuffled)
    assert merge(shuffled) == merge(gathered)
    for setting in merge(gathered):
        rivals = [s for s in gathered if (s.place, s.name) == (setting.place, setting.name)]
        assert setting.origin.kind.rank == max(rival.origin.kind.rank for rival in rivals)


@given(st.lists(SETTINGS, max_size=12))
def test_merging_keeps_one_of_each_name_in_order(gathered: list[Setting]) -> None:
    merged = merge(gathered)
    keys = [(setting.place, setting.name) for setting in merged]
    assert keys == sorted({(setting.place, setting.name) for setting in gathered})
    assert merge(merged) == merged


def test_among_equals_the_later_one_wins() -> None:
    def setting(value: str) -> Setting:
        return Setting(place=SettingPlace.CMAKE, name="A", value=value, origin=file_line(1))

    assert merge([setting("one"), setting("two")]) == [setting("two")]


def jobs(*, cpus: int = 8, free: int = 64 * GIB, largest: float | None) -> str | None:
    about = subject(machine=linux(cpu=zen4(affinity=cpus), memory=memory(free)))
    estimate = unknown_estimate(largest_step_bytes=Quantity(amount=largest, basis="measured"))
    return environment_of(make_plan(about, estimate)).get("MAX_JOBS")


@pytest.mark.parametrize(
    ("cpus", "free", "largest", "expected"),
    [
        (8, 64 * GIB, None, "8"),  # unknown: as many as CPUs
        (8, 64 * GIB, 2 * GIB, "8"),
        (8, 8 * GIB, 2 * GIB, "4"),
        (8, 9 * GIB, 5 * GIB, "1"),
        (8, 1 * GIB, 5 * GIB, "1"),  # never none
        (1, 64 * GIB, 2 * GIB, "1"),
    ],
)
def test_as_many_jobs_as_cpus_and_memory_allow(
    cpus: int, free: int, largest: float | None, expected: str
) -> None:
    assert jobs(cpus=cpus, free=free, largest=largest) == expected


def test_memory_in_use_is_not_free() -> None:
    about = subject(machine=linux(memory=memory(16 * GIB, used=12 * GIB)))
    estimate = unknown_estimate(largest_step_bytes=Quantity(amount=2 * GIB, basis="measured"))
    (setting,) = (s for s in make_plan(about, estimate).environment if s.name == "MAX_JOBS")
    assert setting.value == "2"
    assert setting.origin.kind is OriginKind.MACHINE
    assert "2 of the largest steps fit" in setting.why


@pytest.mark.parametrize("tree", [None, pytorch_tree(), extension_tree()])
def test_jobs_of_this_machine_say_nothing_of_another(tree: SourceTree | None) -> None:
    assert "MAX_JOBS" not in environment_of(plan("cpu-linux_aarch64", tree=tree))
    assert "MAX_JOBS" in environment_of(plan("cpu", tree=tree))


@pytest.mark.parametrize("tree", [None, pytorch_tree(), extension_tree(), cmake_tree()])
@pytest.mark.parametrize("words", ["cu124-sm90-avx512", "cpu", "cpu-debug-asan", "cpu-armv9"])
def test_everything_has_an_origin(words: str, tree: SourceTree | None) -> None:
    planned = plan(words, tree=tree)
    for setting in (*planned.environment, *planned.cmake):
        assert str(setting.origin)
    assert set(planned.variant_origin) <= set(planned.variant.__struct_fields__)
    assert [s.place for s in planned.environment] == [SettingPlace.ENVIRONMENT] * len(
        planned.environment
    )
    assert [s.place for s in planned.cmake] == [SettingPlace.CMAKE] * len(planned.cmake)


def test_each_feature_remembers_who_asked_for_it() -> None:
    said = [("nogloo", file_line(3)), ("nokineto", Origin(kind=OriginKind.COMMAND_LINE))]
    planned = plan("cpu-nompi", tree=pytorch_tree(), features=said)
    origins = {setting.name: str(setting.origin) for setting in planned.environment}
    assert origins["USE_GLOO"] == "stoker.toml:3"
    assert origins["USE_KINETO"] == "command line"
    assert origins["USE_MPI"] == "variant cpu-nompi"


def test_the_file_overrides_a_default_that_was_not_requested() -> None:
    defines = {"CMAKE_BUILD_TYPE": "Debug"}
    planned = plan("cpu", tree=cmake_tree(), defines=defines, said=file_line(2))
    assert planned.value("CMAKE_BUILD_TYPE") == "Debug"
    asked = plan("cpu-minsizerel", tree=cmake_tree(), defines=defines, said=file_line(2))
    assert asked.value("CMAKE_BUILD_TYPE") == "MinSizeRel"


def test_the_machine_is_summed_up() -> None:
    planned = plan("cpu", machine=linux(memory=memory(2 * GIB), cpu=zen4(quota=3.0)))
    assert (planned.machine.cpus, planned.machine.memory_bytes) == (3, 2 * GIB)
    assert "/sys/fs/cgroup/build" in planned.machine.memory_limit


def test_a_plan_is_a_pure_function() -> None:
    for words in ("cu130-sm90-avx512-openblas", "native", "android"):
        assert plan(words, tree=pytorch_tree(cuda_archs=())) == plan(
            words, tree=pytorch_tree(cuda_archs=())
        )


def test_native_on_debian_12_with_its_own_gcc() -> None:
    box = toolbox(tools=tools(cxx=tool("cxx", "12.2.0")))
    assert "-m" in environment_of(plan("native", toolbox=box))["CXXFLAGS"]


def names_of(
    differences: Sequence[Difference], place: SettingPlace
) -> dict[str, tuple[object, object]]:
    return {d.name: (d.before, d.after) for d in differences if d.place is place}


def test_what_differs_between_two_plans() -> None:
    before, after = plan("cpu-avx2"), plan("cu124-sm90")
    environment = names_of(compare(before, after), SettingPlace.ENVIRONMENT)
    assert environment["TORCH_CUDA_ARCH_LIST"] == (None, "9.0")
    assert environment["CFLAGS"] == ("-mavx2 -mfma -mf16c", None)
    assert environment["USE_CUDA"] == ("0", "1")
    assert "BUILD_TEST" not in environment
    assert names_of(compare(before, after), SettingPlace.CMAKE)["USE_CUDA"] == ("0", "1")


PLANS = [
    plan("cpu"),
    plan("cpu-avx2", tree=pytorch_tree()),
    plan("cu124-sm90", tree=pytorch_tree()),
    plan("cu124-sm80+sm90", tree=extension_tree()),
    plan("cpu-debug", tree=cmake_tree(), machine=arm_linux()),
]


@given(st.sampled_from(PLANS), st.sampled_from(PLANS))
def test_comparing_is_fair(one: Plan, other: Plan) -> None:
    assert compare(one, one) == ()
    there, back = compare(one, other), compare(other, one)
    assert back == tuple(changed(d, before=d.after, after=d.before) for d in there)
    assert [(d.place, d.name) for d in there] == sorted((d.place, d.name) for d in there)
    assert all(d.before != d.after for d in there)
