"""Export lines and .env files, read back by real shells."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Need
from stoker.model.plan import Plan
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.outside import process
from stoker.plan.shown import dotenv_lines, shell_lines
from subjects import changed, environment_of, extension_tree, plan, pytorch_tree

SHELLS = ["sh", "bash"]


def with_environment(values: dict[str, str]) -> Plan:
    origin = Origin(kind=OriginKind.COMMAND_LINE)
    settings = (
        Setting(place=SettingPlace.ENVIRONMENT, name=name, value=value, origin=origin)
        for name, value in values.items()
    )
    return changed(plan("cpu"), environment=tuple(settings))


def sourced(shell: str, folder: Path, text: str, *, before: str = "") -> dict[str, str]:
    """The environment of a shell that starts with an empty one and reads the text."""
    (folder / "lines").write_bytes(text.encode())
    script = f"{before} . ./lines && exec /usr/bin/env -0 > environment"
    process.check([shell, "-c", script], timeout=60, env={"PATH": "/usr/bin:/bin"}, cwd=folder)
    pairs = (folder / "environment").read_bytes().decode().split("\0")
    found = dict(pair.partition("=")[::2] for pair in pairs if pair)
    return {name: value for name, value in found.items() if name not in OF_THE_SHELL}


OF_THE_SHELL = {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}

NASTY = {
    "X_QUOTES": """it's "quoted" '' "" '"'""",
    "X_DOLLAR": "$HOME ${HOME} $(id) `id` $$",
    "X_BACKSLASH": "\\ \\\\ \\n \\' \\$ end\\",
    "X_NEWLINE": "one\ntwo\n\nend\n",
    "X_SPACE": "  two  spaces\tand a tab ",
    "X_GLOB": "* ? [a-z] ~ {a,b} !! #comment",
    "X_OPERATORS": "; & | && < > >> ( ) =",
    "X_UNICODE": "t\u00e9xt \u4e2d\u6587 \U0001f525",
    "X_EMPTY": "",
    "X_CARRIAGE": "a\r\nb\rc",
    "X_DASH": "-e -n",
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("words", ["cu124-sm80+sm90+ptx-avx512", "cpu-debug-asan"])
def test_the_plan_of_a_shell_is_the_plan(
    shell: str, words: str, tmp_path: Path, need: Need
) -> None:
    planned = plan(words, tree=pytorch_tree(), exported={"CXXFLAGS": "-DX='a b'"})
    assert sourced(need(shell), tmp_path, shell_lines(planned)) == environment_of(planned)


@pytest.mark.parametrize("shell", SHELLS)
def test_nasty_values_survive_export(shell: str, tmp_path: Path, need: Need) -> None:
    assert sourced(need(shell), tmp_path, shell_lines(with_environment(NASTY))) == NASTY


@pytest.mark.parametrize("shell", SHELLS)
def test_nasty_values_survive_a_dotenv_file(shell: str, tmp_path: Path, need: Need) -> None:
    text = dotenv_lines(with_environment(NASTY))
    assert sourced(need(shell), tmp_path, text, before="set -a;") == NASTY


VALUES = st.text(
    alphabet=st.one_of(
        st.sampled_from("'\"\\$`\n !#~*&;|<>(){}[]=%\t"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=12,
)
ENVIRONMENTS = st.dictionaries(st.from_regex(r"X_[A-Z0-9_]{1,8}", fullmatch=True), VALUES)


@given(environment=ENVIRONMENTS, shell=st.sampled_from(SHELLS))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_survives(
    environment: dict[str, str], shell: str, tmp_path: Path, need: Need
) -> None:
    planned = with_environment(environment)
    assert sourced(need(shell), tmp_path, shell_lines(planned)) == environment
    found = sourced(need(shell), tmp_path, dotenv_lines(planned), before="set -a;")
    assert found == environment


def test_simple_lines_are_simple() -> None:
    planned = with_environment({"USE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0;9.0"})
    lines = shell_lines(planned).splitlines()
    assert lines[0] == "# stoker plan cpu"
    assert lines[3:5] == ["export USE_CUDA=1", "export TORCH_CUDA_ARCH_LIST='8.0;9.0'"]
    assert lines[5:] == [
        'if [ "${1-}" = build ]; then',
        "  set -e",
        "  python3 -m pip wheel . --no-deps --no-build-isolation",
        "fi",
    ]
    assert dotenv_lines(planned) == 'USE_CUDA="1"\nTORCH_CUDA_ARCH_LIST="8.0;9.0"\n'


def test_a_plan_without_environment_is_still_a_script() -> None:
    assert shell_lines(with_environment({})).startswith("#")
    assert dotenv_lines(with_environment({})) == ""


def test_values_of_the_user_reach_the_shell(tmp_path: Path, need: Need) -> None:
    defines = {"MY_FLAGS": '-DNAME="it\'s $5"', "MY_LIST": "a;b c"}
    planned = plan("cu130-sm90", tree=extension_tree(), defines=defines)
    found = sourced(need("sh"), tmp_path, shell_lines(planned))
    assert {name: found[name] for name in defines} == defines
