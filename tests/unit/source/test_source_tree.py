"""Whole trees: the miniatures, generated trees, and folders that are not source trees."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import PROJECTS
from stoker.model.errors import StorageError, UsageError
from stoker.model.source import FrontEnd, OptionKind, ProjectKind, Submodule
from stoker.source.tree import read_tree


def make(root: Path, **texts: str) -> Path:
    """A tree of files given by their names with ``__`` for a dot."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / name.replace("__", ".")).write_text(text)
    return root


def test_a_pytorch_tree() -> None:
    tree = read_tree(PROJECTS / "mini-pytorch")
    assert (tree.kind, tree.name, tree.version) == (ProjectKind.PYTORCH, "torch", "2.6.0a0")
    assert tree.front_end is FrontEnd.SETUPTOOLS
    assert tree.submodules == (
        Submodule(path="third_party/fmt", present=True),
        Submodule(path="third_party/protobuf", present=False),
    )
    assert tree.own_protobuf is False
    assert tree.cuda_archs == (
        *("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0"),
    )
    assert tree.backends == ("cpu", "cuda", "rocm", "xpu", "mps", "vulkan")
    assert tree.requirements == ("setuptools", "wheel", "numpy", "typing-extensions>=4.10.0")
    assert tree.notes == ()


def test_a_pytorch_tree_lacks_what_its_setup_copies(tmp_path: Path) -> None:
    root = tmp_path / "pytorch"
    shutil.copytree(PROJECTS / "mini-pytorch", root)
    with (root / "setup.py").open("a") as setup:
        setup.write('KERNEL = CWD / "third_party/cutlass/grouped_gemm.py"\n')
    assert read_tree(root).lacks == ("third_party/cutlass/grouped_gemm.py",)
    (root / "third_party/cutlass").mkdir()
    (root / "third_party/cutlass/grouped_gemm.py").touch()
    assert read_tree(root).lacks == ()


def test_options_of_a_pytorch_tree() -> None:
    tree = read_tree(PROJECTS / "mini-pytorch")
    cudnn, vulkan = tree.option("USE_CUDNN"), tree.option("USE_VULKAN")
    assert cudnn is not None
    assert (cudnn.kind, cudnn.condition, cudnn.otherwise) == (
        OptionKind.DEPENDENT,
        "USE_CUDA",
        "OFF",
    )
    assert vulkan is not None
    assert (vulkan.condition, vulkan.within) == ("ANDROID", "NOT DEFINED USE_VULKAN")
    assert tree.option("USE_CUDDN") is None
    assert "USE_CUDDN" not in tree.variables
    assert {"TORCH_CUDA_ARCH_LIST", "BUILD_GMOCK", "MPS_FOUND"} <= set(tree.variables)
    assert {"FMT_INSTALL", "NOT_AN_OPTION"}.isdisjoint(
        {*tree.variables, *(option.name for option in tree.options)}
    )


def test_an_option_declared_twice_is_the_one_outside_any_condition() -> None:
    tree = read_tree(PROJECTS / "mini-pytorch")
    declared = [option for option in tree.options if option.name == "USE_DISTRIBUTED"]
    assert [(option.kind, option.default) for option in declared] == [
        (OptionKind.CACHED, "OFF"),
        (OptionKind.OPTION, "ON"),
    ]
    assert tree.option("USE_DISTRIBUTED") == declared[1]
    blas = tree.option("BLAS")
    assert blas is not None
    assert (blas.default, blas.within) == ("MKL", "NOT INTERN_BUILD_MOBILE")


def test_a_pytorch_tree_without_setup() -> None:
    tree = read_tree(PROJECTS / "mini-pytorch-skbuild")
    assert (tree.kind, tree.name, tree.version) == (ProjectKind.PYTORCH, "torch", "2.14.0a0")
    assert tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
    assert tree.submodules == ()
    assert tree.cuda_archs[-2:] == ("12.0", "12.0a")
    assert tree.cmake_minimum == "3.27"
    assert tree.requirements[:3] == ("scikit-build-core>=1.0", "numpy", "pyyaml")
    assert "filelock" not in tree.requirements


def test_an_extension() -> None:
    tree = read_tree(PROJECTS / "mini-extension")
    assert (tree.kind, tree.name, tree.version) == (
        ProjectKind.EXTENSION,
        "mini-extension",
        "0.3.1",
    )
    assert tree.front_end is FrontEnd.SETUPTOOLS
    assert tree.requirements == ("setuptools", "torch")
    assert tree.backends == ("cpu", "cuda")
    assert tree.own_protobuf is None
    assert tree.notes == ()


def test_a_cmake_project() -> None:
    tree = read_tree(PROJECTS / "mini-cmake")
    assert (tree.kind, tree.name, tree.version) == (ProjectKind.CMAKE, "minicmake", "1.4.2")
    assert tree.front_end is FrontEnd.CMAKE
    assert [option.name for option in tree.options] == ["MINI_CUDA", "MINI_TESTS", "MINI_ROUNDS"]
    assert tree.backends == ("cpu", "cuda")
    assert tree.requirements == ()


def test_torch_among_the_requirements_needs_native_sources(tmp_path: Path) -> None:
    root = make(tmp_path, pyproject__toml='[build-system]\nrequires = ["torch>=2", "setuptools"]')
    with pytest.raises(UsageError):
        read_tree(root)
    make(root / "csrc", op__cpp="")
    tree = read_tree(root)
    assert (tree.kind, tree.name) == (ProjectKind.EXTENSION, tmp_path.name)
    assert tree.requirements == ("torch>=2", "setuptools")
    assert tree.backends == ("cpu",)


def test_a_version_in_a_file_of_its_own(tmp_path: Path) -> None:
    root = make(tmp_path, CMakeLists__txt="project(a VERSION 1.0)", version__txt="2.0.0a0\n")
    assert read_tree(root).version == "2.0.0a0"
    make(root, version__txt="unknown")
    tree = read_tree(root)
    assert (tree.version, tree.notes) == ("1.0", ("version.txt: does not hold a version",))


def test_a_package_built_by_cmake_without_torch(tmp_path: Path) -> None:
    build_system = 'requires = ["scikit-build-core"]\nbuild-backend = "scikit_build_core.build"'
    root = make(
        tmp_path,
        CMakeLists__txt="project(native VERSION 1.0 LANGUAGES CXX HIP)",
        pyproject__toml=f'[build-system]\n{build_system}\n[project]\nname = "pkg"',
    )
    tree = read_tree(root)
    assert (tree.kind, tree.front_end) == (ProjectKind.CMAKE, FrontEnd.SCIKIT_BUILD_CORE)
    assert (tree.name, tree.version, tree.backends) == ("pkg", "1.0", ("cpu", "rocm"))


def test_a_cut_file_leaves_a_note_and_the_rest(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(PROJECTS / "mini-pytorch", root)
    text = (root / "CMakeLists.txt").read_text()
    (root / "CMakeLists.txt").write_text(text[: text.index("The NCCL of this machine")])
    tree = read_tree(root)
    line = text[: text.index('"The NCCL of this machine')].count("\n") + 1
    assert tree.notes == (
        f"CMakeLists.txt:{line}: the quoted argument is never closed; what follows was not read",
    )
    assert tree.option("USE_NCCL") is not None
    assert tree.option("USE_SYSTEM_NCCL") is None
    assert tree.option("BLAS") is not None


def test_one_tree_has_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "tree", CMakeLists__txt="project(a)")
    (tmp_path / "link").symlink_to("tree")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "tree")
    paths = {read_tree(Path(way)).path for way in (".", "../link", "~/tree", tmp_path / "link")}
    assert paths == {str((tmp_path / "tree").resolve())}


def test_paths_with_null_bytes_are_not_there(tmp_path: Path) -> None:
    tree = read_tree(
        make(
            tmp_path,
            CMakeLists__txt="project(a)",
            __gitmodules="path = a\0b\npath =\n",
            setup__py="setup(name='a\\0b')",
        )
    )
    assert tree.submodules == (Submodule(path="a\0b", present=False),)
    assert tree.version is None


def refused(path: Path) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        read_tree(path)
    return str(caught.value), "\n".join(caught.value.hints)


def test_a_folder_that_is_none() -> None:
    message, hints = refused(PROJECTS / "not-a-project")
    assert message.endswith("not-a-project is not a source tree that stoker builds")
    assert "looked for: CMakeLists.txt; setup.py or pyproject.toml of a package with C" in hints
    assert "found: README.md, notes.py" in hints


def test_a_plain_python_package(tmp_path: Path) -> None:
    _, hints = refused(make(tmp_path, setup__py="from setuptools import setup\nsetup()"))
    assert "a Python package without code to compile" in hints
    assert "`stoker run -- pip wheel " in hints


def test_a_package_of_rust_is_named_as_one(tmp_path: Path) -> None:
    said = '[build-system]\nrequires = ["maturin>=1"]\nbuild-backend = "maturin"\n'
    _, hints = refused(make(tmp_path, pyproject__toml=said, Cargo__toml="[package]\n"))
    assert "a Python package whose code is Rust: `stoker run -- pip wheel " in hints


def test_the_folder_above(tmp_path: Path) -> None:
    make(tmp_path / "llvm", CMakeLists__txt="project(LLVM)")
    assert f"did you mean {tmp_path / 'llvm'}?" in refused(tmp_path)[1]


def test_an_empty_folder(tmp_path: Path) -> None:
    assert refused(tmp_path)[0] == f"{tmp_path} is an empty folder"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "pytorch").mkdir()
    message, hints = refused(tmp_path / "pytroch")
    assert message == f"there is no folder {tmp_path / 'pytroch'}"
    assert hints == f"did you mean {tmp_path / 'pytorch'}?"
    assert refused(tmp_path / "no" / "such")[1] == ""


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StorageError, match="cannot read"):
        read_tree(tmp_path / "loop")


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "torch-2.6.0.tar.gz").touch()
    message, hints = refused(tmp_path / "torch-2.6.0.tar.gz")
    assert message.endswith("torch-2.6.0.tar.gz is not a folder")
    assert hints == "unpack it first"


CONTENTS = st.binary() | st.text().map(str.encode)
READ = dict.fromkeys(
    (
        *("CMakeLists.txt", "version.txt", "torch/utils/cpp_extension.py", "setup.py"),
        *("pyproject.toml", "PKG-INFO", "requirements.txt", ".gitmodules"),
    ),
    CONTENTS,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({}, optional=READ))
def test_no_content_is_too_strange(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    try:
        kind = read_tree(root).kind
    except UsageError:
        kind = None
    assert (kind is not None) == ("CMakeLists.txt" in contents)


SETUP = """
from setuptools import Extension, setup

setup(name="mini", ext_modules=[Extension("mini", ["mini.cpp"])])
"""


def test_a_setup_that_compiles_alone_uses_no_cmake(tmp_path: Path) -> None:
    """The CMakeLists.txt of hnswlib is for users of C++, and the plan said that CMake reads."""
    cmake = "cmake_minimum_required(VERSION 3.18)\nproject(mini)\n"
    sources = {"CMakeLists__txt": cmake, "mini__cpp": "int mini;\n"}
    tree = read_tree(make(tmp_path / "alone", setup__py=SETUP, **sources))
    assert (tree.kind, tree.front_end) == (ProjectKind.PACKAGE, FrontEnd.SETUPTOOLS)
    assert "CMake" not in tree.readers
    by_tool = SETUP + "import subprocess, tool\nsubprocess.run([tool.name])\n"
    tree = read_tree(make(tmp_path / "tool", setup__py=by_tool, **sources))
    assert tree.kind is ProjectKind.CMAKE


def test_extensions_of_vendored_sources_make_a_package(tmp_path: Path) -> None:
    """All sources of faiss-cpu are below third-party, and it was called a package without code."""
    setup = """from setuptools import Extension, setup
setup(name="mini", ext_modules=[Extension("mini", ["third-party/mini/mini.i"])])
"""
    tree = make(tmp_path, setup__py=setup)
    (tree / "third-party/mini").mkdir(parents=True)
    (tree / "third-party/mini/mini.i").write_text("%module mini\n")
    assert read_tree(tree).kind is ProjectKind.PACKAGE


def test_a_cmake_project_outside_of_a_package_is_named(tmp_path: Path) -> None:
    """cufinufft was called a package without code to compile."""
    said = """
        [build-system]
        requires = ["scikit-build-core"]
        build-backend = "scikit_build_core.build"
        [project]
        name = "mini"
        version = "1.0"
        [tool.scikit-build]
        cmake.source-dir = "../../"
    """
    package = tmp_path / "python" / "mini"
    make(package, pyproject__toml=said)
    with pytest.raises(UsageError) as without:
        read_tree(package)
    assert str(tmp_path) + "`" not in "".join(without.value.hints)
    make(tmp_path, CMakeLists__txt="project(mini)\n")
    with pytest.raises(UsageError) as refused:
        read_tree(package)
    first, second = refused.value.hints
    assert f"`stoker plan --source {tmp_path}`" in first
    assert second == f"the package itself: `stoker run -- pip wheel {package}`"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("all:\n\tnvcc a.cu\n", "`stoker run make`"),
        (
            "ifndef GPU_COMPUTE_CAPABILITY\n  GPU_COMPUTE_CAPABILITY = 80\nendif\n",
            "`stoker run make GPU_COMPUTE_CAPABILITY='90'`",
        ),
        (
            "NVCC_GENCODE ?= -gencode=arch=compute_80,code=sm_80\n",
            "`stoker run make NVCC_GENCODE='-gencode=arch=compute_90,code=sm_90'`",
        ),
    ],
)
def test_a_tree_with_only_a_makefile(tmp_path: Path, text: str, command: str) -> None:
    (tmp_path / "Makefile").write_text(text)
    with pytest.raises(UsageError) as refused:
        read_tree(tmp_path)
    assert f"its Makefile builds it: {command}" in refused.value.hints
