"""Builds that are asked what they compile: what they cannot do in the room, and what they say."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import closed_room
from conftest import Stoker, as_root, find_tool, missing
from stoker.ask.asking import ask
from stoker.ask.room import Limits
from stoker.machine.system import read_machine
from stoker.plan.survey import survey
from stoker.settings.declared import CommandLine

pytestmark = pytest.mark.usefixtures("_closed_room")
ANOTHER_USER = 65534


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def processes_with(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


HOSTILE = {
    "home": """
import pathlib
for place in (HOME, "/root", "/home", "/var/tmp", "/tmp"):
    try:
        (pathlib.Path(place) / "was-here").write_text("x")
    except OSError as error:
        print(place, error)
print("secret seen:", pathlib.Path(HOME, "secret").exists())
""",
    "tree": """
import pathlib, shutil
pathlib.Path("setup.py").write_text("changed")
pathlib.Path("new").write_text("new")
pathlib.Path("kept.txt").unlink()
shutil.rmtree("folder")
""",
    "network": """
import socket, urllib.request
for address in (("127.0.0.1", PORT), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, timeout=2)
        print("connected")
    except OSError as error:
        print("no network:", error)
""",
    "loop": "while True: pass",
    "bomb": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
    "memory": "held = [bytearray(1 << 20) for _ in range(1 << 20)]",
    "uninstall": """
import subprocess, sys
subprocess.call([sys.executable, "-m", "pip", "uninstall", "-y", "msgspec", "click"])
subprocess.call("pip uninstall -y msgspec", shell=True)
import os, msgspec
try:
    os.unlink(msgspec.__file__)
except OSError as error:
    print("not removed:", error)
""",
    "kill": """
import os, signal
for pid in (os.getppid(), 1, -1):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        print(pid, error)
""",
    "daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
""",
    "walls": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("mount:", libc.mount(b"none", b"/mnt", b"tmpfs", 0, None))
print("remount:", libc.mount(None, b"/", None, 32 | 4096, None))
print("namespace:", libc.unshare(0x10000000))
print("devices:", sorted(os.listdir("/dev")))
""",
    "fill": """
import os
written = 0
for place in (".", "/tmp", "/dev/shm", "/var/tmp", "/root", "/home", "/run", "/mnt", "/srv"):
    try:
        with open(os.path.join(place, "large"), "wb", buffering=0) as stream:
            while True:
                written += stream.write(bytes(1 << 20))
    except OSError as error:
        print(place, error)
print("written:", written)
""",
    "unmapped": """
import os
held = []
while len(held) < 4096:
    held.append(os.memfd_create("held"))
    os.write(held[-1], bytes(1 << 20))
""",
    "shared": """
import mmap
held = mmap.mmap(-1, 4 << 30)
for page in range(0, len(held), 4096):
    held[page] = 1
    if page % (1 << 24) == 0:
        held.madvise(mmap.MADV_DONTNEED)
""",
    "notes": """
import os
notes = os.environ["STOKER_NOTES"]
for number in range(40):
    os.makedirs(f"build{number}")
    with open(f"build{number}/build.ninja", "wb") as stream:
        stream.truncate(32 << 20)
os.mkdir("text")
with open("text/build.ninja", "w") as stream:
    stream.write("rule a")
os.mkfifo(notes + "/pipe")
os.symlink("/etc/passwd", notes + "/link")
os.rename(notes, notes + "-before")
os.symlink("/etc", notes)
""",
    "first process": """
import os
for name in ("root", "cwd", "environ", "mem", "fd/0"):
    try:
        os.close(os.open(f"/proc/1/{name}", os.O_RDONLY))
        print("reached:", name)
    except OSError as error:
        print(error)
print("descriptors:", sorted(os.listdir("/proc/self/fd")))
try:
    open("/dev/tty", "w")
except OSError as error:
    print("no terminal:", error)
""",
}
# Numbers of add_key and keyctl.
KEYS = {"x86_64": (248, 250), "aarch64": (217, 219)}
REVOKE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("found:", libc.syscall(KEYCTL, 10, -3, b"user", NAME, 0) > 0)
print("cleared:", libc.syscall(KEYCTL, 7, -3))
"""


def test_the_build_finds_the_cmake_that_a_build_would_use(stoker: Stoker, tmp_path: Path) -> None:
    """The CMake on the PATH is too old for the tree, and that beside stoker is not."""
    find_tool("cmake")
    programs, tree = tmp_path / "programs", tmp_path / "tree"
    for folder in (programs, tree):
        folder.mkdir()
    old = programs / "cmake"
    old.write_text("#!/bin/sh\necho cmake version 3.1.0\n")
    old.chmod(0o755)
    (tree / "a.cpp").touch()
    (tree / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.18)\nproject(a)\n")
    (tree / "setup.py").write_text(
        "import subprocess\n"
        "raise SystemExit(subprocess.check_output(['cmake', '--version'], text=True))\n"
        "from setuptools import Extension, setup\n"
        "setup(name='a', version='1', ext_modules=[Extension('a', ['a.cpp'])])\n"
    )
    path = f"{programs}:{os.environ['PATH']}"
    python = str(Path(sys.base_prefix) / "bin/python3")  # the CMake of the tests is not beside it
    words = ("plan", "cpu", "--source", str(tree), "--python", python, "--ask", "--json")
    done = stoker(*words, PATH=path)
    said = json.loads(done.stdout)["asked"]["refusal"]
    assert "cmake version" in said
    assert "3.1.0" not in said


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_build_changes_nothing_and_ends(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, tree = tmp_path / "home", tmp_path / "tree"
    home.mkdir()
    (home / "secret").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/a.txt").write_text("a")
    (tree / "kept.txt").write_text("kept")
    code = f"HOME = {str(home)!r}\nPORT = 9\n" + HOSTILE[kind]
    (tree / "setup.py").write_text(code)
    before = files(tmp_path)
    mark = uuid.uuid4().hex
    limits = _limits(kind)
    if kind == "loop":
        limits = replace(limits, seconds=3.0)
    left = closed_room.answered(tree, limits=limits, HOSTILE_MARK=mark)
    assert files(tmp_path) == before
    assert processes_with(mark) == []
    assert not list(Path("/tmp").glob("was-here"))
    said = left.output
    match kind:
        case "home":
            assert "secret seen: False" in said
        case "tree":
            assert left.status is not None
        case "network":
            assert said.count("no network") == 2, said
        case "loop":
            assert left.ended_for == "time"
        case "bomb":
            assert left.ended_for in ("processes", "memory")
        case "memory":
            assert left.ended_for == "memory" or "MemoryError" in said, said
        case "uninstall":
            assert "not removed" in said
            assert subprocess.call([sys.executable, "-c", "import msgspec, click"]) == 0
        case "walls":
            assert "mount: -1" in said, said
            assert "remount: -1" in said
            assert "namespace: -1" in said
        case "fill":
            written = int(said.rpartition("written: ")[2])
            assert 0 < written <= limits.space, said
        case "unmapped" | "shared":
            assert left.ended_for == "memory", said
        case "notes":
            assert "root:" not in left.notes
            assert [*left.files.values()] == ["rule a"]  # 40 holes of 32 MiB are no texts
        case "first process":
            assert "reached" not in said
            assert "descriptors: ['0', '1', '2', '3']" in said  # the last one lists them
            assert "no terminal" in said


def _limits(kind: str) -> Limits:
    return closed_room.LITTLE_MEMORY if kind in ("unmapped", "shared") else closed_room.FEW


def test_a_hostile_build_cannot_use_the_keys_of_the_session(tmp_path: Path) -> None:
    add_key, keyctl = KEYS.get(os.uname().machine) or missing("the numbers of add_key and keyctl")
    libc = ctypes.CDLL(None, use_errno=True)
    name = f"stoker-test-{uuid.uuid4().hex}".encode()
    key = libc.syscall(add_key, b"user", name, b"ticket", 6, -3)
    if key < 0:
        pytest.skip(f"no keys of the session: {os.strerror(ctypes.get_errno())}")
    try:
        code = f"KEYCTL, NAME = {keyctl}, {name!r}\n" + REVOKE
        (tmp_path / "setup.py").write_text(code)
        left = closed_room.answered(tmp_path)
        assert "found: False" in left.output
        assert "cleared: 0" in left.output  # those of a session of its own
        assert libc.syscall(keyctl, 10, -3, b"user", name, 0) == key
    finally:
        libc.syscall(keyctl, 9, key, -3)


def test_the_terminal_does_not_obey_what_a_build_says(stoker: Stoker, tmp_path: Path) -> None:
    """Titles of windows, cleared screens and reversed text stay text, also in names."""
    (tmp_path / "a.cpp").touch()
    (tmp_path / "setup.py").write_text(
        "import os\nfrom setuptools import Extension, setup\n"
        "os.environ.get('A\\x1b[31mB')\n"
        "raise SystemExit('\\x1b]0;title\\x07 \\x1b[2J \\u202e \\x9b31m RuntimeError: refused')\n"
        "setup(name='a\\x1b[2J', version='1', ext_modules=[Extension('a', ['a.cpp'])])\n"
    )
    words = ("plan", "cpu", "--source", str(tmp_path), "--python", sys.executable, "--ask")
    done = stoker(*words)
    assert "refused" in done.stdout
    for text in (done.stdout, done.stderr):
        assert not set("\x1b\x07\u202e\x9b") & set(text)


def test_a_path_with_the_folder_for_temporary_files_shows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/tmp:{os.environ['PATH']}")
    with tempfile.NamedTemporaryFile(dir="/tmp") as own:
        (tmp_path / "setup.py").write_text(f"import os\nprint(os.path.exists({own.name!r}))\n")
        assert closed_room.answered(tmp_path).output == "False\n"


@as_root
@pytest.mark.parametrize("kind", ["plain", "bomb", "walls", "tree", "fill", "unmapped", "notes"])
def test_an_ordinary_user_has_a_room_too(kind: str) -> None:
    """As root it can be seen whether the same works without root's rights."""
    setpriv = find_tool("setpriv")
    python = shutil.which("python3", path="/usr/bin:/bin") or missing("a Python for all users")
    tree = Path(f"/tmp/stoker-test-{uuid.uuid4().hex}/tree")
    tree.mkdir(parents=True)
    plain = "import os\nopen('made', 'w').close()\nprint('made by', os.stat('made').st_uid)\n"
    (tree / "setup.py").write_text(HOSTILE.get(kind, plain))
    (tree / "kept.txt").write_text("kept")
    (tree / "folder").mkdir()
    for path in (tree.parent, tree, *tree.iterdir()):
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    words = [setpriv, f"--reuid={ANOTHER_USER}", f"--regid={ANOTHER_USER}", "--clear-groups"]
    try:
        done = closed_room.started_as(words, tree, python, _limits(kind))
        if done.returncode == 3:
            pytest.skip(f"an ordinary user has no closed room here: {done.stderr}")
        left = json.loads(done.stdout)
        assert sorted(p.name for p in tree.iterdir()) == ["folder", "kept.txt", "setup.py"]
    finally:
        shutil.rmtree(tree.parent)
    match kind:
        case "plain":
            assert f"made by {ANOTHER_USER}" in left["output"]
        case "bomb":
            assert left["ended_for"] in ("processes", "memory")  # long before the time is over
        case "walls":
            assert left["output"].count(": -1") == 3
        case "fill":
            assert int(left["output"].rpartition("written: ")[2]) <= closed_room.FEW.space
        case "unmapped":
            assert left["ended_for"] == "memory"
        case "notes":
            assert "root:" not in left["notes"]


@as_root
@pytest.mark.parametrize("whole", [True, False])
def test_root_asks_a_tree_of_another_user(tmp_path: Path, whole: bool) -> None:
    """Root can build such a tree, but has no capability in the room to write into it."""
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/secret.txt").write_text("read")
    (tree / "setup.py").write_text(
        "text = open('folder/secret.txt').read()\nopen('folder/made', 'w').close()\nprint(text)\n"
    )
    (tree / "folder/secret.txt").chmod(0o600)
    for path in (*([tree] if whole else []), *tree.iterdir(), *(tree / "folder").iterdir()):
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    left = closed_room.answered(tree)
    assert left.status == 0, left.output
    assert "read" in left.output
    assert [path.name for path in (tree / "folder").iterdir()] == ["secret.txt"]


EXTENSION = """
import os, subprocess, sys
from setuptools import Extension, setup
if os.environ.get("MINI_CUDA", "0") == "1" or "--force_cuda" in sys.argv:
    targets = os.getenv("MINI_CUDA_ARCHS", "75,80").split(",")
    flags = [f"-gencode=arch=compute_{t},code=sm_{t}" for t in targets]
    if int(targets[0]) < 75:
        raise SystemExit("ValueError: compute capability below 7.5 is not supported")
    subprocess.check_call(["nvcc", *flags, "-c", "kernel.cu", "-o", "kernel.o"])
setup(name="mini-asked", version="1.0", ext_modules=[Extension("mini", ["mini.c"])])
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package whose kernels are compiled only if a variable says so."""
    find_tool("nvcc")
    folder = tmp_path / "mini"
    folder.mkdir()
    (folder / "setup.py").write_text(EXTENSION)
    (folder / "mini.c").write_text("int mini;\n")
    (folder / "kernel.cu").write_text("__global__ void kernel() {}\n")
    return folder


def plan(stoker: Stoker, tree: Path, *words: str) -> Any:
    done = stoker("plan", *words, "--source", str(tree), "--python", sys.executable, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_asking_finds_the_switch_and_the_targets(stoker: Stoker, tree: Path) -> None:
    said = plan(stoker, tree, "h100", "--ask")
    environment, targets, asked = said["environment"], said["targets"], said["asked"]
    assert environment["MINI_CUDA"] == "1"
    assert environment["MINI_CUDA_ARCHS"] == "90"
    assert (targets["cubins"], targets["compiles"]) == (["9.0"], True)
    assert asked["kernels"] == [{"source": "kernel.cu", "targets": ["sm_90"]}]
    assert (asked["device_compiles"], asked["host_compiles"]) == (1, 1)
    read = {variable["name"]: variable["where"] for variable in asked["variables"]}
    assert read["MINI_CUDA_ARCHS"] == "setup.py:5"
    assert not (tree / "kernel.o").exists()
    assert not (tree / "build").exists()


TORCH_LIKE = """
import os, subprocess
from setuptools import Extension, setup
os.makedirs("made", exist_ok=True)
subprocess.check_call(["nvcc", "-arch=sm_90", "-Icsrc", "-c", "csrc/kernel.cu", "-o", "made/k.o"])
with open("made/build.ninja", "w") as stream:
    stream.write("rule c\\n command = cc -c $in -o $out\\nbuild a.o: c ../csrc/plain.c\\n")
if NINJA:
    subprocess.check_call(["ninja", "-C", "made"])
setup(name="like", version="1", ext_modules=[] if NINJA else [
    Extension(name, ["csrc/main.cpp", "csrc/plain.c"], define_macros=[("NAME", name)])
    for name in ("one", "two")
])
"""


@pytest.mark.parametrize("ninja", [False, True])
def test_the_time_said_counts_headers_of_pytorch_and_compiles_that_wait(
    stoker: Stoker, tmp_path: Path, ninja: bool
) -> None:
    """setuptools compiles a source for each extension, one after the other."""
    for tool in ("nvcc", "ninja"):
        find_tool(tool)
    (tmp_path / "csrc").mkdir()
    (tmp_path / "setup.py").write_text(f"NINJA = {ninja}\n{TORCH_LIKE}")
    for name, text in {
        "kernel.cu": "#include <all.h>\n",
        "main.cpp": '#include "all.h"\n',
        "plain.c": "#include <stdio.h>\n",
        "all.h": "#include <torch/extension.h>\n",
    }.items():
        (tmp_path / "csrc" / name).write_text(text)
    said = plan(stoker, tmp_path, "h100", "--ask")
    asked, estimate = said["asked"], said["estimate"]
    names = ("device_compiles", "device_with_torch", "host_compiles", "host_with_torch")
    assert [asked[name] for name in names] == ([1, 1, 1, 0] if ninja else [1, 1, 4, 2])
    assert asked["one_at_a_time"] is not ninja
    basis = estimate["wall_s"]["basis"]
    assert ("one file at a time" in basis) is not ninja
    assert f"{1 if ninja else 3} of them include all of PyTorch's headers" in basis


def test_a_tree_that_is_unchanged_is_not_asked_again(stoker: Stoker, tree: Path) -> None:
    words = ("plan", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    first = stoker(*words)
    assert "asking the build of mini-asked" in first.stderr
    assert "asking" not in stoker(*words).stderr
    (tree / "mini.c").write_text("int other;\n")
    assert "asking" in stoker(*words).stderr


def test_what_was_learned_is_a_recipe(stoker: Stoker, tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "mini.toml"
    plan(stoker, tree, "h100", "--ask", "--write-recipe", str(file))
    checked = stoker("plan", "--check-recipe", str(file), "--source", str(tree))
    assert checked.returncode == 0, checked.stdout
    planned = plan(stoker, tree, "rtx4090", "--recipe", str(file))
    environment, targets = planned["environment"], planned["targets"]
    assert environment["MINI_CUDA_ARCHS"] == "89"
    assert targets["cubins"] == ["8.9"]


def test_a_project_refuses_in_its_own_words(stoker: Stoker, tree: Path) -> None:
    (tree / "setup.py").write_text('raise RuntimeError("mini needs a moon")\n')
    done = stoker("doctor", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    assert done.returncode == 1
    assert "RuntimeError: mini needs a moon" in done.stdout


def test_without_walls_it_works_on_a_copy(stoker: Stoker, tree: Path) -> None:
    said = plan(stoker, tree, "h100", "--ask=open")
    asked = said["asked"]
    assert asked["walls"] == "open"
    assert asked["cubins"] == ["9.0"]
    assert not (tree / "kernel.o").exists()


def test_a_recipe_is_written_only_if_the_build_was_asked(stoker: Stoker, tree: Path) -> None:
    done = stoker("plan", "cpu", "--source", str(tree), "--write-recipe", "x.toml")
    assert done.returncode == 2
    assert "--write-recipe needs --ask" in done.stderr


def test_a_build_that_ran_out_of_time_says_nothing_about_its_kernels(tree: Path) -> None:
    """The plan stated that no device code is compiled, because none was until then."""
    (tree / "setup.py").write_text("while True: pass\n")
    options = {"variant": "h100", "source": str(tree), "python": sys.executable}
    subject = survey(CommandLine(options=options))
    result = ask(subject, limits=replace(closed_room.FEW, seconds=2.0))
    assert result.asked.ended_for == "time"
    assert result.subject.asked is None


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(mini_asked LANGUAGES CXX)
foreach(name CUDA HIP)
  set(MINI_ENABLE_${name} OFF CACHE BOOL "build for ${name}")
endforeach()
add_library(mini mini.cpp)
if(MINI_ENABLE_CUDA)
  enable_language(CUDA)
  add_library(kernels kernel.cu)
  set_target_properties(kernels PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
endif()
"""


def test_cmake_is_asked_with_options_whose_names_are_computed(
    stoker: Stoker, tmp_path: Path
) -> None:
    for tool in ("nvcc", "cmake", "ninja"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    (tmp_path / "mini.cpp").write_text("int mini;\n")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    said = plan(stoker, tmp_path, "h100", "--ask")
    cmake, asked = said["cmake"], said["asked"]
    assert cmake["MINI_ENABLE_CUDA"] == "ON"
    assert (asked["cubins"], asked["ptx"]) == (["9.0"], [])
    assert (asked["device_compiles"], asked["host_compiles"]) == (1, 1)
    assert not (tmp_path / "build").exists()


PARTS = """
cmake_minimum_required(VERSION 3.18)
project(parts LANGUAGES CXX)
add_library(base base.cpp)
option(PKG_GPU "the package for GPUs" OFF)
if(PKG_GPU)
  set(GPU_API "opencl" CACHE STRING "API of the package")
  set_property(CACHE GPU_API PROPERTY STRINGS opencl cuda hip)
  if(GPU_API STREQUAL "cuda")
    enable_language(CUDA)
    add_library(kernels kernels.cu)
  endif()
endif()
"""


def test_a_part_that_is_switched_on_chooses_its_back_end(tmp_path: Path) -> None:
    """Neither of the two settings has an effect alone."""
    for tool in ("cmake", "ninja", "nvcc"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(PARTS)
    (tmp_path / "base.cpp").write_text("int base;\n")
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    said = CommandLine(options={"variant": "cuda-sm90", "source": str(tmp_path)})
    result = ask(survey(said))
    (known,) = (result.recipe.backends if result.recipe else {}).values()
    assert known.cmake["PKG_GPU"] == "ON"
    assert known.cmake["GPU_API"] == "cuda"
    assert result.asked.cubins == ("9.0",)


OLD = """
cmake_minimum_required(VERSION 3.10)
project(old LANGUAGES CXX)
option(WITH_CUDA "" OFF)
if(WITH_CUDA)
  find_package(CUDA REQUIRED)
  cuda_add_library(kernels kernels.cu OPTIONS -lineinfo)
endif()
"""


def test_compiles_of_find_cuda_are_seen_and_get_targets(tmp_path: Path) -> None:
    """They are scripts of CMake, and no list of targets reaches them."""
    for tool in ("cmake", "ninja", "nvcc"):
        find_tool(tool)
    (tmp_path / "CMakeLists.txt").write_text(OLD)
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    said = CommandLine(options={"variant": "cuda-sm90+sm100", "source": str(tmp_path)})
    result = ask(survey(said))
    assert result.asked.device_compiles == 1, result.asked.refusal
    assert result.asked.cubins == ("9.0", "10.0")
    (known,) = (result.recipe.backends if result.recipe else {}).values()
    assert known.cmake["CUDA_NVCC_FLAGS"] == "-gencode={gencode}"


def test_compiles_of_find_cuda_are_seen_where_cmake_writes_no_graph(tmp_path: Path) -> None:
    """A library to link is missing, so there is no build.ninja, and xmrig-cuda was said to compile
    no device code.
    """
    for tool in ("cmake", "nvcc"):
        find_tool(tool)
    missing = "find_library(MOON moon-that-is-not-here)\n"
    linked = "add_library(host SHARED host.cpp)\ntarget_link_libraries(host kernels ${MOON})\n"
    switched_on = OLD.replace('"" OFF', '"" ON')
    (tmp_path / "CMakeLists.txt").write_text(switched_on + missing + linked)
    (tmp_path / "kernels.cu").write_text("__global__ void kernel() {}\n")
    (tmp_path / "host.cpp").write_text("int host;\n")
    said = CommandLine(options={"variant": "cuda-sm90", "source": str(tmp_path)})
    result = ask(survey(said))
    assert "MOON" in result.asked.stopped
    assert (result.asked.device_compiles, result.asked.host_compiles) == (1, 1)
    assert result.asked.cubins == ("9.0",)


LOOKS = """
import subprocess
if subprocess.call(["nvidia-smi"]):
    raise SystemExit("NotImplementedError: there is no GPU")
subprocess.check_call(["nvcc", "-arch=sm_90", "-c", "kernel.cu", "-o", "kernel.o"])
"""


def test_a_build_that_needs_a_visible_gpu_is_an_error_on_a_machine_without(
    stoker: Stoker, tree: Path
) -> None:
    """The plan stated the targets, with a warning, although the build ends here."""
    if read_machine(()).gpus:
        pytest.skip("this machine has a GPU")
    (tree / "setup.py").write_text(LOOKS)
    words = ("doctor", "h100", "--source", str(tree), "--python", sys.executable, "--ask")
    done = stoker(*words)
    assert done.returncode == 1
    assert "without a visible GPU, as on this machine, the build ends:" in done.stdout
    assert "NotImplementedError: there is no GPU" in done.stdout


def test_a_cpu_build_that_compiles_device_code_is_an_error(stoker: Stoker, tree: Path) -> None:
    """The plan for cpu said nothing about it."""
    (tree / "setup.py").write_text(f"import subprocess\n{LOOKS.splitlines()[-1]}\n")
    done = stoker("doctor", "cpu", "--source", str(tree), "--python", sys.executable, "--ask")
    assert (done.returncode, "compiles CUDA code" in done.stdout) == (1, True), done.stdout


CHOICE = """
cmake_minimum_required(VERSION 3.18)
set(USE_BACKEND CACHE STRING "Back end")
set_property(CACHE USE_BACKEND PROPERTY STRINGS "" CUDA OPENCL)
project(mini CXX)
add_library(mini mini.cpp)
if(USE_BACKEND STREQUAL "CUDA")
  find_path(MOON_INCLUDE_DIR moon.h)
  if(NOT MOON_INCLUDE_DIR)
    message(FATAL_ERROR "moon.h was NOT found")
  endif()
  enable_language(CUDA)
endif()
"""


def test_a_switch_whose_build_lacks_something_is_told(stoker: Stoker, tmp_path: Path) -> None:
    """With it the build ends; without it, it would compile no device code."""
    find_tool("nvcc")
    (tmp_path / "CMakeLists.txt").write_text(CHOICE)
    (tmp_path / "mini.cpp").touch()
    (tmp_path / "kernel.cu").touch()
    said = plan(stoker, tmp_path, "h100", "--ask")
    asked, cmake = said["asked"], said["cmake"]
    assert isinstance(asked, dict)
    assert isinstance(cmake, dict)
    assert "moon.h was NOT found" in asked["refusal"]
    assert cmake["USE_BACKEND"] == "CUDA"
