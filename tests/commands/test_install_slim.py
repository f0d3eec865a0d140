"""`stoker install --slim`: packages of an ordinary index, slimmed before they are installed."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from catalogue_wheels import empty_environment, make_wheel
from conftest import Stoker, find_tool, heavy
from slim_libraries import build_library, cubins, listed
from stoker.catalogue import slim_install
from stoker.model.value import size


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that leads pip and uv to a folder of wheels and to no other index."""
    folder = tmp_path_factory.mktemp("index")
    libraries = {}
    archs = {"torch": (80, 90), "nvidia-mill-cu12": (80, 90), "nvidia-old-cu12": (80,)}
    for name, numbers in archs.items():
        work = tmp_path_factory.mktemp(name)
        libraries[name] = build_library(find_tool, work, [cubins(1, *numbers)]).read_bytes()
    requires = ["nvidia-mill-cu12==1.0", "nvidia-old-cu12==1.0", "grain"]
    make_wheel(
        folder,
        name="torch",
        version="2.9.1",
        library=libraries["torch"],
        requires=[*requires, "chaff; extra == 'more'"],
        metadata="Provides-Extra: more\n",
    )
    make_wheel(folder, name="chaff")
    for name, said in (
        ("nvidia-mill-cu12", "py3-none-manylinux2014_sbsa"),
        ("nvidia-old-cu12", None),
    ):
        make_wheel(folder, name=name, library=libraries[name], said_tag=said)
    make_wheel(folder, name="grain", version="3.0")
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    return {**alone, "UV_NO_CONFIG": "1"}


def packages(python: str) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.check_output([python, "-c", code], text=True).strip())


def test_the_sizes_are_shown_before_anything_is_downloaded(
    stoker: Stoker, tmp_path: Path, index: dict[str, str]
) -> None:
    python = empty_environment(tmp_path / "venv")
    words = ["install", "torch==2.9.1", "--slim", "--for", "h100", "--python", python, "--dry-run"]
    done = stoker(*words, **index)
    assert done.returncode == 0, done.stderr
    total = sum(path.stat().st_size for path in Path(index["PIP_FIND_LINKS"]).glob("[!c]*.whl"))
    assert done.stdout.startswith(f"4 files, {size(total)} to download\n")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:]}
    assert "is slimmed" in rows["nvidia-mill-cu12"]
    assert "is slimmed" not in rows["grain"]
    assert not (packages(python) / "torch").exists()


@pytest.mark.parametrize("tells", [True, False])
def test_a_download_begins_with_the_first_file_and_counts_whole_files_at_least(
    monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    events: list[object] = []

    @contextmanager
    def stage(title: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        events.append((title, total))
        yield events.append
        events.append(f"end of {title}")

    monkeypatch.setattr(slim_install, "stage", stage)
    sizes = {"torch": 200, "nvidia-mill-cu12": 90, "grain": 10}
    downloads = [
        slim_install.Download(name=name, version="1", pin=name, size_bytes=size, slims=False)
        for name, size in sizes.items()
    ]
    with ExitStack() as stages:
        pip = slim_install.PipDownload(downloads, stages)
        asking = [("asking the package index", 0)]
        for line in ("Collecting torch==2.9.1", "  Link requires a different Python"):
            pip.hear(line)
        pip.hear("  Downloading torch-2.9.1-cp312-cp312-linux_x86_64.whl.metadata (29 kB)")
        assert events == asking
        pip.hear(
            "Downloading https://index.test/a/torch-2.9.1-cp312-cp312-linux_x86_64.whl (200 B)"
        )
        for told in ("50 of 200", "200 of 200") if tells else ():
            pip.hear(f"Progress {told}")
        pip.hear("Using cached nvidia_mill_cu12-1.0-py3-none-any.whl (90 B)")
        pip.hear("Downloading grain-3.0.tar.gz")
        pip.hear("Saved ./torch-2.9.1-cp312-cp312-linux_x86_64.whl")
        pip.hear("Saved ./grain-3.0.tar.gz")
    begun = ["end of asking the package index", ("downloading", 300)]
    amounts = [50, 150] if tells else [200]
    assert events == [*asking, *begun, *amounts, 90, 10, "end of downloading"]


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", heavy("uv")])
def test_slimmed_before_it_is_installed(
    stoker: Stoker, tmp_path: Path, stoker_home: Path, index: dict[str, str], installer: str
) -> None:
    """torch and NVIDIA's libraries hold code for the GPU alone; what else is required is whole."""
    python = empty_environment(tmp_path / "venv")
    words = ["install", "torch[more]==2.9.1", "--slim", "--for", "h100", "--python", python]
    done = stoker(*words, "--installer", installer, "--json", **index)
    assert done.returncode == 0, done.stderr
    site = packages(python)
    assert listed(site / "torch/libmill.so") == [["sm_90"]]
    assert listed(site / "nvidia_mill_cu12/libmill.so") == [["sm_90"]]
    assert listed(site / "nvidia_old_cu12/libmill.so") == [["sm_80"]], "it has no code for an H100"
    assert "nvidia_old_cu12-1.0" in done.stderr
    assert (site / "grain/__init__.py").exists()
    assert (site / "chaff/__init__.py").exists(), "it is required by an extra"
    rows = {row["name"]: row for row in msgspec.json.decode(done.stdout)["wheels"]}
    assert rows["torch"]["version"] == "2.9.1+sm90"
    assert rows["torch"]["after_bytes"] < rows["torch"]["before_bytes"]
    assert rows["nvidia-old-cu12"]["after_bytes"] == rows["nvidia-old-cu12"]["before_bytes"]
    checked = [sys.executable, "-m", "pip", "--python", python, "check"]
    subprocess.run(checked, check=True, stdout=subprocess.DEVNULL)
    assert not list((stoker_home / "cache/install").iterdir()), "nothing of the work is left"
    again = stoker(*words, "--installer", installer, **index)
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_an_official_torch_that_is_installed_is_replaced(
    stoker: Stoker, tmp_path: Path, index: dict[str, str]
) -> None:
    python = empty_environment(tmp_path / "venv")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "torch"]
    subprocess.run(pip, check=True, env={**os.environ, **index})
    assert listed(packages(python) / "torch/libmill.so") == [["sm_80", "sm_90"]]
    words = ["install", "torch", "--slim", "--for", "sm80", "--python", python]
    done = stoker(*words, **index)
    assert done.returncode == 0, done.stderr
    assert listed(packages(python) / "torch/libmill.so") == [["sm_80"]]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["torch", "--slim", "--for", "t4"], 2, "sm75"),
        (["torch==9", "--slim", "--for", "h100"], 1, "torch==9"),
        (["torch", "--slim", "--for", "rtx9999"], 2, "rtx9999"),
        (["torch", "--slim", "--for", "cpu"], 2, "no GPU"),
        (["not a requirement ]", "--slim", "--for", "h100"], 2, "is not a requirement"),
        (["torch @ file:///x.whl", "--slim", "--for", "h100"], 2, "is not the name of a project"),
        (["torch", "--slim", "--print"], 2, "--print cannot be used with --slim"),
        (["./torch"], 2, "name what to install"),
    ],
)
def test_what_cannot_be(
    stoker: Stoker, tmp_path: Path, index: dict[str, str], words: list[str], status: int, said: str
) -> None:
    python = empty_environment(tmp_path / "venv")
    done = stoker("install", *words, "--python", python, **index)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(packages(python).glob("*.dist-info"))


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ("h100 {other} py311", "cannot be installed on this machine"),
        ("h100 {cpu}", "cannot be installed on this machine"),
        ("h100 py39", "cannot be installed for"),
        ("h100 cu126", "gives a toolkit, which describes a build"),
    ],
)
def test_words_for_another_machine_are_refused(
    stoker: Stoker, index: dict[str, str], machine: str, why: str
) -> None:
    """Words of the platform, the CPU, Python and CUDA were ignored: the packages of this machine
    were listed as if they were those of the other one.
    """
    arm = platform.machine() == "aarch64"
    machine = machine.format(
        other="linux-x86_64" if arm else "linux-aarch64", cpu="zen4" if arm else "neoverse_n1"
    )
    words = ["install", "torch==2.9.1", "--slim", "--for", machine, "--python", sys.executable]
    done = stoker(*words, "--dry-run", **index)
    assert done.returncode == 2, done.stdout
    assert why in done.stderr


@pytest.mark.parametrize("machine", ["h100 {here} py{python}", "h100 native", "sm90+ptx"])
def test_words_for_this_machine_are_accepted(
    stoker: Stoker, index: dict[str, str], machine: str
) -> None:
    python = "".join(map(str, sys.version_info[:2]))
    machine = machine.format(here=f"linux-{platform.machine()}", python=python)
    words = ["install", "torch==2.9.1", "--slim", "--for", machine, "--python", sys.executable]
    done = stoker(*words, "--dry-run", **index)
    assert done.returncode == 0, done.stderr
