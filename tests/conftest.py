"""Fixtures for all tests: temporary folders for stoker, and external tools by name."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from browser import Browser, opened_browser
from memory_groups import make_group as make_group
from passed import pytest_addoption as pytest_addoption
from passed import pytest_configure as pytest_configure
from repositories import git_alone as git_alone

# How long an example takes says nothing: the machine may be busy. The usual examples are the same
# in each run, so that a change does not fail for what it did not touch; `make heavy` looks for new
# ones with --hypothesis-profile=thorough.
_TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("usual", _TIMELESS, max_examples=25, derandomize=True)
settings.register_profile("thorough", _TIMELESS, max_examples=400)
settings.load_profile("usual")

# A shell ignores these signals in background jobs, and child processes would inherit that.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# Tests use the tools that are installed beside this Python, as in an activated environment.
TOOLS = str(Path(sys.executable).parent)
MACHINE_PATH = os.environ["PATH"].removeprefix(TOOLS + os.pathsep)  # test processes inherit ours
os.environ["PATH"] = TOOLS + os.pathsep + MACHINE_PATH

PROJECTS = Path(__file__).parent / "projects"
Stoker = Callable[..., subprocess.CompletedProcess[str]]
Need = Callable[[str], str]


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return new names of folders. pytest reads the names of all its folders before it makes
    another one, which takes half a minute for the tests of one worker.
    """
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def stoker_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirect stoker's folders, so that no test uses those of the user, nor a compiler cache."""
    home = next(homes)
    home.mkdir(mode=0o700)
    monkeypatch.setenv("STOKER_HOME", str(home))
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it in its workers
    monkeypatch.setenv("STOKER_CACHE", "none")
    monkeypatch.setenv("CCACHE_DIR", str(home / "ccache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)  # the tests may run in CI themselves
    return home


@pytest.fixture
def need() -> Need:
    """``need("nvcc")`` returns its path; if it is missing, the test is skipped, or fails in CI."""
    return find_tool


@pytest.fixture(scope="session")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the installed cuobjdump, or download it; for tests marked ``network``."""
    if found := shutil.which("cuobjdump"):
        return found
    folder = tmp_path_factory.mktemp("cuobjdump")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", folder, "nvidia-cuda-cuobjdump"], timeout=280, check=True)
    return str(next(folder.rglob("bin/cuobjdump")))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Headless Chromium, which all tests of a worker share."""
    for tool in ("chromium", "chromedriver"):
        find_tool(tool)
    with opened_browser() as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """Return a browser that shows nothing of what an earlier test opened or set."""
    chromium.reset()
    return chromium


# Tests call these commands in their own process, which is ten times as fast as a new one; builds
# have one of their own, as they react to signals. tests/commands/test_every_command.py starts the
# real program.
_IN_PROCESS = {
    *("cache", "catalogue", "clean", "diagnose", "doctor", "export", "graph", "help", "history"),
    *("inspect", "install", "package", "plan", "report", "simulate", "slim"),
    *("toolchain", "verify"),
}
# Python reads these when it starts.
_AT_START = ("PYTHON", "_STOKER", "COMP_", "LC_", "LANG")


@pytest.fixture
def stoker(tmp_path: Path) -> Stoker:
    """``stoker("plan", "h100", cwd=..., NAME="value")`` runs it, by default in an empty folder. The
    timeout is that of a machine that does much else, below the one of a whole test.
    """

    def run(
        *arguments: str, cwd: Path | None = None, timeout: float = 280, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        apart = any(name.startswith(_AT_START) for name in environment)
        apart |= "--completion" in arguments  # click asks bash for its version
        if arguments and arguments[0] in _IN_PROCESS and not apart:
            return _called(arguments, cwd or tmp_path, environment)
        return subprocess.run(
            [f"{TOOLS}/stoker", *arguments],
            cwd=cwd or tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def _called(
    arguments: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Call the command in this process, with its own arguments, folder, variables and streams."""
    from stoker.__main__ import main

    output, errors = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["stoker", *map(str, arguments)])
        patch.setattr(sys, "stdin", StringIO())
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            status = main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(
        ["stoker", *arguments], status, output.getvalue(), errors.getvalue()
    )


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first test process fills with ``make`` and the others share."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / f"once-{name}"
    with (shared / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            try:
                make(folder)
            except BaseException:
                shutil.rmtree(folder)  # the next process would take it for complete
                raise
    return folder


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do what it does")


def slow(*values: object) -> "pytest.ParameterSet":
    """Return values of a parametrized test that only `make slow` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def heavy(*values: object) -> "pytest.ParameterSet":
    """Return values of a parametrized test that only `make heavy` runs."""
    return pytest.param(*values, marks=pytest.mark.heavy)


# What shows that a tool works, where --version does not.
_TRIALS = {
    "sh": ("-c", ":"),
    "dash": ("-c", ":"),
    "podman": ("info",),
    "swig": ("-version",),
}


@cache
def find_tool(name: str) -> str:
    """Return the path of a program that a test needs and that works."""
    path = shutil.which(name) or missing(f"{name} is not on the PATH")
    trial = [path, *_TRIALS.get(name, ("--version",))]
    done = subprocess.run(trial, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
        missing(f"{path} does not work: {said}")
    return path


def missing(what: str) -> NoReturn:
    """Skip the test because this machine lacks something; fail it in CI."""
    if os.environ.get("REQUIRE_TOOLS"):
        pytest.fail(f"required by REQUIRE_TOOLS: {what}")
    pytest.skip(what)
