"""A hostile build that is asked changes nothing outside of its room, and ends in time."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

import closed_room
from conftest import Stoker, as_root, find_tool, missing
from stoker.ask.room import Limits

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


READ = """
import os
for path in PATHS:
    try:
        print(path, open(path).read()[:40])
    except OSError as error:
        print(path, "is hidden")
"""


@as_root
def test_a_build_of_root_sees_no_more_than_other_users_and_no_folders_beside_the_system(
    tmp_path: Path,
) -> None:
    """It has no capability, but root owns the files that only root can read."""
    mark = f"stoker-test-{uuid.uuid4().hex}"
    folders = [Path("/", mark), Path("/var/lib", mark), Path("/etc", mark)]
    secrets = [folder / "secret" for folder in folders] + [Path(f"/etc/{mark}.key")]
    plain = Path(f"/etc/{mark}.conf")
    try:
        for folder in folders:
            folder.mkdir()
        for path in (*secrets, plain):
            path.write_text(mark)
        for path in secrets[1:]:
            path.chmod(0o600)
        folders[2].chmod(0o700)
        paths = ["/etc/shadow", "/var/log/dpkg.log", *map(str, secrets)]
        (tmp_path / "setup.py").write_text(f"PATHS = {[*paths, str(plain)]!r}\n{READ}")
        lines = closed_room.answered(tmp_path).output.splitlines()
    finally:
        for path in (*secrets, plain):
            path.unlink(missing_ok=True)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    assert lines == [*(f"{path} is hidden" for path in paths), f"{plain} {mark[:40]}"]


TALK = """
import os, socket
def tried(what, attempt):
    try:
        attempt()
        print("reached:", what)
    except OSError as error:
        print("not reached:", what, error)
tried("socket", lambda: socket.socket(socket.AF_UNIX).connect(FOLDER + "/socket"))
tried("pipe", lambda: os.open(FOLDER + "/pipe", os.O_WRONLY | os.O_NONBLOCK))
tried("abstract", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + MARK))
tried("the machine that runs this one", lambda: socket.socket(40, socket.SOCK_STREAM))
print("pairs:", len(socket.socketpair()))
"""


@as_root
def test_a_build_reaches_no_service_by_a_socket_or_a_pipe(tmp_path: Path) -> None:
    """Neither a read-only file system nor a network of its own keeps it from these."""
    mark = f"stoker-test-{uuid.uuid4().hex}"
    folder = Path("/var/lib", mark)
    folder.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as service, socket.socket(socket.AF_UNIX) as abstract:
            service.bind(f"{folder}/socket")
            abstract.bind(f"\0{mark}")
            service.listen()
            abstract.listen()
            os.mkfifo(folder / "pipe")
            reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
            code = f"FOLDER, MARK = {str(folder)!r}, {mark!r}\n{TALK}"
            (tmp_path / "setup.py").write_text(code)
            said = closed_room.answered(tmp_path).output
            os.close(reader)
    finally:
        shutil.rmtree(folder)
    assert said.count("not reached:") == 4, said
    assert "pairs: 2" in said


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
