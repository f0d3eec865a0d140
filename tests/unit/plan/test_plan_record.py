"""The part of a plan that goes into a wheel, and a plan made of it again."""

from msgspec.structs import replace

from stoker.model.plan import Command
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.plan.records import as_recorded, lasting_json, plan_json
from subjects import GIB, changed, cmake_tree, linux, memory, plan_of, pytorch_tree, subject


def test_another_folder_and_another_hour_change_nothing() -> None:
    here = subject(tree=pytorch_tree(), machine=linux())
    busy = linux(memory=memory(used=60 * GIB))
    there = subject(tree=pytorch_tree(path="/elsewhere"), machine=busy)
    assert plan_json(plan_of(here)) != plan_json(plan_of(there))
    assert lasting_json(plan_of(here)) == lasting_json(plan_of(there))


def test_a_number_of_jobs_that_the_user_chose_is_kept() -> None:
    asked = subject(tree=pytorch_tree(), exported={"MAX_JOBS": "3"})
    assert lasting_json(plan_of(asked))["environment"]["MAX_JOBS"] == "3"


def test_a_recorded_plan_is_the_same_plan() -> None:
    tree = cmake_tree()
    then = plan_of(subject("cpu-debug", tree=tree, defines={"DEMO_FAST": "OFF"}))
    recorded = lasting_json(then)
    today = subject("cpu-debug", tree=tree)
    again = as_recorded(
        today, plan_of(today), recorded["environment"], recorded["cmake"], where="a.whl"
    )
    assert lasting_json(again) == recorded
    assert again.value("DEMO_FAST") == "OFF"
    assert str(again.cmake[0].origin) == "a.whl"


def test_what_the_record_does_not_have_is_dropped() -> None:
    today = subject("cpu", tree=pytorch_tree(), defines={"USE_CUDNN": "0"})
    again = as_recorded(today, plan_of(today), {}, {}, where="a.whl")
    assert again.cmake == ()
    assert [setting.name for setting in again.environment] == ["MAX_JOBS"]
    assert changed(again, environment=(), cmake=(), commands=()) == changed(
        plan_of(today), environment=(), cmake=(), commands=()
    )


def test_secrets_are_neither_recorded_nor_repeated() -> None:
    today = subject("cpu")
    with_secret = replace(
        plan_of(today),
        cmake=(setting("MY_TOKEN", "s3cr3t"), setting("USE_X", "1")),
        commands=(Command(stage="build", words=("cmake", "-DMY_TOKEN=s3cr3t", "-DUSE_X=1")),),
    )
    recorded = lasting_json(with_secret)
    assert recorded["cmake"] == {"MY_TOKEN": "***", "USE_X": "1"}
    assert recorded["commands"][0]["words"] == ("cmake", "-DMY_TOKEN=***", "-DUSE_X=1")
    repeated = as_recorded(today, plan_of(today), {}, recorded["cmake"], where="a.whl")
    assert [(s.name, s.value) for s in repeated.cmake] == [("USE_X", "1")]
    repeated = as_recorded(today, with_secret, {}, recorded["cmake"], where="a.whl")
    assert repeated.value("MY_TOKEN") == "s3cr3t"


def setting(name: str, value: str) -> Setting:
    origin = Origin(kind=OriginKind.COMMAND_LINE)
    return Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin)
