"""Plans of a real PyTorch tree; its folder comes from STOKER_PYTORCH_TREE."""

import json
import os
import re
from pathlib import Path

import pytest

from conftest import Stoker, missing

pytestmark = pytest.mark.heavy


@pytest.fixture
def tree() -> str:
    path = os.environ.get("STOKER_PYTORCH_TREE")
    return path or missing("STOKER_PYTORCH_TREE is not set")


@pytest.mark.parametrize(
    "variant", ["cu124-sm90-avx512", "cpu-avx2-mkl", "rocm6.2-gfx942", "xpu", "cpu-asan-debug"]
)
def test_every_option_set_exists_in_the_tree(stoker: Stoker, tree: str, variant: str) -> None:
    done = stoker("plan", variant, "--platform", "linux-x86_64", "--source", tree, "--json")
    assert done.returncode == 0, done.stderr
    options = {name for name in json.loads(done.stdout)["cmake"] if not name.startswith("CMAKE_")}
    files = [Path(tree, "CMakeLists.txt"), *Path(tree, "cmake").rglob("*.cmake")]
    text = "\n".join(file.read_text(errors="replace") for file in files)
    assert [name for name in options if not re.search(rf"\(\s*{name}\b", text)] == []


def test_the_plan_of_the_issue(stoker: Stoker, tree: str) -> None:
    done = stoker(
        "plan", "cu124-sm90-avx512", "--platform", "linux-x86_64", "--source", tree, "--json"
    )
    plan = json.loads(done.stdout)
    assert plan["environment"]["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert plan["environment"]["USE_CUDA"] == "1"


def test_misspelt_option(stoker: Stoker, tree: str) -> None:
    done = stoker("plan", "cu124-sm90", "-D", "USE_CUDDN=1", "--source", tree)
    assert done.returncode == 2
    assert "USE_CUDNN" in done.stderr
