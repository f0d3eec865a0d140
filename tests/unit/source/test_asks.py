"""Which variables a build reads, and where, found without running it."""

from pathlib import Path

import pytest

from stoker.model.source import SourceTree
from stoker.source.asks import PythonAsks, read_python_asks
from stoker.source.files import TreeFiles
from stoker.source.tree import read_tree


def asked(folder: Path, text: str, **modules: str) -> PythonAsks:
    (folder / "setup.py").write_text(text)
    for name, content in modules.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return read_python_asks(TreeFiles(folder), ("setup.py",))


def places(found: PythonAsks) -> dict[str, str]:
    return {ask.name: ask.where for ask in found.asks}


def test_every_way_to_read_the_environment(tmp_path: Path) -> None:
    text = """import os
from os import environ, getenv
a = os.environ["MY_FIRST"]
b = os.environ.get("MY_SECOND", "1")
c = os.getenv("MY_THIRD")
d = "MY_FOURTH" in environ
e = getenv("MY_FIFTH")
os.environ["MY_OWN"] = "1"
"""
    found = asked(tmp_path, text)
    numbers = ("FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH")
    assert places(found) == {f"MY_{n}": f"setup.py:{i}" for i, n in enumerate(numbers, start=3)}
    assert [ask.name for ask in found.overwrites] == ["MY_OWN"]
    assert {ask.name: ask.default for ask in found.asks}["MY_SECOND"] == "1"


def test_a_function_that_passes_its_argument_on(tmp_path: Path) -> None:
    helper = "import os\ndef flag(name, default='0'):\n    return os.getenv(name, default) == '1'\n"
    found = asked(
        tmp_path, "from tools.env import flag\nx = flag('WITH_KERNELS')\n", tools__env=helper
    )
    assert places(found) == {"WITH_KERNELS": "setup.py:2"}


def test_a_list_of_names_that_are_passed_on(tmp_path: Path) -> None:
    text = "import os\nPASSED = ['MY_CUDA_ARCHS', 'MY_FLAGS']\nfor n in PASSED:\n    os.getenv(n)\n"
    found = asked(tmp_path, text)
    assert places(found) == {"MY_CUDA_ARCHS": "setup.py:2", "MY_FLAGS": "setup.py:2"}
    assert not any(ask.certain for ask in found.asks)


def test_modules_of_the_tree_are_followed_and_others_are_not(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        "import helper, json\n",
        helper="import os\nx = os.getenv('FROM_HELPER')\n",
        unused="import os\nx = os.getenv('NEVER_READ')\n",
    )
    assert places(found) == {"FROM_HELPER": "helper.py:2"}


def test_documentation_and_targets(tmp_path: Path) -> None:
    text = '"""Sets arch=compute_75."""\nflags = ["-gencode=arch=compute_80,code=sm_80"]\n'
    assert [target.where for target in asked(tmp_path, text).code.targets] == ["setup.py:2"]


def test_a_file_that_is_no_python(tmp_path: Path) -> None:
    assert asked(tmp_path, "def (:\n").asks == ()


def cmake(folder: Path, text: str) -> SourceTree:
    (folder / "CMakeLists.txt").write_text(text)
    return read_tree(folder)


def test_what_cmake_reads(tmp_path: Path) -> None:
    tree = cmake(
        tmp_path,
        'project(lib)\noption(LIB_CUDA "CUDA" OFF)\nset(LIB_ARCHS "75" CACHE STRING "archs")\n'
        'if(NOT DEFINED LIB_OTHER)\nendif()\nset(x "$ENV{LIB_FLAGS}")\n',
    )
    for name, line in (("LIB_CUDA", 2), ("LIB_ARCHS", 3), ("LIB_OTHER", 4)):
        ask = tree.ask(name, environment=False)
        assert ask
        assert ask.where == f"CMakeLists.txt:{line}"
    flags = tree.ask("LIB_FLAGS", environment=True)
    assert flags
    assert flags.where == "CMakeLists.txt:6"
    assert tree.ask("LIB_FLAGS", environment=False) is None


@pytest.mark.parametrize(
    ("test", "replaces"),
    [
        ('os.getenv("CUDA_ARCHS") is None', False),
        ('os.environ.get("CUDA_ARCHS", None) is None', False),
        ('"CUDA_ARCHS" not in os.environ', False),
        ('not os.environ.get("CUDA_ARCHS")', False),
        ('os.environ.get("CUDA_ARCHS", "") == ""', False),
        ('"CUDA_ARCHS" in os.environ', True),
        ('os.environ.get("OTHER") is None', True),
    ],
)
def test_a_default_is_no_overwriting(tmp_path: Path, test: str, replaces: bool) -> None:
    text = f'import os\nif {test}:\n    if old:\n        os.environ["CUDA_ARCHS"] = "7.0"\n'
    found = asked(tmp_path, text)
    assert [ask.name for ask in found.overwrites] == (["CUDA_ARCHS"] if replaces else [])
