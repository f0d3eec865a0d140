"""Decoding in several threads."""

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import stoker

SOURCES = Path(stoker.__file__).parent
# Four threads decode a value of nested structs for the first time. Without `prepared` it crashes.
THREADS = """
import sys
from threading import Barrier, Thread
import msgspec
from stoker.model.value import prepared

sys.setswitchinterval(1e-6)
FIELDS = [(f"field_{number}", tuple[int, ...] | None, None) for number in range(8)]

def decode(kind, value, barrier):
    barrier.wait()
    msgspec.convert(value, prepared(kind))

for _ in range(40):
    kind, value = None, {}
    for depth in range(30):
        fields = [*FIELDS, ("inner", kind | None, None)] if kind else FIELDS
        kind = msgspec.defstruct(f"Level{depth}", fields)
        value = {"field_0": [1], "inner": value} if depth else {"field_0": [1]}
    barrier = Barrier(4)
    threads = [Thread(target=decode, args=(kind, value, barrier)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_decode_a_type_for_the_first_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_type_is_prepared_before_it_is_decoded() -> None:
    others = [
        f"{file}: {ast.unparse(call)}"
        for file, call, kind in _decoded()
        if ast.unparse(kind).partition("(")[0] != "prepared" and not _is_plain(kind)
    ]
    assert others == []


def _decoded() -> Iterator[tuple[str, ast.Call, ast.expr]]:
    """Yield each call of msgspec that takes a type."""
    for file in SOURCES.rglob("*.py"):
        name = file.relative_to(SOURCES).as_posix()
        if "msgspec" not in (text := file.read_text()) or name == "model/value.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
                yield from ((name, node, kind) for kind in _kinds(node))


def _kinds(call: ast.Call) -> Iterator[ast.expr]:
    yield from (word.value for word in call.keywords if word.arg == "type")
    match ast.unparse(call.func).rpartition(".")[2]:
        case "convert":
            yield from call.args[1:2]
        case "Decoder":
            yield from call.args[:1]


def _is_plain(kind: ast.expr) -> bool:
    """Return whether a type is made of Python's own ones, of which msgspec builds no table."""
    return all(node.id in dir(builtins) for node in ast.walk(kind) if isinstance(node, ast.Name))
