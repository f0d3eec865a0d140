"""What setup.py says about the code that it compiles: sources, targets, arguments, refusals."""

from pathlib import Path

import pytest

from stoker.source.asks import PythonAsks, read_python_asks
from stoker.source.files import TreeFiles

FLAGS = """
def is_set(flag):
    return os.getenv(flag, "FALSE").lower() in ["true", "1", "y"]
def archs():
    flags = []
    NO_100 = is_set("LIB_DISABLE_SM100")
    if not NO_100:
        flags += ["-gencode", "arch=compute_100f,code=sm_100f"]
    if os.getenv("LIB_WITH_80") == "YES":
        flags += ["-gencode", "arch=compute_80,code=sm_80"]
    if torch.cuda.get_device_name() == "x":
        flags += ["-gencode", "arch=compute_75,code=compute_75"]
    return flags + ["-gencode", "arch=compute_90a,code=sm_90a"]
"""


def asked(folder: Path, text: str) -> PythonAsks:
    (folder / "setup.py").write_text(text)
    return read_python_asks(TreeFiles(folder), ("setup.py",))


def test_targets_and_the_variables_they_depend_on(tmp_path: Path) -> None:
    hundred, eighty, old, ninety = asked(tmp_path, FLAGS).code.targets
    assert (hundred.arch, hundred.where) == ("10.0f", "setup.py:8")
    assert (hundred.variable, hundred.excludes) == ("LIB_DISABLE_SM100", "1")
    assert (eighty.variable, eighty.includes) == ("LIB_WITH_80", "YES")
    assert (old.arch, old.ptx, old.conditional) == ("7.5", True, True)
    assert (ninety.arch, ninety.variable, ninety.conditional) == ("9.0a", "", False)


def test_targets_that_are_computed(tmp_path: Path) -> None:
    text = 'for c in caps:\n    flags += [f"arch=compute_{c},code=sm_{c}"]\n'
    text += "other = archs({80, 86, 90})\nnumbers = [80, 81, 82]\n"
    computed, *single = asked(tmp_path, text).code.targets
    assert (computed.arch, computed.where) == ("", "setup.py:2")
    assert [(each.arch, each.single) for each in single] == [
        ("8.0", True),
        ("8.6", True),
        ("9.0", True),
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('sources = ["a.cpp"]\n', None),
        ('"""Compiles a.cu."""\n', None),
        ('sources = ["a.cpp",\n "b.cu"]\n', "setup.py:2"),
        ('sources = glob.glob(os.path.join(here, "*.cu"))\n', "setup.py:1"),
        ('x = [f for f in files if f.endswith(".cu")]\n', "setup.py:1"),
        ('x = "headers.cuh"\n', None),
        ('raise RuntimeError("no .cu files were found in this tree")\n', None),
    ],
)
def test_sources_for_gpus(tmp_path: Path, text: str, place: str | None) -> None:
    assert asked(tmp_path, text).code.device_source == place


def test_a_build_that_compiles_nothing(tmp_path: Path) -> None:
    assert not asked(tmp_path, "setup(packages=find_packages())\n").code.compiles
    assert asked(tmp_path, "setup(ext_modules=[CppExtension('a', ['a.cpp'])])\n").code.compiles
    assert asked(tmp_path, "subprocess.run(['cmake', '.'])\nsetup()\n").code.compiles


def test_arguments_that_setup_looks_for(tmp_path: Path) -> None:
    text = 'CPU, argv = parse("--cpu_only", argv)\nif "--force_cuda" in sys.argv:\n    pass\n'
    text += 'parser.add_argument("--with-cuda", action="store_true")\nrun(["ls", "--all"])\n'
    left = {flag.name for flag in asked(tmp_path, text).code.flags}
    assert left == {"--cpu_only"}  # setuptools would refuse the others
    text += "sys.argv.remove(x)\n"
    found = {flag.name: flag.where for flag in asked(tmp_path, text).code.flags}
    assert found == {
        "--cpu_only": "setup.py:1",
        "--force_cuda": "setup.py:2",
        "--with-cuda": "setup.py:4",
    }


@pytest.mark.parametrize(
    "text",
    [
        'if cuda_version < Version("12.3"):\n    raise RuntimeError("too old")\n',
        'assert bare_metal_version >= parse("12.3"), "too old"\n',
    ],
)
def test_the_oldest_cuda(tmp_path: Path, text: str) -> None:
    minimum = asked(tmp_path, text).code.cuda_minimum
    assert minimum
    assert (minimum.version, minimum.where) == ("12.3", "setup.py:1")


def test_a_version_that_is_only_compared_is_no_minimum(tmp_path: Path) -> None:
    text = 'if cuda_version < Version("12.3"):\n    flags.append("-O2")\n'
    text += 'if torch_version < Version("2.0"):\n    raise RuntimeError("x")\n'
    assert asked(tmp_path, text).code.cuda_minimum is None


def test_the_oldest_gpu(tmp_path: Path) -> None:
    text = 'if cc < 75:\n    raise RuntimeError("compute capability below 7.5")\n'
    oldest = asked(tmp_path, text).code.oldest_gpu
    assert oldest
    assert (oldest.version, oldest.where) == ("7.5", "setup.py:1")


def test_instructions_of_the_build_machine(tmp_path: Path) -> None:
    found = asked(tmp_path, 'flags = ["-O3", "-march=native"]\n').code.native
    assert [use.where for use in found] == ["setup.py:1"]


@pytest.mark.parametrize(
    "loop",
    [
        "for i, arg in enumerate(sys.argv):\n    if arg == '--enable-cuda-ext':\n        pass\n",
        "argv = list(sys.argv)\nfor a in argv:\n    if a == '--enable-cuda-ext':\n        pass\n",
        "rest = [arg for arg in sys.argv if arg != '--enable-cuda-ext']\n",
    ],
)
def test_an_argument_that_a_loop_compares(tmp_path: Path, loop: str) -> None:
    text = f"import sys\n{loop}for arg in others:\n    x = arg == '--other'\nsys.argv = rest\n"
    assert [flag.name for flag in asked(tmp_path, text).code.flags] == ["--enable-cuda-ext"]
    assert asked(tmp_path, text.replace("sys.argv = rest", "")).code.flags == ()
