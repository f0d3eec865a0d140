"""`stoker run` reads its usual arguments without click, and as click does."""

import subprocess
import sys
from typing import Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.cli import governed
from stoker.cli.governed import FLAGS, GROUPS, read_arguments
from stoker.cli.run import run
from stoker.model.errors import UsageError
from stoker.settings.declared import OPTIONS, SettingKind

SETTINGS = [each for each in OPTIONS.values() if each.group in GROUPS]
NAMES = [
    *(each.flag for each in SETTINGS),
    *(each.flag for each in FLAGS),
    *(f"--no-{each.flag[2:]}" for each in SETTINGS),
    *("-j", "--jobs", "-h", "--help", "--help-all", "-v", "--", "-", "--x", "---", "", "-memory"),
]
VALUES = [
    *("8G", "4", "true", "off", "ccache", "a b", "--", "-x", "", "make", "-j8", "=", "é\udcff")
]
VALUES += [choice for each in SETTINGS for choice in each.choices[:1]]
WORDS = st.one_of(
    st.sampled_from([*NAMES, *VALUES]),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.sampled_from(VALUES)),
)


def read_by_click(words: list[str]) -> dict[str, Any] | None:
    """Return what click makes of the words; ``None`` if it ends with help or an error."""
    try:
        return run.make_context("run", list(words)).params
    except (click.ClickException, click.exceptions.Exit, UsageError):
        return None


@given(st.lists(WORDS, max_size=8))
@example(["--memory", "--cpus", "4", "--", "make", "--explain"])
@example(["--explain", "make", "--explain"])
@example(["--no-nice", "--nice", "-", "x"])
@example(["--memory=", "--memory==", "true"])
def test_arguments_that_are_read_without_click_are_those_of_click(words: list[str]) -> None:
    found, by_click = read_arguments(words), read_by_click(words)
    if found is not None:
        assert found == by_click
    elif by_click is not None:
        raise AssertionError(f"only click reads {words}")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_every_setting_is_read(setting: Any) -> None:
    value = next(iter(setting.choices), "4")
    words = [setting.flag] if setting.kind is SettingKind.SWITCH else [setting.flag, value]
    found = read_arguments([*words, "--", "make", "-j4"])
    assert found is not None
    assert found[setting.name] == (True if setting.kind is SettingKind.SWITCH else value)
    assert found["command"] == ("make", "-j4")


def test_a_usual_run_imports_no_click() -> None:
    """Nor typing_extensions, which msgspec would import."""
    code = (
        "import sys; sys.argv[1:] = ['run', '--cpus', '2', '--', 'true']\n"
        "from stoker.__main__ import main\nassert main() == 0\n"
        "sys.exit(' '.join({'click', 'typing_extensions'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_ways_call_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[dict[str, Any]] = []
    monkeypatch.setattr("stoker.cli.run.run_governed", lambda **found: called.append(found))
    run.main(["--explain", "--summary", "f", "--", "make"], standalone_mode=False)
    assert called == [governed.read_arguments(["--explain", "--summary", "f", "--", "make"])]
