"""The tree of a real PyTorch 2.6.0, whose folder STOKER_PYTORCH_TREE names."""

import os
from collections import Counter
from pathlib import Path

import pytest

from conftest import PROJECTS, missing
from stoker.model.source import FrontEnd, OptionKind, ProjectKind, SourceTree
from stoker.source.tree import read_tree

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    path = os.environ.get("STOKER_PYTORCH_TREE")
    if not path:
        missing("STOKER_PYTORCH_TREE does not name a tree of PyTorch 2.6.0")
    found = read_tree(Path(path))
    if not (found.version or "").startswith("2.6.0"):
        missing(f"{path} is PyTorch {found.version}, not 2.6.0")
    return found


def test_what_it_is(tree: SourceTree) -> None:
    assert (tree.kind, tree.name) == (ProjectKind.PYTORCH, "torch")
    assert tree.front_end is FrontEnd.SETUPTOOLS
    assert tree.backends == ("cpu", "cuda", "rocm", "xpu", "mps", "vulkan")
    assert {"9.0", "9.0a", "10.0"} <= set(tree.cuda_archs)
    assert {"pyyaml", "typing-extensions>=4.10.0", "wheel"} <= set(tree.requirements)
    assert tree.notes == ()


def test_every_option_of_the_root_is_found(tree: SourceTree) -> None:
    counted = Counter(option.kind for option in tree.options if option.file == "CMakeLists.txt")
    # 76 are written option(), one OPTION().
    assert counted[OptionKind.OPTION] == 77
    assert counted[OptionKind.DEPENDENT] == 42


def test_an_option_that_depends_on_another(tree: SourceTree) -> None:
    cudnn = tree.option("USE_CUDNN")
    assert cudnn is not None
    assert (cudnn.kind, cudnn.default) == (OptionKind.DEPENDENT, "ON")
    assert (cudnn.condition, cudnn.otherwise) == ("USE_CUDA", "OFF")


def test_names_that_can_be_set_are_known_and_misspelt_ones_are_not(tree: SourceTree) -> None:
    known = {*tree.variables, *(option.name for option in tree.options)}
    assert {"BLAS", "TORCH_CUDA_ARCH_LIST", "CUDAToolkit_ROOT", "Numa_LIBRARIES"} <= known
    assert {"USE_CUDDN", "USE_NCLL", "USE_QNNPACK"}.isdisjoint(known)


def test_the_miniature_declares_its_options_as_the_real_tree_does(tree: SourceTree) -> None:
    for option in read_tree(PROJECTS / "mini-pytorch").options:
        real = [other for other in tree.options if other.name == option.name]
        facts = (option.kind, option.default, option.condition, option.otherwise, option.within)
        assert facts in [(o.kind, o.default, o.condition, o.otherwise, o.within) for o in real]
