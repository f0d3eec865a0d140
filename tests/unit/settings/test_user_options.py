"""The origin of a value: default, file, environment, command line; named variants."""

from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from stoker.builds.finishing import AUTO
from stoker.govern.client.progress import Progress
from stoker.govern.client.session import Via
from stoker.knowledge.compiler_modes import linker_programs
from stoker.model.build import Isolation
from stoker.model.errors import UsageError
from stoker.model.govern import CompileMode
from stoker.model.machine import Tmp
from stoker.model.setting import OriginKind
from stoker.settings.declared import OPTIONS, PARTS
from stoker.settings.toml import LocatedValue, SettingsFile, TomlTable
from stoker.settings.user_options import UserOptions, gather
from stoker.wheel.package.request import PackageMode


def entry(line: int, **values: Any) -> TomlTable:
    where = f"stoker.toml:{line}"

    def said(value: str) -> LocatedValue:
        return LocatedValue(value=value, where=where)

    return TomlTable(
        where=where,
        features=tuple(said(word) for word in values.pop("features", ())),
        defines={name: said(text) for name, text in values.pop("defines", {}).items()},
        values={name: said(text) for name, text in values.items()},
    )


def file(defaults: TomlTable | None = None, **variants: TomlTable) -> SettingsFile:
    return SettingsFile(
        path="/p/stoker.toml", digest="", defaults=defaults or entry(1), variants=variants
    )


def gathered(
    file: SettingsFile | None = None,
    environment: dict[str, str] | None = None,
    command_line: dict[str, str] | None = None,
    **said: Any,
) -> UserOptions:
    return gather(file=file, environment=environment or {}, command_line=command_line or {}, **said)


def told(chosen: UserOptions, name: str) -> tuple[str, str]:
    found = chosen.values[name]
    return found.value, str(found.origin)


DEFAULTS = {
    "distribute",
    "variant",
    "out",
    "mode",
    "from",
    "gc",
    "linker",
    "nvcc_threads",
    "policy",
    "tmp",
    "via",
    "progress",
}


def test_every_option_is_declared_once_for_all_places() -> None:
    assert OPTIONS["build_type"].flag == "--build-type"
    assert OPTIONS["build_type"].variable == "STOKER_BUILD_TYPE"
    assert set(PARTS) <= set(OPTIONS)
    assert all(option.help.endswith(".") for option in OPTIONS.values())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("isolation", Isolation),
        ("tmp", Tmp),
        ("via", Via),
        ("progress", Progress),
    ],
)
def test_choices_are_the_values_that_the_code_knows(name: str, values: type[StrEnum]) -> None:
    assert set(OPTIONS[name].choices) == set(values)


def test_the_linkers_are_those_that_the_table_names() -> None:
    assert set(OPTIONS["linker"].choices) == {CompileMode.DEFAULT, *linker_programs()}


def test_a_build_may_choose_the_mode_of_its_package() -> None:
    assert set(OPTIONS["mode"].choices) == {AUTO, *PackageMode}


def test_nothing_said_is_this_machine() -> None:
    chosen = gathered()
    assert told(chosen, "variant") == ("native", "default")
    assert set(chosen.values) == DEFAULTS
    assert chosen.text("blas") is None
    assert chosen.value("memory") is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("memory", "8G", 8 << 30),
        ("memory", "8589934592", 8 << 30),
        ("keep_free", "0", 0),
        ("keep_free", "2G", 2 << 30),
        ("cpus", "4", 4),
        ("nice", "1", True),
        ("nice", "Off", False),
        ("policy", "fixed:8", "fixed:8"),
        ("tmp", "ram", "ram"),
    ],
)
def test_a_value_has_its_declared_type(name: str, text: str, value: object) -> None:
    assert gathered(environment={OPTIONS[name].variable: text}).value(name) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("memory", "8Q", "--memory 8Q: not an amount of memory from 1M on"),
        ("memory", "8", "--memory 8: not an amount of memory from 1M on"),
        ("cpus", "0", "--cpus 0: not a number from 1 on"),
        ("nice", "maybe", "--nice maybe: not true or false"),
        ("tmp", "rom", "unknown value of --tmp 'rom'"),
    ],
)
def test_a_wrong_value_names_its_origin(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        gathered(file(entry(7, **{name: text}))).value(name)
    assert refused.value.where == "stoker.toml:7"
    assert refused.value.message == message
    assert refused.value.hints


@pytest.mark.parametrize(
    ("by_file", "by_environment", "by_command_line"), list(product([False, True], repeat=3))
)
@pytest.mark.parametrize("option", ["variant", "blas"])
def test_the_strongest_place_wins(
    option: str, by_file: bool, by_environment: bool, by_command_line: bool
) -> None:
    chosen = gathered(
        file(entry(3, **{option: "of the file"})) if by_file else None,
        {f"STOKER_{option.upper()}": "of the environment"} if by_environment else {},
        {option: "of the command line"} if by_command_line else {},
    )
    expected: tuple[str, str] | None = ("native", "default") if option == "variant" else None
    if by_file:
        expected = ("of the file", "stoker.toml:3")
    if by_environment:
        expected = ("of the environment", f"environment STOKER_{option.upper()}")
    if by_command_line:
        expected = ("of the command line", "command line")
    assert (told(chosen, option) if option in chosen.values else None) == expected


def test_an_empty_variable_says_nothing() -> None:
    assert told(gathered(environment={"STOKER_VARIANT": ""}), "variant") == ("native", "default")


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(UsageError, match="no setting STOKER_MEMROY") as error:
        gather(file=None, environment={"STOKER_MEMROY": "8G"}, command_line={})
    assert "STOKER_MEMORY" in error.value.hints[0]


def test_other_variables_are_not_ours() -> None:
    assert set(gathered(environment={"VARIANT": "cpu", "STOKER_HOME": "/x"}).values) == DEFAULTS


NAMED = file(
    entry(1, blas="mkl", python="3.11", features=["nccl"], defines={"A": "1", "B": "1"}),
    server=entry(9, variant="cu130-sm90", blas="openblas", features=["nonccl"], defines={"B": "2"}),
)


def test_a_name_stands_for_its_entry() -> None:
    chosen = gathered(NAMED, command_line={"variant": "server"})
    assert told(chosen, "variant") == ("cu130-sm90", "stoker.toml:9")
    assert told(chosen, "blas") == ("openblas", "stoker.toml:9")
    assert told(chosen, "python") == ("3.11", "stoker.toml:1")
    assert {name: found.value for name, found in chosen.defines.items()} == {"A": "1", "B": "2"}
    assert [(found.value, str(found.origin)) for found in chosen.features] == [
        ("nccl", "stoker.toml:1"),
        ("nonccl", "stoker.toml:9"),
    ]


def test_another_variant_leaves_the_entry_alone() -> None:
    chosen = gathered(NAMED, command_line={"variant": "cpu"})
    assert told(chosen, "variant") == ("cpu", "command line")
    assert told(chosen, "blas") == ("mkl", "stoker.toml:1")


@pytest.mark.parametrize(
    ("environment", "command_line", "blas"),
    [
        ({"STOKER_BLAS": "blis"}, {}, ("blis", "environment STOKER_BLAS")),
        ({}, {"blas": "eigen"}, ("eigen", "command line")),
        ({"STOKER_BLAS": "blis"}, {"blas": "eigen"}, ("eigen", "command line")),
    ],
)
def test_what_is_said_outside_wins_over_the_entry(
    environment: dict[str, str], command_line: dict[str, str], blas: tuple[str, str]
) -> None:
    chosen = gathered(NAMED, environment, {"variant": "server", **command_line})
    assert told(chosen, "blas") == blas
    assert told(chosen, "variant") == ("cu130-sm90", "stoker.toml:9")


def test_a_name_may_come_from_anywhere() -> None:
    assert gathered(NAMED, {"STOKER_VARIANT": "server"}).text("variant") == "cu130-sm90"
    by_default = file(entry(1, variant="server"), server=NAMED.variants["server"])
    assert gathered(by_default).text("variant") == "cu130-sm90"


def test_the_command_lines_features_and_defines_come_last() -> None:
    chosen = gathered(
        NAMED, {}, {"variant": "server"}, features=["lto"], defines={"B": "3", "C": "3"}
    )
    assert [found.value for found in chosen.features] == ["nccl", "nonccl", "lto"]
    assert {name: found.value for name, found in chosen.defines.items()} == {
        "A": "1",
        "B": "3",
        "C": "3",
    }
    assert chosen.features[-1].origin.kind is OriginKind.COMMAND_LINE
    assert str(chosen.defines["A"].origin) == "stoker.toml:1"


def test_an_entry_without_words_is_what_the_defaults_say() -> None:
    """``[variants.ci]`` with only a BLAS: its name is a name, not a word of the grammar."""
    named = file(entry(1, variant="cpu-avx2"), ci=entry(5, blas="openblas"))
    chosen = gathered(named, command_line={"variant": "ci"})
    assert chosen.text("variant") == "cpu-avx2"
    assert chosen.text("blas") == "openblas"
