"""Where a wish comes from: default, file, environment, command line; named variants."""

from itertools import product
from typing import Any

import pytest

from stoker.model.plan import OriginKind
from stoker.settings.declared import OPTIONS, PARTS
from stoker.settings.toml import Entry, File, Said
from stoker.settings.wishes import Wishes, gather


def entry(line: int, **values: Any) -> Entry:
    where = f"stoker.toml:{line}"

    def said(value: str) -> Said:
        return Said(value=value, where=where)

    return Entry(
        where=where,
        features=tuple(said(word) for word in values.pop("features", ())),
        defines={name: said(text) for name, text in values.pop("defines", {}).items()},
        values={name: said(text) for name, text in values.items()},
    )


def file(defaults: Entry | None = None, **variants: Entry) -> File:
    return File(path="/p/stoker.toml", defaults=defaults or entry(1), variants=variants)


def gathered(
    file: File | None = None,
    environment: dict[str, str] | None = None,
    command_line: dict[str, str] | None = None,
    **said: Any,
) -> Wishes:
    return gather(file=file, environment=environment or {}, command_line=command_line or {}, **said)


def told(wishes: Wishes, name: str) -> tuple[str, str]:
    wish = wishes.values[name]
    return wish.value, str(wish.origin)


def test_every_option_is_declared_once_for_all_places() -> None:
    assert {option.variable for option in OPTIONS.values()} == {
        *("STOKER_VARIANT", "STOKER_SOURCE", "STOKER_PLATFORM", "STOKER_BLAS"),
        *("STOKER_PYTHON", "STOKER_BUILD_TYPE", "STOKER_SANITIZER"),
    }
    assert OPTIONS["build_type"].flag == "--build-type"
    assert set(PARTS) <= set(OPTIONS)
    assert all(option.help.endswith(".") for option in OPTIONS.values())


def test_nothing_said_is_this_machine() -> None:
    wishes = gathered()
    assert told(wishes, "variant") == ("native", "default")
    assert set(wishes.values) == {"variant"}
    assert wishes.text("blas") is None


@pytest.mark.parametrize(
    ("by_file", "by_environment", "by_command_line"), list(product([False, True], repeat=3))
)
@pytest.mark.parametrize("option", ["variant", "blas"])
def test_the_strongest_place_wins(
    option: str, by_file: bool, by_environment: bool, by_command_line: bool
) -> None:
    wishes = gathered(
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
    assert (told(wishes, option) if option in wishes.values else None) == expected


def test_an_empty_variable_says_nothing() -> None:
    assert told(gathered(environment={"STOKER_VARIANT": ""}), "variant") == ("native", "default")


def test_other_variables_are_not_ours() -> None:
    assert set(gathered(environment={"VARIANT": "cpu", "STOKER_HOME": "/x"}).values) == {"variant"}


# -- named variants ----------------------------------------------------------------------------

NAMED = file(
    entry(1, blas="mkl", python="3.11", features=["nccl"], defines={"A": "1", "B": "1"}),
    server=entry(9, variant="cu130-sm90", blas="openblas", features=["nonccl"], defines={"B": "2"}),
)


def test_a_name_stands_for_its_entry() -> None:
    wishes = gathered(NAMED, command_line={"variant": "server"})
    assert told(wishes, "variant") == ("cu130-sm90", "stoker.toml:9")
    assert told(wishes, "blas") == ("openblas", "stoker.toml:9")
    assert told(wishes, "python") == ("3.11", "stoker.toml:1")
    assert {name: wish.value for name, wish in wishes.defines.items()} == {"A": "1", "B": "2"}
    assert [(wish.value, str(wish.origin)) for wish in wishes.features] == [
        ("nccl", "stoker.toml:1"),
        ("nonccl", "stoker.toml:9"),
    ]


def test_another_variant_leaves_the_entry_alone() -> None:
    wishes = gathered(NAMED, command_line={"variant": "cpu"})
    assert told(wishes, "variant") == ("cpu", "command line")
    assert told(wishes, "blas") == ("mkl", "stoker.toml:1")


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
    wishes = gathered(NAMED, environment, {"variant": "server", **command_line})
    assert told(wishes, "blas") == blas
    assert told(wishes, "variant") == ("cu130-sm90", "stoker.toml:9")


def test_a_name_may_come_from_anywhere() -> None:
    assert gathered(NAMED, {"STOKER_VARIANT": "server"}).text("variant") == "cu130-sm90"
    by_default = file(entry(1, variant="server"), server=NAMED.variants["server"])
    assert gathered(by_default).text("variant") == "cu130-sm90"


def test_the_command_lines_features_and_defines_come_last() -> None:
    wishes = gathered(
        NAMED, {}, {"variant": "server"}, features=["mold"], defines={"B": "3", "C": "3"}
    )
    assert [wish.value for wish in wishes.features] == ["nccl", "nonccl", "mold"]
    assert {name: wish.value for name, wish in wishes.defines.items()} == {
        "A": "1",
        "B": "3",
        "C": "3",
    }
    assert wishes.features[-1].origin.kind is OriginKind.COMMAND_LINE
    assert str(wishes.defines["A"].origin) == "stoker.toml:1"


def test_an_entry_without_words_is_what_the_defaults_say() -> None:
    """``[variants.ci]`` with only a BLAS: its name is a name, not a word of the grammar."""
    named = file(entry(1, variant="cpu-avx2"), ci=entry(5, blas="openblas"))
    wishes = gathered(named, command_line={"variant": "ci"})
    assert wishes.text("variant") == "cpu-avx2"
    assert wishes.text("blas") == "openblas"
