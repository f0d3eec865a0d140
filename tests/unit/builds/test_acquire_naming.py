"""Interpreting the user's word for a source."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.acquire.naming import Named, parse_source
from stoker.model.errors import StokerError, UsageError
from stoker.model.source import SourceKind

GIT, INDEX = SourceKind.GIT, SourceKind.INDEX


@pytest.mark.parametrize(
    ("given", "kind", "place", "reference"),
    [
        ("https://host/group/x.git@v1.0", GIT, "https://host/group/x.git", "v1.0"),
        ("https://host/group/x", GIT, "https://host/group/x", None),
        ("https://me:secret@host/x.git@v1", GIT, "https://me:secret@host/x.git", "v1"),
        ("https://me@host/x", GIT, "https://me@host/x", None),
        ("https://me@host", GIT, "https://me@host", None),
        ("git+ssh://git@host/x@release/2.6", GIT, "ssh://git@host/x", "release/2.6"),
        ("git@host:group/x.git@v1+cu13", GIT, "git@host:group/x.git", "v1+cu13"),
        ("git@host:group/x.git", GIT, "git@host:group/x.git", None),
        ("file:///srv/x@v1", GIT, "file:///srv/x", "v1"),
        ("Torch_Scatter==2.1.2", INDEX, "torch-scatter", "2.1.2"),
        (" torch == 2.6.0+cpu ", INDEX, "torch", "2.6.0+cpu"),
        ("flash-attn==2.8.0.POST1", INDEX, "flash-attn", "2.8.0.post1"),
    ],
)
def test_words(given: str, kind: SourceKind, place: str, reference: str | None) -> None:
    assert parse_source(given) == Named(kind=kind, place=place, reference=reference)


def test_what_is_there_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("torch==2.6.0", "a@b"):
        Path(name).mkdir()
        assert parse_source(name).kind is SourceKind.FOLDER
    Path("a@b/.git").mkdir()
    assert parse_source("a@b@v1") == Named(kind=GIT, place=str(tmp_path / "a@b"), reference="v1")
    Path("x.tar.gz").touch()
    assert parse_source("./x.tar.gz").kind is SourceKind.ARCHIVE


def test_credentials_are_not_shown() -> None:
    assert parse_source("https://me:secret@host/x.git@v1").shown == "https://host/x.git@v1"
    assert parse_source("https://token@host/x.git").shown == "https://host/x.git"
    assert parse_source("https://me:p@ss#?@host/x.git@v1").shown == "https://host/x.git@v1"
    assert parse_source("ssh://me:secret@host/x.git").shown == "ssh://me@host/x.git"
    assert "secret" not in parse_source("https://host/x.git?private_token=secret").shown
    assert parse_source("ssh://git@host/x.git").shown == "ssh://git@host/x.git"
    assert parse_source("git@host:x.git@v1").shown == "git@host:x.git@v1"
    assert parse_source("Torch==2.6").shown == "torch==2.6"
    assert parse_source("Py_ZMQ").shown == "py-zmq"


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("", "no source", "a source is"),
        ("pytroch", "there is no pytroch", "did you mean pytorch"),
        ("nothing/like-it", "there is no", "a source is"),
        ("~no-such-user/x", "there is no", "a source is"),
        ("https://host/x/v1.tar.gz", "is an archive", "curl -LO"),
        ("https://me:secret@host/x.zip", "https://host/x.zip is", "curl -LO https://host/x.zip"),
        ("torch>=2.6", "not one version", "torch==2.1.2"),
    ],
)
def test_words_that_name_nothing(
    given: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pytorch").mkdir()
    with pytest.raises(UsageError, match=message) as caught:
        parse_source(given)
    assert any(hint in line for line in caught.value.hints)


@pytest.mark.parametrize("given", ["x.tar.gz", "torch==2.6"])
def test_only_git_has_tags(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.tar.gz").touch()
    with pytest.raises(UsageError, match="only git has tags"):
        parse_source(given, "v1")


@given(st.text(), st.none() | st.text())
def test_any_word(word: str, tag: str | None) -> None:
    try:
        named = parse_source(word, tag)
    except StokerError:
        return
    assert not (named.reference or "").startswith("-")
    assert not named.place.startswith("-")
