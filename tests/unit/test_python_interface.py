"""The functions of `import stoker`: the values that the commands print as JSON."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import stoker
from catalogue_wheels import make_wheel
from conftest import PROJECTS, Stoker
from stoker.model.errors import UsageError

LOG = "FAILED: a.o\na.cpp:1:10: fatal error: zlib.h: No such file or directory\nninja: stopped\n"


def told(stoker: Stoker, *words: str) -> object:
    """Return what a command prints, without the version that only documents have."""
    document = json.loads(stoker(*words, "--json").stdout)
    document.pop("json_version", None)
    return document


def test_values_are_those_of_the_commands(stoker: Stoker, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    (tmp_path / "a.log").write_text(LOG)
    import stoker as interface

    facts = interface.inspect(wheel)
    assert json.loads(msgspec.json.encode(facts)) == told(stoker, "inspect", str(wheel))
    log = tmp_path / "a.log"
    diagnosis = interface.diagnose(log)
    assert json.loads(msgspec.json.encode(diagnosis)) == told(stoker, "diagnose", str(log))
    assert interface.diagnose(log) == diagnosis  # its package is imported now
    planned = interface.plan("cpu", source=PROJECTS / "mini-cmake", options={"blas": "openblas"})
    assert planned.name == "cpu-openblas"


def test_a_run_and_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.c").write_text("int f(void) { return 0; }\n")
    events: list[object] = []
    finished = stoker.run(["cc", "-c", "a.c"], show=events.append, memory="2G", cpus=1)
    assert (finished.status, (tmp_path / "a.o").exists()) == (0, True)
    assert finished.summary is not None
    assert (finished.summary.steps, finished.summary.cpus) == (1, 1)
    assert events
    (run,) = stoker.history()
    (attempt,) = stoker.steps(run.id)
    assert attempt.record.step.source == "a.c"


def test_a_setting_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="no setting 'memroy'"):
        stoker.run(["true"], memroy="2G")


def test_importing_costs_little() -> None:
    code = "import sys, stoker; print([n for n in sys.modules if n.startswith('stoker')])"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "['stoker']\n"


def test_the_functions_are_listed() -> None:
    names = [name for name in dir(stoker) if not name.startswith("__")]
    assert names == ["diagnose", "history", "inspect", "plan", "run", "steps"]


def test_a_variant_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON of a plan has it, and the value had not."""
    monkeypatch.chdir(tmp_path)  # stoker's own tree has no code for GPUs
    options = {"platform": "linux-x86_64"}
    planned = stoker.plan("cu130-h100-openblas-py312-debug", options=options)
    assert planned.variant.name == planned.name == "cu130-sm90-openblas-py312-debug-linux_x86_64"
