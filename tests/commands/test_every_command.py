"""One use of each command, by the program as users start it, on one small project."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from builds import TIMEOUT_S, Project
from conftest import PROJECTS, Stoker, find_tool
from stoker.cli import COMMANDS
from stoker.cli.schemas import OUTPUTS, schema

URL = "https://example.com/stoker-0.1.0-py3-none-any.whl"
STOKER = str(Path(sys.executable).with_name("stoker"))
LOG = "FAILED: a.o\na.cpp:1:10: fatal error: zlib.h: No such file or directory\nninja: stopped\n"
MATRIX = '[variants.small]\nvariant = "cpu"\nsource = "mini-wheel"\n'
# What is run after `stoker build mini-wheel`, its exit status, and a part of what it prints.
USES = {
    "run": ("-- ninja -C b", 0, "steps in"),
    "watch": ("", 2, "no build of yours is running"),
    "develop": ("nowhere", 2, "nowhere"),
    "matrix": ("--dry-run stoker.toml", 0, "small"),
    "plan": ("cpu --source mini-wheel", 0, "CMAKE_BUILD_TYPE"),
    "doctor": ("cpu --source mini-wheel", 0, "ninja"),
    "toolchain": ("list", 0, "install one: stoker toolchain install"),
    "export": ("dockerfile https://example.com/a.git@v1 --variant cpu --stoker URL", 0, "FROM"),
    "diagnose": ("failed.log", 0, "zlib.h"),
    "history": ("", 0, "ninja -C b"),
    "report": ("1 -o page.html", 0, "page.html"),
    "graph": ("b", 0, "mini_core"),
    "simulate": ("1 --cpus 4 --memory 8G", 0, "CPUs"),
    "cache": ("status", 2, "--cache none"),
    "inspect": ("WHEEL", 0, "libmini_core.so"),
    "slim": ("WHEEL --for sm90 --dry-run", 0, "no device code"),
    "package": ("WHEEL --mode plain -o packed --force", 0, "packed"),
    "verify": ("WHEEL", 0, "sound"),
    "catalogue": ("publish WHEEL --to index --variant cpu", 0, "published to index"),
    "install": ("index mini-wheel --print", 0, "mini_wheel"),
    "clean": ("--all --dry-run", 0, "nothing to remove"),
}


@pytest.mark.timeout(900)
def test_each_command_does_its_work(stoker: Stoker, tmp_path: Path) -> None:
    find_tool("ninja")
    assert {"build", "container", *USES} == set(COMMANDS)
    wheel = Project(stoker, tmp_path, "mini-wheel").built().wheel
    (tmp_path / "failed.log").write_text(LOG)
    (tmp_path / "stoker.toml").write_text(MATRIX)
    source, folder = str(PROJECTS / "mini-wheel"), str(tmp_path / "b")
    configure = ["cmake", "-G", "Ninja", "-S", source, "-B", folder]
    subprocess.run(configure, check=True, capture_output=True)
    wrong: list[str] = []
    for name, (words, status, said) in USES.items():
        command = [STOKER, name, *words.replace("WHEEL", str(wheel)).replace("URL", URL).split()]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != status or said not in done.stdout + done.stderr:
            wrong.append(f"stoker {name} {words}: {done.returncode}\n{done.stdout}{done.stderr}")
        if name in OUTPUTS and status == 0:
            forms = [["--json"], *([["--dry-run", "--json"]] if name == "package" else [])]
            for form in forms:  # in this process, which has loaded stoker already
                told = stoker(*command[1:], *form, cwd=tmp_path).stdout
                jsonschema.validate(json.loads(told), schema(name))
    assert not wrong, "\n".join(wrong)


def test_containers_are_listed(stoker: Stoker) -> None:
    find_tool("podman")
    done = stoker("container", "list")
    assert done.returncode == 0, done.stderr


def test_keys_of_numbers_say_their_unit() -> None:
    """Durations end in ``_s``, amounts of memory and storage in ``_bytes``."""
    unclear = {"seconds", "duration", "began", "begun", "peak", "size", "bytes", "unpacked", "wall"}
    wrong = []
    for command in OUTPUTS:
        whole = schema(command)
        for where, node in ((command, whole), *whole.get("$defs", {}).items()):
            numbers = {key for key, kind in node.get("properties", {}).items() if _is_number(kind)}
            ends = {key for key in numbers if key.endswith("_seconds")} - {"byte_seconds"}
            if where != "ModeEffect":  # factors, not amounts
                wrong += [f"{where}.{key}" for key in (numbers & unclear) | ends]
    assert wrong == []


def _is_number(kind: dict[str, Any]) -> bool:
    kinds = {kind.get("type"), *(each.get("type") for each in kind.get("anyOf", ()))}
    return bool(kinds & {"number", "integer"})
