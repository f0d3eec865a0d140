"""Passing pip's settings to a container."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.containers.content import read_pip_settings


def test_settings_become_variables_and_the_environment_wins() -> None:
    index = read_pip_settings(
        "global.index-url='https://index.example/simple'\n"
        "install.no-compile='1'\n"
        ":env:.default-timeout='180'\n"
        ":env:.index-url='https://nearer.example/simple'\n"
        "list.format='json'\n"
    )
    assert index.variables == {
        "PIP_INDEX_URL": "https://nearer.example/simple",
        "PIP_NO_COMPILE": "1",
        "PIP_DEFAULT_TIMEOUT": "180",
    }
    assert index.paths == ()


def test_folders_of_this_machine_go_along(tmp_path: Path) -> None:
    wheels, simple = tmp_path / "wheels", tmp_path / "an index" / "simple"
    wheels.mkdir()
    simple.mkdir(parents=True)
    index = read_pip_settings(
        f"global.extra-index-url='{simple.as_uri()} file:///is/not/there'\n"
        f"global.find-links='{wheels} relative'\n"
    )
    assert index.paths == (str(simple.parent), str(wheels))


@given(st.text())
def test_any_text(text: str) -> None:
    read_pip_settings(text)
