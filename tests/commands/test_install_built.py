"""`stoker install` of a project that no wheel fits: it is built, installed, kept, found again."""

import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from catalogue_wheels import make_wheel
from conftest import Need, Stoker, find_tool, missing
from stoker.catalogue.installing import run_installer

SETUP = """
from setuptools import Extension, setup
setup(name="mill", version="1.0", packages=["mill"], ext_modules=[Extension("mill._C", ["c.c"])])
"""
CODE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", 0, -1, 0};
PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
"""


def _python(folder: Path) -> str:
    """Return an environment that sees the tools of this one, but installs for itself."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tools.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


@pytest.fixture
def index(tmp_path: Path, need: Need) -> dict[str, str]:
    """The variables for an index with a source, and a wheel for another Python."""
    need("cc")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing("the headers of Python are not installed")
    folder = tmp_path / "index"
    made = make_wheel(folder, name="mill", version="1.0")
    made.rename(folder / "mill-1.0-cp38-cp38-manylinux_2_28_x86_64.whl")
    contents = {"setup.py": SETUP, "c.c": CODE, "mill/__init__.py": "from . import _C"}
    _pack(folder / "mill-1.0.tar.gz", contents)
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def _pack(file: Path, contents: dict[str, str]) -> None:
    with tarfile.open(file, "w:gz") as archive:
        for name, text in contents.items():
            info = tarfile.TarInfo(f"{file.name.removesuffix('.tar.gz')}/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))


def _imports(python: str) -> bool:
    asked = [python, "-c", "import mill, sys; sys.exit(mill.__file__.startswith(sys.prefix) - 1)"]
    return subprocess.run(asked, check=False).returncode == 0


@pytest.mark.timeout(900)  # ten installations, and others may use the machine
def test_built_kept_and_shared(stoker: Stoker, tmp_path: Path, index: dict[str, str]) -> None:
    first = _python(tmp_path / "first")
    dry = stoker("install", "mill", "--python", first, "--dry-run", **index)
    assert dry.returncode == 0, dry.stderr
    assert "the only wheel of mill does not fit this machine" in dry.stderr
    assert "mill==1.0 is built from source for cpu" in dry.stderr
    never = stoker("install", "mill", "--python", first, "--no-build", **index)
    assert never.returncode != 0
    assert "without --no-build, mill==1.0 is built for it" in never.stderr
    done = stoker("install", "mill", "--python", first, **index)
    assert done.returncode == 0, done.stderr
    assert _imports(first)

    listed = stoker("cache", "wheels", "--json")
    (kept,) = json.loads(listed.stdout)["wheels"]
    assert kept["project"] == "mill"
    assert kept["variant"].startswith("cpu")
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    assert f"cp{version}" in kept["file"]

    second = _python(tmp_path / "second")
    again = stoker("install", "mill", "--python", second, **index)
    assert again.returncode == 0, again.stderr
    assert "built from source" not in again.stderr
    assert "runs on the CPU alone" in again.stderr
    assert _imports(second)

    # Another machine has neither the source nor what was built here.
    shared = stoker("cache", "wheels", "--folder").stdout.strip()
    third = _python(tmp_path / "third")
    away = {"PIP_FIND_LINKS": str(tmp_path / "empty"), "STOKER_HOME": str(tmp_path / "home")}
    (tmp_path / "empty").mkdir()
    words = ["install", "mill", "--python", third, "--catalogue", shared, "--json"]
    other = stoker(*words, **{**index, **away})
    assert other.returncode == 0, other.stderr
    (found,) = json.loads(other.stdout)["found"]
    assert found["best"]["sha256"] == kept["sha256"]
    assert _imports(third)

    _repeat(stoker, tmp_path, index, Path(shared))

    gone = stoker("cache", "wheels", "--remove", "mill")
    assert gone.returncode == 0, gone.stderr
    assert json.loads(stoker("cache", "wheels", "--json").stdout)["wheels"] == []
    assert not list(Path(shared).rglob("*.whl"))


def _repeat(stoker: Stoker, tmp_path: Path, index: dict[str, str], shared: Path) -> None:
    """Repeat the installation by its lock, with stoker, uv and pip, and by lines for a project."""
    lock, uv = tmp_path / "pylock.toml", find_tool("uv")
    words = ["install", "mill", "--python", sys.executable, "--dry-run", "--lock", str(lock)]
    done = stoker(*words, **index)
    assert done.returncode == 0, done.stderr
    assert "1 packages" in done.stderr
    fourth, fifth = _python(tmp_path / "fourth"), _python(tmp_path / "fifth")
    words = ["install", "--locked", str(lock), "--python", fourth]
    repeated = stoker(*words, **index)
    assert repeated.returncode == 0, repeated.stderr
    assert _imports(fourth)
    offline = ["--offline", "--no-config", "--python", fifth]
    subprocess.run([uv, "pip", "install", *offline, "-r", str(lock)], check=True)
    assert _imports(fifth)

    told = stoker("install", "mill", "--python", sys.executable, "--lines", **index)
    assert told.returncode == 0, told.stderr
    project = tmp_path / "project"
    project.mkdir()
    lines = told.stdout.replace("[project]", '[project]\nname = "grist"\nversion = "1"')
    python = f'requires-python = ">={sys.version_info.major}.{sys.version_info.minor}"\n'
    lines = lines.replace("dependencies", python + "dependencies", 1)
    (project / "pyproject.toml").write_text(lines)
    locking = [uv, "lock", "--offline", "--project", str(project), "--python", sys.executable]
    subprocess.run(locking, check=True)
    assert (project / "uv.lock").read_text().count('name = "mill"') >= 1
    parsed = tomllib.loads(told.stdout)
    (reference,) = parsed["project"]["dependencies"]
    sixth = _python(tmp_path / "sixth")
    pip = [sys.executable, "-m", "pip", "--python", sixth, "install", "--no-index", reference]
    subprocess.run(pip, check=True)
    assert _imports(sixth)

    (wheel,) = shared.rglob("*.whl")
    content = wheel.read_bytes()
    wheel.chmod(0o644)
    wheel.write_bytes(content + b"x")
    words = ["install", "--locked", str(lock), "--python", _python(tmp_path / "seventh")]
    changed = stoker(*words, **index)
    assert "the hash of a file differs" in changed.stderr
    wheel.write_bytes(content)


LINKED = """
import os, subprocess
from setuptools import Extension, setup
here, fire = os.path.abspath("mill"), {folder!r}
shared = ["cc", "-shared", "-fPIC", "one.c"]
subprocess.run([*shared, "-Wl,-soname,libstone.so", "-o", "mill/libstone.so"], check=True)
subprocess.run([*shared, "-Wl,-soname,libfire.so", "-o", fire + "/libfire.so"], check=True)
needed = ["-Wl,--no-as-needed", "-lstone", "-lfire"]
linked = Extension("mill._C", ["c.c"], library_dirs=[here, fire],
                   runtime_library_dirs=[here, fire], extra_link_args=needed)
setup(name="mill", version="1.0", packages=["mill"], package_data={{"mill": ["*.so"]}},
      ext_modules=[linked])
"""


def test_a_wheel_that_works_only_here_is_made_to_pass_its_checks(
    stoker: Stoker, tmp_path: Path, index: dict[str, str]
) -> None:
    """It needs a library of this machine, and one of its own that its search path finds only in the
    folder of the build.
    """
    folder = tmp_path / "fire"
    folder.mkdir()
    contents = {
        "setup.py": LINKED.format(folder=str(folder)),
        "one.c": "int one;",
        "c.c": CODE,
        "mill/__init__.py": "from . import _C",
    }
    _pack(Path(index["PIP_FIND_LINKS"]) / "mill-1.0.tar.gz", contents)
    python = _python(tmp_path / "environment")
    done = stoker("install", "mill", "--python", python, **index)
    assert done.returncode == 0, done.stderr
    assert "packaged with --mode bundle, because otherwise required libraries are missing" in (
        done.stderr
    )
    (folder / "libfire.so").unlink()
    assert _imports(python)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_build_with_the_packages_that_are_here(
    stoker: Stoker, tmp_path: Path, index: dict[str, str]
) -> None:
    """The message of a failed build names an option that `stoker install` has too."""
    needs = (
        '[build-system]\nrequires = ["setuptools>=40"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    contents = {"setup.py": SETUP, "c.c": CODE, "mill/__init__.py": "", "pyproject.toml": needs}
    _pack(Path(index["PIP_FIND_LINKS"]) / "mill-1.0.tar.gz", contents)
    words = ("install", "mill", "--python", _python(tmp_path / "environment"))
    failed = stoker(*words, "--isolation", "full", **index)
    assert failed.returncode != 0
    assert "--isolation none builds with the packages that are here" in failed.stderr
    done = stoker(*words, "--isolation", "none", **index)
    assert done.returncode == 0, done.stderr


def test_requirements_that_are_installed_are_not_listed(tmp_path: Path) -> None:
    """pip names each with the whole address of the wheel that requires it."""
    wheel = make_wheel(tmp_path, name="mill", version="1.0", requires=("packaging",))
    python = _python(tmp_path / "environment")
    said: list[str] = []
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", str(wheel)]
    run_installer(pip, said.append)
    assert any("Successfully installed" in line for line in said)
    assert not any("packaging" in line for line in said)


def test_options_that_exclude_each_other(stoker: Stoker) -> None:
    both = stoker("install", "mill", "--no-build", "--only-build")
    assert "exclude each other" in both.stderr
    other = stoker("install", "/srv/wheels", "mill", "--only-build")
    assert "cannot be used with the catalogue /srv/wheels" in other.stderr


@pytest.mark.parametrize("word", ["./mill-1.0-py3-none-any.whl", "git+https://example.org/mill"])
def test_what_is_not_the_name_of_a_project(stoker: Stoker, word: str) -> None:
    done = stoker("install", word)
    assert done.returncode == 2
    assert f"'{word}' is not the name of a project" in done.stderr


def test_a_project_that_no_place_has(stoker: Stoker, tmp_path: Path) -> None:
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = stoker("install", "mill", **nowhere)
    assert done.returncode != 0
    assert done.stderr.count("no place has a wheel or a source of mill") == 1
    assert "`pip config list` shows the indexes that were searched" in done.stderr
    wrong = stoker("install", "flash-atn==2.8", **nowhere)
    assert "did you mean flash-attn?" in wrong.stderr


def test_a_version_that_no_place_has(stoker: Stoker, index: dict[str, str]) -> None:
    done = stoker("install", "mill>1.0", **index)
    assert done.returncode != 0
    assert "no place has a wheel or a source of mill>1.0" in done.stderr
    assert "the newest version is 1.0" in done.stderr


def test_a_project_that_needs_a_pytorch_with_cuda(
    stoker: Stoker, tmp_path: Path, index: dict[str, str]
) -> None:
    """Without one the build would be for CPUs, which sageattention does not have."""
    setup = SETUP.replace("mill", "sageattention")
    contents = {"setup.py": setup, "c.c": CODE, "sageattention/__init__.py": ""}
    _pack(Path(index["PIP_FIND_LINKS"]) / "sageattention-1.0.tar.gz", contents)
    python = _python(tmp_path / "environment")
    done = stoker("install", "sageattention", "--python", python, **index)
    assert "sageattention has no cpu back end" in done.stderr
    assert f"it would be built for a CPU, because {python} has no PyTorch" in done.stderr
    assert "  install PyTorch first: stoker install torch\n" in done.stderr
