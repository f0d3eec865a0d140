"""`stoker tune` on a build folder with real compiles and links."""

import hashlib
import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Need
from governed import STOKER, wait_until
from stoker.accelerate.linkers import TunedLink, keep_links, linker_version
from stoker.govern.history.store import History
from stoker.model.govern import CompileMode
from stoker.model.runs import Run

RULES = """
rule cc
  command = ccache gcc -O1 -fPIC -MD -MF $out.d -c $in -o $out
  deps = gcc
  depfile = $out.d
rule link
  command = : && gcc -shared -Wl,-Map=$out.map -o $out @$out.rsp && :
  rspfile = $out.rsp
  rspfile_content = $in
"""
UNITS = ("one", "two", "three")


@pytest.fixture
def folder(tmp_path: Path, stoker_home: Path, need: Need) -> Path:
    for program in ("ninja", "gcc", "ccache", "ld.gold"):
        need(program)
    assert stoker_home.is_dir()  # its history is that of this test
    folder = tmp_path / "build"
    folder.mkdir()
    lines = [f"build {unit}.o: cc {unit}.c" for unit in UNITS]
    lines.append(f"build liball.so: link {' '.join(f'{unit}.o' for unit in UNITS)}")
    (folder / "build.ninja").write_text(RULES + "\n".join(lines) + "\n")
    for unit in UNITS:
        (folder / f"{unit}.c").write_text(f"int {unit}(int n) {{ return n + {len(unit)}; }}\n")
    return folder


def stoker(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STOKER, *map(str, words)], capture_output=True, text=True, check=False)


def content(folder: Path) -> dict[str, tuple[str, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in files
    }


def recorded() -> tuple[Run, ...]:
    with History() as history:
        return history.runs()


@pytest.mark.slow
def test_a_sample_is_measured_without_touching_the_build(folder: Path) -> None:
    subprocess.run(["ninja", "-C", folder], check=True)
    before = content(folder)
    done = stoker("tune", folder, "--steps", "2", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert content(folder) == before
    found = json.loads(done.stdout)
    outputs = [step["output"] for step in found["sample"]]
    assert outputs[2:] == ["liball.so"]
    assert len(set(outputs[:2]) & {f"{unit}.o" for unit in UNITS}) == 2
    rows = {row["trial"]: row for row in found["results"]}
    assert rows["lean"]["same"] == 2
    assert rows["lean"]["time"]["rounds"] == 2
    assert rows["ccache, hit"]["same"] == 2
    assert not any(row["problems"] for row in rows.values())
    assert (rows["gold"]["same"], rows["gold"]["differences"]) == (1, [])
    assert "round 2 of 2" in done.stderr
    assert all(measured["wall_s"] and measured["cpu_s"] for measured in found["measurements"])
    assert recorded() == ()

    # Whether gold is faster depends on the machine; if it is, `--linker auto` uses it.
    version = linker_version(CompileMode.GOLD) or ""
    link = TunedLink(
        link=found["sample"][-1]["link"], output="", linker=CompileMode.GOLD, version=version
    )
    keep_links(folder, [link])
    (folder / "liball.so").unlink()
    done = stoker("run", "--linker", "auto", "--", "ninja", "-C", folder)
    assert "links: 1 gold (`stoker tune` has measured 1 link)" in done.stderr
    assert b".note.gnu.gold-version" in (folder / "liball.so").read_bytes()
    done = stoker("plan", "cpu", "--linker", "auto")
    assert re.search("linker +gold +`stoker tune` has measured 1 link", done.stdout)


def test_an_interrupted_one_leaves_no_steps_in_the_history(folder: Path) -> None:
    subprocess.run(["ninja", "-C", folder], check=True)
    begun, linker, rules = folder / "begun", folder / "gcc", folder / "build.ninja"
    linker.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    linker.chmod(0o755)
    rules.write_text(rules.read_text().replace("gcc -shared", f"{linker} -shared"))
    with subprocess.Popen([STOKER, "tune", folder], stderr=subprocess.PIPE, text=True) as run:
        wait_until(begun.exists, "a link is measured")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
    assert recorded() == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "build.ninja").unlink(), "there is no build.ninja"),
        (lambda _: None, "nothing is compiled"),
        (
            lambda folder: (folder / "build.ninja").write_text(
                "rule r\n command = :\nbuild a: r\n"
            ),
            "no C or C++ compiles",
        ),
    ],
    ids=["no build folder", "not built", "nothing to compile"],
)
def test_what_cannot_be_measured_is_said(
    folder: Path, change: Callable[[Path], None], message: str
) -> None:
    change(folder)
    done = stoker("tune", folder)
    assert done.returncode == 2
    assert message in done.stderr
