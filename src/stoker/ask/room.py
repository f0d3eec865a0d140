"""Starts the room in which a project is asked, and reads what is left there.

``inside/room.py`` makes the room; this module says what is seen in it.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from stoker.ask.values import Walls
from stoker.govern.client.native import LIBRARY, installed
from stoker.model.errors import MissingError, StokerError
from stoker.model.secrets import is_secret
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.outside import folders, process
from stoker.outside.files import folder_of_process

_INSIDE = Path(__file__).parent / "inside"
_OUTSIDE = (
    "__init__.py",
    "room.py",
    "leftovers.py",
    "refused_calls.py",
)  # what makes the room, and reads what is left
_REFUSED = 3  # status of inside/room.py if the kernel does not allow a room
_PLACE = "/tmp/.stoker"  # in the room
BUILD = "{build}"  # stands for CMake's build folder in a question
_GRACE_S = 30.0  # for the walls, and for reading what is left
# Variables of the session, which no build should depend on.
_LEFT_OUT = (
    *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "DOCKER_HOST"),
    *("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "TERM", "INVOCATION_ID", "JOURNAL_STREAM"),
)
_OWN = ("STOKER_", "XDG_", "PYTHON", "LD_PRELOAD", "CCACHE_", "SCCACHE_")


class Limits(Value, frozen=True, kw_only=True):
    """What the program in the room may use."""

    seconds: float = 300.0
    memory: int = 8 << 30  # bytes of all its processes
    processes: int = 512
    space: int = 4 << 30  # bytes that it may write, into memory


class Question(Value, frozen=True, kw_only=True):
    """A program to run in the room. ``words`` are for ``inside/driver.py``; ``shown`` are files and
    folders that it needs, wherever they are; ``tools`` are programs by name that it finds first.
    With ``fetches`` False, CMake passes over what FetchContent would fetch.
    """

    tree: str
    python: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    pretended: Mapping[str, object] | None = None
    lent: Mapping[str, str] = {}  # packages that a build gets, and a folder that has each
    shown: tuple[str, ...] = ()
    tools: Mapping[str, str] = {}
    fetches: bool = True
    limits: Limits = Limits()


class Left(Value, frozen=True, kw_only=True):
    """What a program left in the room. ``notes`` are lines of JSON, ``files`` texts by path."""

    status: int | None
    ended_for: str
    seconds: float
    notes: str
    files: dict[str, str]
    output: str


class RoomError(StokerError):
    """There is no room on this machine, or it did not work."""


def enter(question: Question, walls: Walls) -> Left:
    """Run the program and return what it left."""
    with folder_of_process(folders.cache(), "asked") as folder:
        config = folder / "room.json"
        config.write_bytes(msgspec.json.encode(room_config(question, walls, folder)))
        words = [sys.executable, "-I", "-S", str(_INSIDE / "room.py"), str(config)]
        if walls is Walls.OPEN:
            words.append("open")
        told = process.run(words, timeout=question.limits.seconds + _GRACE_S)
    if told.status == _REFUSED:
        raise MissingError(
            "this machine has no closed room for a project's own programs: "
            + (told.stderr.strip().splitlines() or ["no reason given"])[-1],
            hints=["--ask=open asks on a copy of the tree, with your rights and your network"],
        )
    try:
        return msgspec.json.decode(told.stdout, type=prepared(Left))
    except UNDECODABLE:
        said = told.stderr.strip().splitlines()[-3:]
        raise RoomError(
            f"asking the build {told.problem or 'gave no answer'}", hints=said
        ) from None


def room_config(question: Question, walls: Walls, folder: Path) -> dict[str, object]:
    """Return what ``inside/room.py`` is told."""
    closed = walls is Walls.CLOSED
    place = _PLACE if closed else str(folder)
    tree = question.tree if closed else f"{folder}/tree"
    names = {name: f"{place}/{name}" for name in ("kit", "notes", "home")}
    names["tmp"] = "/tmp" if closed else f"{folder}/tmp"
    moved = [word.replace(question.tree, tree) for word in question.words]
    moved = [f"{names['tmp']}/build" if word == BUILD else word for word in moved]
    return {
        **names,
        "tree": tree,
        "original": question.tree,
        "folder": tree,
        "command": [question.python, f"{names['kit']}/driver.py", *moved],
        "environment": _environment(question, names, tree),
        "hidden": _hidden(),
        "shown": _shown(question),
        "files": _files(question, names["kit"]),
        "bound": {"libstoker-preload.so": str(installed(LIBRARY))},
        "seconds": question.limits.seconds,
        "memory": question.limits.memory,
        "processes": question.limits.processes,
        "space": question.limits.space,
    }


def without_session(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program in the room may see: no secrets, nothing that belongs to
    the user's session.
    """
    return {
        name: value
        for name, value in environment.items()
        if not is_secret(name) and name not in _LEFT_OUT and not name.startswith(_OWN)
    }


def _environment(question: Question, names: Mapping[str, str], tree: str) -> dict[str, str]:
    kit = names["kit"]
    usual = question.environment
    beside = os.path.dirname(question.python)  # noqa: PTH120
    path = f"{kit}/bin:{beside}:{usual.get('PATH', os.defpath)}"
    own = {
        "HOME": names["home"],
        "TMPDIR": names["tmp"],
        "PATH": path,
        "PYTHONPATH": f"{kit}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CCACHE_DISABLE": "1",  # it would preprocess what is only noted
        # A tree without its history has no version, which decides nothing about its compiles.
        "SETUPTOOLS_SCM_PRETEND_VERSION": usual.get("SETUPTOOLS_SCM_PRETEND_VERSION", "0.0.0"),
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_LIBRARY_PATH": ":".join(
            filter(None, (usual.get("CMAKE_LIBRARY_PATH"), f"{kit}/lib"))
        ),
        "LC_ALL": "C.UTF-8",
        "LD_PRELOAD": f"{kit}/libstoker-preload.so",
        "STOKER_LAUNCHER": f"{kit}/recorder",
        "STOKER_NOTES": names["notes"],
        "STOKER_ASKED_TREE": tree,
    }
    if question.lent:
        own["STOKER_LENT"] = msgspec.json.encode(question.lent).decode()
    if not question.fetches:
        own["STOKER_DISCONNECTED"] = "1"
    if question.pretended is not None:
        own["STOKER_PRETENDED"] = msgspec.json.encode(question.pretended).decode()
    return {**usual, **own}


def _files(question: Question, kit: str) -> dict[str, str]:
    """Return stoker's own programs in the room."""
    files = programs()
    # The recorder runs without the preloaded library: what it starts is the real program.
    files["recorder"] = _script(
        'STOKER_LD_PRELOAD="$LD_PRELOAD"; export STOKER_LD_PRELOAD; unset LD_PRELOAD',
        f'exec "{question.python}" -IS "{kit}/recorder.py" "$@"',
    )
    for name, path in question.tools.items():
        files[f"bin/{name}"] = _script(f'exec "{path}" "$@"')
    if question.pretended is not None:
        # A machine that builds for a GPU often lacks its driver, whose library CMake looks for.
        files["lib/libcuda.so"] = ""
        files["bin/nvidia-smi"] = _script(
            f'exec "{question.python}" -IS "{kit}/nvidia_smi.py" "$@"'
        )
    return files


def programs() -> dict[str, str]:
    """Return stoker's programs for the room by their place in it."""
    places = {path.name: path for path in _INSIDE.glob("*.py") if path.name not in _OUTSIDE}
    texts = {name: path.read_text(encoding="utf-8") for name, path in places.items()}
    texts["site/sitecustomize.py"] = texts.pop("sitecustomize.py")
    return texts


def _script(*lines: str) -> str:
    return "\n".join(("#!/bin/sh", *lines)) + "\n"


def _hidden() -> list[str]:
    home = os.path.realpath(Path.home())
    own = [str(folders.cache()), str(folders.state()), str(folders.data())]
    return [path for path in (home, *own) if path != "/"]


def _shown(question: Question) -> list[str]:
    """Return what is shown although it is in a hidden folder, but never a home folder itself."""
    home = os.path.realpath(Path.home())
    lent = (f"{folder}/{name}" for name, folder in question.lent.items())
    wanted = {*question.shown, *lent, *question.environment.get("PATH", "").split(":")}
    return sorted(path for path in wanted if _is_part(path, home))


def _is_part(path: str, home: str) -> bool:
    """Tell whether a path is a part of the machine, and not a folder with the room or a home."""
    return path.startswith("/") and not any(
        f"{place}/".startswith(f"{path.rstrip('/')}/") for place in (home, _PLACE)
    )


def prefixes(programs: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that programs are installed in, by their real paths."""
    found = []
    for program in programs:
        path = Path(os.path.realpath(program))
        found += [str(path.parent.parent if path.parent.name == "bin" else path.parent)]
    return tuple(dict.fromkeys(found))
