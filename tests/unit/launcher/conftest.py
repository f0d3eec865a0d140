"""Fixtures: the launcher built from this tree, a scripted governor, and a run."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import find_tool, made_once
from unit.launcher.preloaded import STAND_IN, Preloaded, build
from unit.launcher.scripted import Launch, ScriptedGovernor, process_and_namespace

ROOT = Path(__file__).parents[3]


def names_option(folder: Path) -> str:
    """Make the tables of names in a folder; return the compiler's option that finds them."""
    table = ROOT / "src/stoker/knowledge/compiler_names.toml"
    words = ["cmake", f"-DFROM={table}", f"-DTO={folder}", "-P"]
    subprocess.run([*words, ROOT / "launcher/names.cmake"], check=True)
    return f"-I{folder}"


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STOKER_LAUNCHER_CMAKE_ARGS="-DSTOKER_SANITIZE=ON" tests it with the sanitizers."""
    cmake = find_tool("cmake")
    find_tool("cc")
    extra = shlex.split(os.environ.get("STOKER_LAUNCHER_CMAKE_ARGS", ""))

    def make(folder: Path) -> None:
        subprocess.run([cmake, "-S", ROOT, "-B", folder, *extra], check=True, capture_output=True)
        subprocess.run([cmake, "--build", folder], check=True, capture_output=True)

    return made_once(tmp_path_factory, "launcher", make) / "stoker-launcher"


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Where the steps' own folders are made."""
    folder = tmp_path / "steps"
    folder.mkdir()
    return folder


@pytest.fixture
def plain(launcher: Path, tmp_path: Path) -> Iterator[Launch]:
    """Yield the launcher without a governor."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STOKER_")}
    (tmp_path / "names").mkdir()
    launch = Launch(launcher, environment, tmp_path / "names")
    yield launch
    launch.end()


@pytest.fixture
def governor(tmp_path: Path) -> Iterator[ScriptedGovernor]:
    governor = ScriptedGovernor(tmp_path / "socket")
    yield governor
    governor.die()


@pytest.fixture
def launch(governor: ScriptedGovernor, plain: Launch, steps: Path) -> Launch:
    """The launcher under the governor, which outlives it."""
    plain.environment |= {
        "STOKER_SOCKET": str(governor.path),
        "STOKER_RUN": "1",
        "STOKER_PROCESS": process_and_namespace(os.getpid()),
        "STOKER_SCRATCH": str(steps),
    }
    return plain


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launcher that writes down its words.

    Each test process has its own: the library rightly starts a compiler without a launcher that
    another process is just replacing.
    """
    return build(tmp_path_factory.mktemp("stand-in"), "stoker-launcher-stand-in", STAND_IN)


@pytest.fixture
def preloaded(launcher: Path, stand_in: Path, tmp_path: Path) -> Preloaded:
    """Runs programs with the library preloaded, in a folder with a source file a.c."""
    (tmp_path / "a.c").write_text("int f(void) { return 0; }\n")
    return Preloaded(launcher, stand_in, tmp_path)
