"""How each kind of tree is built, and where its output is."""

from pathlib import Path
from typing import Any

import pytest

from stoker.builds.route import Route, choose_route
from stoker.model.build import BuildRequest, BuildStage
from stoker.model.errors import UsageError
from stoker.model.source import FrontEnd, SourceTree
from subjects import cmake_tree, extension_tree, plan, pytorch_tree

BUILD = Path("/builds/demo")


def way(tree: SourceTree, words: str = "cpu", **asked: Any) -> Route:
    request = BuildRequest(source=tree.path, **asked)
    return choose_route(
        plan(words, tree=tree), tree, request, build=BUILD, python="/env/bin/python"
    )


SKBUILD = cmake_tree(front_end=FrontEnd.SCIKIT_BUILD_CORE)


@pytest.mark.parametrize(
    ("tree", "asked", "last"),
    [
        (cmake_tree(), {}, BuildStage.INSTALL),
        (cmake_tree(), {"editable": True}, BuildStage.COMPILE),
        (SKBUILD, {}, BuildStage.WHEEL),
        (SKBUILD, {"install_tree": True}, BuildStage.INSTALL),
        (SKBUILD, {"target": "core"}, BuildStage.COMPILE),
        (pytorch_tree(), {}, BuildStage.WHEEL),
        (pytorch_tree(), {"target": "c10"}, BuildStage.COMPILE),
        (pytorch_tree(), {"install_tree": True}, BuildStage.INSTALL),
        (extension_tree(), {}, BuildStage.WHEEL),
    ],
)
def test_where_it_ends(tree: SourceTree, asked: dict[str, Any], last: BuildStage) -> None:
    assert way(tree, **asked).last is last


def test_a_cmake_project_is_built_outside_its_tree() -> None:
    found = way(cmake_tree())
    assert found.build == BUILD
    assert not found.in_tree
    assert found.configure[:7] == ("cmake", "-S", "/src/demo", "-B", "/builds/demo", "-G", "Ninja")
    assert "-DCMAKE_BUILD_TYPE=Release" in found.configure
    assert found.settings == {}


@pytest.mark.parametrize("asked", [{}, {"target": "core"}])
def test_scikit_build_core_configures_itself(asked: dict[str, Any]) -> None:
    """It knows the search paths of packages and the options of pyproject.toml."""
    found = way(SKBUILD, "cpu", **asked)
    assert found.by_back_end
    assert found.configure == ()
    assert found.settings["build-dir"] == "/builds/demo"
    assert found.settings["cmake.build-type"] == "Release"
    assert found.settings["cmake.define.CMAKE_BUILD_RPATH_USE_ORIGIN"] == "ON"


@pytest.mark.parametrize("asked", [{}, {"target": "c10"}, {"editable": True}])
def test_pytorch_up_to_2_13_configures_itself_in_its_tree(asked: dict[str, Any]) -> None:
    found = way(pytorch_tree(), **asked)
    assert found.configure == ("/env/bin/python", "setup.py", "build", "--cmake-only")
    assert found.build == Path("/src/pytorch/build")
    assert found.in_tree


@pytest.mark.parametrize(
    ("words", "asked"), [("cpu", {"install_tree": True}), ("cpu-nobindings", {})]
)
def test_pytorch_without_python_is_plain_cmake(words: str, asked: dict[str, Any]) -> None:
    found = way(pytorch_tree(), words, **asked)
    assert found.configure[0] == "cmake"
    assert found.build == BUILD
    assert found.last is BuildStage.INSTALL


@pytest.mark.parametrize("asked", [{"target": "core"}, {"install_tree": True}])
def test_a_back_end_without_cmake_has_no_targets(asked: dict[str, Any]) -> None:
    """The option was ignored, and a whole wheel was built."""
    with pytest.raises(UsageError, match=r"is built by setup\.py"):
        way(extension_tree(), **asked)


def test_an_extension_compiles_by_itself() -> None:
    found = way(extension_tree())
    assert found.configure == ()
    assert found.build == BUILD
