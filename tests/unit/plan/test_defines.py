"""-D options and exported variables: known, misspelt, passed on or lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.errors import StokerError, UsageError
from stoker.model.finding import Severity
from stoker.model.setting import SettingPlace
from stoker.model.source import FrontEnd, SourceTree
from stoker.plan.defines import define
from subjects import (
    COMMAND_LINE,
    cmake_of,
    cmake_option,
    cmake_tree,
    environment_of,
    extension_tree,
    file_line,
    named,
    names,
    plan,
    pytorch_tree,
)

TREES = [pytorch_tree(), pytorch_tree(version="2.14.0", front_end=FrontEnd.SCIKIT_BUILD_CORE)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("USE_CUDNN", "USE_CUDNN"),
        ("USE_CUDNN:BOOL", "USE_CUDNN"),
        ("CMAKE_PREFIX_PATH:PATH", "CMAKE_PREFIX_PATH"),
        (" USE_X ", "USE_X"),
        ("nvpl_ROOT", "nvpl_ROOT"),
    ],
)
def test_a_name_may_carry_its_type(text: str, name: str) -> None:
    setting = define(text, "0", COMMAND_LINE)
    assert (setting.name, setting.value, setting.place) == (name, "0", SettingPlace.CMAKE)


@pytest.mark.parametrize("text", ["", ":BOOL", "A B", "A=B", "$HOME", "a;b", "-DX", "A\nB", "_"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        define(text, "1", file_line(4))
    assert refused.value.where == "stoker.toml:4"
    assert refused.value.hints


@pytest.mark.parametrize("text", ["\u00e9t\u00e9", "1ST", "USE_\u0663"])
def test_a_variable_of_the_environment_is_an_ascii_identifier(text: str) -> None:
    """Extensions get -D as variables: what no shell can export has to be refused."""
    with pytest.raises(UsageError):
        plan("cu130-sm90", tree=extension_tree(), defines={text: "1"})


@given(st.text(max_size=8))
def test_any_name_is_taken_or_refused(text: str) -> None:
    try:
        setting = define(text, "1", COMMAND_LINE)
    except UsageError:
        return
    assert setting.name
    assert not set(setting.name) & set(" =:;\"'\n\t$")


@pytest.mark.parametrize("tree", [None, *TREES])
def test_a_misspelt_option_is_refused_with_similar_names(tree: SourceTree | None) -> None:
    with pytest.raises(UsageError) as refused:
        plan("cpu", tree=tree, defines={"USE_CUDDN": "1"}, said=file_line(8))
    assert str(refused.value) == "stoker.toml:8: unknown option 'USE_CUDDN'"
    assert "USE_CUDNN" in refused.value.hints[0]


@pytest.mark.parametrize("name", ["USE_NOTHING_LIKE_IT", "SOMETHING_ELSE", "CMAKE_NO_SUCH"])
def test_a_tree_knows_its_own_names_only(name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown option '{name}'"):
        plan("cpu", tree=pytorch_tree(), defines={name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "USE_CUDNN",  # an option
        "CAFFE2_PERF_WITH_AVX512",  # a variable that the CMake files read
        "CMAKE_CXX_STANDARD",  # CMake's own
        "MAX_JOBS",  # read by the front end
        "TORCH_CUDA_ARCH_LIST",
        "CAFFE2_STATIC_LINK_CUDA",  # an alias
        "USE_CUDA_STATIC_LINK",  # the variable that reaches it
        "protobuf_DIR",  # find_package() takes these for any package
        "OpenSSL_ROOT",
    ],
)
@pytest.mark.parametrize("tree", TREES)
def test_names_that_take_effect_are_taken(name: str, tree: SourceTree) -> None:
    planned = plan("cpu", tree=tree, defines={name: "x"})
    assert "x" in {setting.value for setting in (*planned.environment, *planned.cmake)}


@pytest.mark.parametrize("name", ["USE_COREML_DELEGATE", "HAVE_SOMETHING", "TORCH_USE_IWYU"])
def test_without_a_tree_a_name_that_is_not_misspelt_is_only_unchecked(name: str) -> None:
    finding = named(plan("cpu", defines={name: "1"}).findings, "option-unchecked")
    assert finding.severity is Severity.WARNING
    assert name in finding.title


@pytest.mark.parametrize("name", ["DEMO_FAST", "CMAKE_BUILD_TYPE", "fmt_DIR"])
def test_options_of_a_cmake_project(name: str) -> None:
    assert cmake_of(plan("cpu", tree=cmake_tree(), defines={name: "1"}))[name] == "1"


def test_a_cmake_project_does_not_know_pytorchs_names() -> None:
    with pytest.raises(UsageError) as refused:
        plan("cpu", tree=cmake_tree(), defines={"DEMO_FSAT": "1"})
    assert "DEMO_FAST" in refused.value.hints[0]
    with pytest.raises(UsageError):
        plan("cpu", tree=cmake_tree(), defines={"TH_BINARY_BUILD": "1"})


def test_an_extension_takes_any_name_as_a_variable() -> None:
    planned = plan("cu130-sm90", tree=extension_tree(), defines={"FLASH_X": "7"})
    assert environment_of(planned)["FLASH_X"] == "7"
    assert cmake_of(planned) == {}


def test_an_alias_reaches_cmake_by_its_variable() -> None:
    planned = plan("cpu", tree=pytorch_tree(), defines={"CAFFE2_STATIC_LINK_CUDA": "1"})
    assert environment_of(planned)["USE_CUDA_STATIC_LINK"] == "1"
    assert cmake_of(planned)["CAFFE2_STATIC_LINK_CUDA"] == "1"


@pytest.mark.parametrize("name", ["MAX_JOBS", "CXXFLAGS", "TORCH_NVCC_FLAGS", "DEBUG"])
def test_a_variable_of_the_front_end_is_no_cmake_option(name: str) -> None:
    planned = plan("cu124-sm90-avx2", tree=pytorch_tree(), defines={name: "mine"})
    assert environment_of(planned)[name] == "mine"
    assert name not in cmake_of(planned)


def test_an_option_that_the_front_end_does_not_hand_on_is_said() -> None:
    tree = pytorch_tree(options=(*pytorch_tree().options, cmake_option("TORCH_ODD", "x")))
    planned = plan("cpu", tree=tree, defines={"TORCH_ODD": "1"})
    finding = named(planned.findings, "option-not-forwarded")
    assert finding.severity is Severity.WARNING
    assert "TORCH_ODD" in finding.title
    assert "-D TORCH_ODD=1" in finding.fix[0]
    assert "TORCH_ODD" not in environment_of(planned)


def test_everything_is_handed_on_where_cmake_is_called_directly() -> None:
    tree = pytorch_tree(options=(*pytorch_tree().options, cmake_option("ANDROID_STL", "x")))
    for words in ("android", "cpu-nobindings"):
        planned = plan(words, tree=tree, defines={"ANDROID_STL": "c++_static"})
        assert "-DANDROID_STL=c++_static" in planned.commands[0].words
        assert "option-not-forwarded" not in names(planned.findings)


def test_nothing_is_lost_in_a_plan_without_odd_options() -> None:
    for tree in TREES:
        for words in ("cu124-sm90-avx512-openblas-debug-asan", "cpu-tsan-nokineto-tests"):
            assert "option-not-forwarded" not in names(plan(words, tree=tree).findings)


def test_an_exported_option_counts_and_shows() -> None:
    planned = plan("cpu", tree=pytorch_tree(), exported={"USE_KINETO": "0", "HOME": "/root"})
    assert cmake_of(planned)["USE_KINETO"] == "0"
    (setting,) = (s for s in planned.cmake if s.name == "USE_KINETO")
    assert str(setting.origin) == "environment USE_KINETO"
    assert "HOME" not in environment_of(planned)


def test_the_variant_wins_over_an_exported_option() -> None:
    planned = plan("cu124-sm90", tree=pytorch_tree(), exported={"USE_CUDA": "0"})
    assert environment_of(planned)["USE_CUDA"] == cmake_of(planned)["USE_CUDA"] == "1"


def test_an_exported_option_wins_over_the_recipe_and_d_over_both() -> None:
    exported = {"BUILD_TEST": "1"}
    tree = pytorch_tree()
    assert environment_of(plan("cpu", tree=tree, exported=exported))["BUILD_TEST"] == "1"
    planned = plan("cpu", tree=tree, exported=exported, defines={"BUILD_TEST": "OFF"})
    assert environment_of(planned)["BUILD_TEST"] == "OFF"


def test_the_users_own_number_of_jobs_stays() -> None:
    assert environment_of(plan("cpu", exported={"MAX_JOBS": "3"})).get("MAX_JOBS") in ("3", None)
    assert environment_of(plan("cpu", defines={"MAX_JOBS": "5"}))["MAX_JOBS"] == "5"


def test_the_variable_of_an_alias_is_known() -> None:
    planned = plan("cu124-sm90", tree=pytorch_tree(), exported={"USE_CUDA_STATIC_LINK": "1"})
    assert "variable-unknown" not in names(planned.findings)


@pytest.mark.parametrize("name", ["BUILD_NUMBER", "BUILD_DISPLAY_NAME", "USE_BAZEL_VERSION"])
@pytest.mark.parametrize("tree", TREES)
def test_variables_of_ci_systems_do_not_stop_a_plan(name: str, tree: SourceTree) -> None:
    planned = plan("cpu", tree=tree, exported={name: "17"})
    assert named(planned.findings, "variable-unknown").severity is Severity.NOTE
    assert planned.value(name) is None


@pytest.mark.parametrize("name", ["USE_CUDDN", "USE_KINETTO", "BUILD_TESTS", "USE_CUSPARSLT"])
def test_an_exported_misspelling_is_a_note_that_names_the_option(name: str) -> None:
    planned = plan("cpu", tree=pytorch_tree(), exported={name: "1"})
    assert "did you mean" in named(planned.findings, "variable-unknown").title


@pytest.mark.parametrize("tree", [None, cmake_tree(), extension_tree()])
def test_variables_are_none_of_other_projects_business(tree: SourceTree | None) -> None:
    planned = plan("cpu", tree=tree, exported={"USE_CUDDN": "1", "BUILD_NUMBER": "3"})
    assert not names(planned.findings) & {"variable-unknown"}


def test_an_exported_arch_list_serves_where_the_variant_names_none() -> None:
    planned = plan("cu124", tree=pytorch_tree(), exported={"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"})
    assert environment_of(planned)["TORCH_CUDA_ARCH_LIST"] == "8.0;9.0+PTX"


@pytest.mark.parametrize("tree", [None, *TREES])
def test_an_exported_arch_list_gives_way_everywhere(tree: SourceTree | None) -> None:
    """Neither the environment nor CMake may still hold the list that lost."""
    planned = plan("cu124-sm90", tree=tree, exported={"TORCH_CUDA_ARCH_LIST": "8.0"})
    assert environment_of(planned)["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert cmake_of(planned).get("TORCH_CUDA_ARCH_LIST", "9.0") == "9.0"


NAMES = st.sampled_from(
    [
        *("USE_CUDA", "USE_KINETO", "BUILD_TEST", "BLAS", "CMAKE_BUILD_TYPE"),
        *("TORCH_CUDA_ARCH_LIST", "MAX_JOBS", "CXXFLAGS", "CAFFE2_STATIC_LINK_CUDA"),
    ]
)
VALUES = st.sampled_from(["", "0", "1", "ON", "OFF", "8.0", "a b"])


@given(
    st.sampled_from(["cpu-avx2", "cu124-sm90", "rocm6.4-gfx942", "android", "cpu-nobindings"]),
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.dictionaries(NAMES, VALUES, max_size=4),
)
def test_environment_and_cmake_never_disagree(
    words: str, exported: dict[str, str], defines: dict[str, str]
) -> None:
    try:
        planned = plan(words, tree=pytorch_tree(), exported=exported, defines=defines)
    except StokerError:
        return
    environment, cmake = environment_of(planned), cmake_of(planned)
    both = environment.keys() & cmake.keys()
    assert {name: environment[name] for name in both} == {name: cmake[name] for name in both}
    for name in defines:
        assert planned.value(name) == defines[name], "nothing wins over the command line"
