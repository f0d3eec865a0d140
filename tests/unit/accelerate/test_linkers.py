"""Linkers of a run: chosen by name, or from what was measured."""

from pathlib import Path

import pytest

from conftest import Need
from stoker.accelerate.linkers import TunedLink, choose_linkers, keep_links, linker_version
from stoker.model.errors import MissingError
from stoker.model.govern import CompileMode
from stoker.model.terms import Linker, LinkerChoice


def tuned(link: str, version: str | None = None) -> TunedLink:
    known = linker_version(CompileMode.GOLD) if version is None else version
    assert known is not None
    return TunedLink(link=link, output=f"{link}.so", linker=CompileMode.GOLD, version=known)


def test_nothing_is_chosen_by_default_and_without_measurements(stoker_home: Path) -> None:
    assert choose_linkers(Linker.DEFAULT) == LinkerChoice()
    choice = choose_linkers(Linker.AUTO)
    assert (choice.every, choice.measured) == (CompileMode.DEFAULT, {})
    assert "stoker tune" in choice.why
    assert not list(stoker_home.rglob("*.json"))


def test_measured_links_of_all_folders_that_exist_are_used(
    tmp_path: Path, stoker_home: Path, need: Need
) -> None:
    need("ld.gold")
    one, gone = tmp_path / "one", tmp_path / "gone"
    one.mkdir()
    keep_links(one, [tuned("old")])
    keep_links(one, [tuned("a"), tuned("b")])
    keep_links(gone, [tuned("c")])
    (stoker_home / "state/linkers/damaged.json").write_text("{")
    choice = choose_linkers(Linker.AUTO)
    assert choice.measured == {"a": CompileMode.GOLD, "b": CompileMode.GOLD}
    assert "2 links" in choice.why
    assert [choice.of(link) for link in ("a", "c", "")] == [
        CompileMode.GOLD,
        CompileMode.DEFAULT,
        CompileMode.DEFAULT,
    ]


@pytest.mark.usefixtures("stoker_home")
def test_a_linker_that_has_changed_is_not_used(tmp_path: Path, need: Need) -> None:
    need("ld.gold")
    keep_links(tmp_path, [tuned("a", version="an older one")])
    choice = choose_linkers(Linker.AUTO)
    assert (choice.measured, choice.every) == ({}, CompileMode.DEFAULT)
    assert "gold is not used: it has changed" in choice.why


def test_a_linker_that_is_not_installed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"there is no program 'ld\.mold'") as refused:
        choose_linkers(Linker.MOLD)
    *install, other = refused.value.hints
    assert all(hint.endswith(" mold") for hint in install)
    assert other.endswith("--linker default")
