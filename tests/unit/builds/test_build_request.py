"""The request of a build: settings that fill it in, and records that it is read from."""

import msgspec
import pytest

from stoker.builds.back_end_python import build_requirements
from stoker.cli.build import build
from stoker.cli.building import with_options
from stoker.cli.chosen import with_settings
from stoker.model.build import BuildRequest, Isolation
from stoker.model.errors import UsageError
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.settings.declared import BUILD_SETTINGS

RECORDED = BuildRequest(
    source="torch-scatter==2.1.2",
    out="elsewhere",
    mode="pypi",
    isolation=Isolation.FULL,
    install_tree=True,
    torch="2.9.1",
    accept_targets=True,
)


def test_every_setting_of_a_build_is_in_its_request() -> None:
    """A name that is missing in one of two places was dropped without a word."""
    assert set(BUILD_SETTINGS) <= set(BuildRequest.__struct_fields__)


def repeated(*words: str) -> BuildRequest:
    context = build.make_context("build", ["--from-record", "x", *words])
    with context:
        options = with_settings(dict(context.params), recorded=True)
    return with_options(RECORDED, options, editable=False)


def test_a_record_is_repeated_as_it_is() -> None:
    assert repeated() == msgspec.structs.replace(RECORDED, out="dist")


def test_options_that_are_false_replace_those_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RECORDED.accept_targets
    assert not repeated("--no-accept-targets").accept_targets
    assert repeated("--mode", "plain").mode == "plain"
    monkeypatch.setenv("STOKER_ACCEPT_TARGETS", "0")
    assert repeated().accept_targets, "only the command line replaces what was recorded"


def tree(*requirements: str) -> SourceTree:
    return SourceTree(
        path="/src",
        kind=ProjectKind.EXTENSION,
        name="warm",
        version="1.0",
        front_end=FrontEnd.SETUPTOOLS,
        requirements=requirements,
    )


@pytest.mark.parametrize(
    ("torch", "line"),
    [
        ("2.9.1", "torch==2.9.1"),
        ("torch==2.9.1+cu126", "torch==2.9.1+cu126"),
        ("torch @ https://example.org/torch.whl", "torch @ https://example.org/torch.whl"),
    ],
)
def test_a_named_pytorch_replaces_any(torch: str, line: str) -> None:
    found = build_requirements(tree("numpy", "torch>=2"), torch)
    assert found[:2] == (line, "numpy")
    assert "torch>=2" not in found
    assert "ninja" in found
    assert build_requirements(tree("numpy", "torch>=2"), None) == ("numpy", "torch>=2")


@pytest.mark.parametrize("torch", ["numpy==2", "9.9.9 nonsense", "]"])
def test_what_is_no_pytorch_is_refused(torch: str) -> None:
    with pytest.raises(UsageError, match="--torch"):
        build_requirements(tree(), torch)
