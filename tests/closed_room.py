"""Programs in the room of ``stoker.ask``, for tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.ask import inside
from stoker.ask.room import Left, Limits, Question, enter, prefixes, room_config, without_session
from stoker.ask.values import Walls

FEW = Limits(seconds=120, memory=1 << 30, processes=100, space=64 << 20)
# For programs that take shared memory, which is counted for the whole machine: they are ended
# long before the builds of other tests reach their limit.
LITTLE_MEMORY = replace(FEW, memory=FEW.memory // 8)


def answered(tree: Path, *, limits: Limits = FEW, **environment: str) -> Left:
    """Run the setup.py of a tree in the room, and return what it left."""
    return enter(
        Question(
            tree=str(tree),
            python=sys.executable,
            words=("setup.py",),
            environment=without_session(os.environ) | environment,
            shown=(sys.prefix, sys.base_prefix, *prefixes([sys.executable]), *sys.path),
            limits=limits,
        ),
        Walls.CLOSED,
    )


def started_as(
    words: list[str], tree: Path, python: str, limits: Limits
) -> "subprocess.CompletedProcess[str]":
    """Run the setup.py of a tree in the room as the user that ``words`` start a command as. That
    user need not be able to read stoker.
    """
    question = Question(
        tree=str(tree),
        python=python,
        words=("setup.py",),
        environment=without_session(os.environ),
        limits=limits,
    )
    config = tree.parent / "room.json"
    config.write_bytes(msgspec.json.encode(room_config(question, Walls.CLOSED, tree.parent)))
    place = Path(inside.__file__).parent
    for name in ("leftovers.py", "refused_calls.py"):
        shutil.copy(place / name, tree.parent)
    program = shutil.copy(place / "room.py", tree.parent)
    return subprocess.run(
        [*words, python, "-I", "-S", str(program), str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
