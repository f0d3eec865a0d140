"""The Python package of a tree, read without running its code."""

from pathlib import Path

import pytest

from stoker.model.source import FrontEnd
from stoker.source.files import TreeFiles
from stoker.source.package import Package, read_package
from stoker.source.python_code import read_cuda_archs


def read(folder: Path, **texts: str) -> tuple[Package, list[str]]:
    """The package of files given as ``setup_py=...``, where ``__`` stands for a folder."""
    names = {"setup_py": "setup.py", "pyproject": "pyproject.toml", "pkg_info": "PKG-INFO"}
    for key, text in texts.items():
        path = folder / names.get(key, f"{key.replace('__', '/')}/__init__.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = TreeFiles(folder)
    return read_package(files), files.notes


def test_metadata_of_an_sdist_comes_first(tmp_path: Path) -> None:
    package, _ = read(
        tmp_path,
        pkg_info="Metadata-Version: 2.1\nName: from-sdist\nVersion: 1.0\n\nVersion: 9",
        pyproject='[project]\nname = "from-pyproject"\nversion = "2.0"',
        setup_py='setup(name="from-setup", version="3.0")',
    )
    assert (package.name, package.version) == ("from-sdist", "1.0")


def test_pyproject_then_setup(tmp_path: Path) -> None:
    package, _ = read(
        tmp_path,
        pyproject='[project]\nname = "from-pyproject"\ndynamic = ["version"]',
        setup_py='VERSION = "3.0"\nsetuptools.setup(name="from-setup", version=VERSION)',
    )
    assert (package.name, package.version) == ("from-pyproject", "3.0")


@pytest.mark.parametrize("place", ["my_pkg", "src__my_pkg"])
def test_the_version_of_the_module(tmp_path: Path, place: str) -> None:
    package, _ = read(
        tmp_path,
        setup_py="setup(name='My.Pkg', version=get_version())",
        **{place: "__version__: str = '4.5'"},
    )
    assert (package.name, package.version) == ("My.Pkg", "4.5")


def test_a_version_that_may_be_another_is_none(tmp_path: Path) -> None:
    code = "try:\n    from .v import __version__\nexcept ImportError:\n    __version__ = '0.0'"
    package, _ = read(tmp_path, setup_py="setup(name='pkg')", pkg=code)
    assert package.version is None


def test_code_of_the_tree_is_not_run(tmp_path: Path) -> None:
    package, notes = read(
        tmp_path, setup_py="raise SystemExit('run!')\nsetup(name=compute(), version=f'{1}')"
    )
    assert (package.name, package.version, notes) == (None, None, [])


@pytest.mark.parametrize(
    ("build_system", "expected"),
    [
        ('requires = ["setuptools"]', FrontEnd.SETUPTOOLS),
        ('requires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"', FrontEnd.SETUPTOOLS),
        (
            'requires = ["scikit-build-core>=1"]\nbuild-backend = "scikit_build_core.build"',
            FrontEnd.SCIKIT_BUILD_CORE,
        ),
        (
            'requires = ["scikit_build_core"]\nbuild-backend = "ours"\nbackend-path = ["tools"]',
            FrontEnd.SCIKIT_BUILD_CORE,
        ),
        ('requires = ["hatchling"]\nbuild-backend = "hatchling.build"', FrontEnd.OTHER_BACKEND),
    ],
)
def test_the_front_end(tmp_path: Path, build_system: str, expected: FrontEnd) -> None:
    package, _ = read(tmp_path, pyproject=f"[build-system]\n{build_system}")
    assert package.front_end is expected


def test_without_a_build_system_setuptools_builds_what_is_a_package(tmp_path: Path) -> None:
    package, _ = read(tmp_path, pyproject="[tool.black]\nline-length = 88")
    assert (package.front_end, package.requirements) == (None, ())
    package, _ = read(tmp_path, setup_py="setup()")
    assert (package.front_end, package.requirements) == (FrontEnd.SETUPTOOLS, ("setuptools",))


@pytest.mark.parametrize(
    "line",
    [
        "from torch.utils.cpp_extension import CUDAExtension",
        "from torch.utils import cpp_extension\ncpp_extension.CUDAExtension('x', [])",
        "import torch.utils.cpp_extension as c\nc.CUDAExtension('x', [])",
        "import torch\ntorch.utils.cpp_extension.CUDAExtension('x', [])",
        "def later():\n    from torch.utils.cpp_extension import CUDAExtension",
        "from torch.utils.cpp_extension import CUDAExtension\nmatch x: the newest syntax\n",
    ],
)
def test_the_use_of_torch_is_seen(tmp_path: Path, line: str) -> None:
    package, _ = read(tmp_path, setup_py=line)
    assert package.torch_names is not None
    assert {"cpp_extension", "CUDAExtension"} <= package.torch_names


@pytest.mark.parametrize(
    "line", ["import torchgen", "# import torch", "print('import torch')", "import numpy"]
)
def test_what_only_looks_like_torch(tmp_path: Path, line: str) -> None:
    package, _ = read(tmp_path, setup_py=line)
    assert package.torch_names is None


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        ({"setup_py": "x = 1\nsetup(\n"}, "setup.py:2: not understood: '(' was never closed"),
        ({"setup_py": "x = '\\d'\nsetup(name='a')"}, None),
        ({"pyproject": "[project\n"}, "pyproject.toml: not understood: "),
        ({"pyproject": "[project]\nname = 3"}, "pyproject.toml: not understood: Expected `str"),
        ({"pyproject": f"a = {'[' * 100_000}"}, "pyproject.toml: not understood: "),
        ({"setup_py": "x = " + "-" * 200_000 + "1"}, "setup.py"),
        ({"setup_py": "x\0"}, "setup.py"),
        ({"pyproject": '[build-system]\nrequires = ["a b"]'}, "pyproject.toml: not a requirement"),
    ],
)
def test_what_is_not_understood_is_noted(
    tmp_path: Path, texts: dict[str, str], note: str | None
) -> None:
    _, notes = read(tmp_path, **texts)
    assert len(notes) == (note is not None)
    assert not note or notes[0].startswith(note)


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    supported_arches = ['8.0', '9.0a']",
        "SUPPORTED_ARCHES: list[str] = ['8.0'] + ['9.0a', '8.0']",
        "_SUPPORTED_CUDA_ARCHES = {'8.0': 'Ampere', '9.0a': ('Hopper', None)}",
        "supported_archs = ('8.0', '9.0a', '9.0+PTX', 'Hopper', 9.0)",
    ],
)
def test_architectures_in_any_shape(tmp_path: Path, code: str) -> None:
    (tmp_path / "torch/utils").mkdir(parents=True)
    (tmp_path / "torch/utils/cpp_extension.py").write_text(code)
    files = TreeFiles(tmp_path)
    assert read_cuda_archs(files) == ("8.0", "9.0a")
    assert files.notes == []


def test_no_architectures_is_noted(tmp_path: Path) -> None:
    (tmp_path / "torch/utils").mkdir(parents=True)
    (tmp_path / "torch/utils/cpp_extension.py").write_text("arches = supported_arches()")
    files = TreeFiles(tmp_path)
    assert read_cuda_archs(files) == ()
    assert files.notes == ["torch/utils/cpp_extension.py: no list of supported architectures found"]
