"""The environment of stages."""

from pathlib import Path

from stoker.builds.execution import map_flags, surroundings
from subjects import plan


def test_the_plan_comes_before_what_was_exported() -> None:
    planned = plan("cpu-debug")
    base = {"DEBUG": "0", "HOME": "/home/me", **{s.name: "wrong" for s in planned.environment}}
    found = surroundings(base, planned, maps={}, epoch=None)
    assert all(found[setting.name] == setting.value for setting in planned.environment)
    assert found["HOME"] == "/home/me"
    assert found["SOURCE_DATE_EPOCH"] == "315532800"


def test_the_users_epoch_and_flags_stay() -> None:
    base = {"SOURCE_DATE_EPOCH": "7", "CFLAGS": "-O1", "NVCC_APPEND_FLAGS": "-ccbin g++"}
    found = surroundings(base, plan(), maps={Path("/src"): "demo"}, epoch=9)
    assert found["SOURCE_DATE_EPOCH"] == "7"
    assert found["CFLAGS"] == "-O1 -ffile-prefix-map=/src=demo"
    assert found["NVCC_APPEND_FLAGS"] == "-ccbin g++ -Xcompiler=-ffile-prefix-map=/src=demo"


def test_a_folder_that_a_command_line_would_take_apart_is_not_mapped() -> None:
    maps = {Path("/a b"): "x", Path("/a=b"): "x", Path("/a,b"): "x", Path("/ab"): "x"}
    assert map_flags(maps) == ("-ffile-prefix-map=/ab=x",)
