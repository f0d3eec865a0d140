"""`stoker verify` on small wheels: its output, its exit status, and a trial."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from built_libraries import build
from conftest import Need, Stoker
from stoker.builds.finishing import check_wheel
from stoker.builds.stages import StageLog
from stoker.cli.wheel import verify as command
from stoker.model.errors import ArtifactError, StokerError, UsageError
from wheel_files import CODE, DIST_INFO, METADATA, WHEEL, make_wheel, record, wheel_bytes, zipped


def _verify(*arguments: object) -> int:
    return int(command.main([str(word) for word in arguments], standalone_mode=False))


def _wheel(folder: Path, **more: bytes) -> Path:
    contents = {
        "mill/__init__.py": CODE,
        f"{DIST_INFO}/METADATA": METADATA,
        f"{DIST_INFO}/WHEEL": WHEEL,
        f"{DIST_INFO}/stoker-plan.json": b'{"variant": {"name": "cpu", "backend": "cpu"}}',
        **more,
    }
    return make_wheel(folder, wheel_bytes(contents))


def test_a_sound_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _verify(_wheel(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "mill 1.2, compared with cpu" in printed
    passed = [line for line in printed.splitlines() if line.startswith("ok ")]
    assert any(line.startswith("ok     files: all files match RECORD") for line in passed)
    assert len(passed) == 3  # one line for each topic; it has no libraries and no search paths
    assert printed.endswith("This wheel is sound.\n")


@pytest.mark.parametrize(
    "plan",
    [b"", b"[]", b'{"variant": {"cpu": "abacus"}}', b'{"variant": {"gpus": [{"arch": "ninety"}]}}'],
)
def test_findings_for_machines_of_a_plan_that_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: bytes
) -> None:
    broken = _wheel(tmp_path, **{f"{DIST_INFO}/stoker-plan.json": plan})
    report = tmp_path / "reports" / "junit.xml"
    assert _verify(broken, "--json", "--junit", report) == 1
    built = json.loads(capsys.readouterr().out)
    assert (built["name"], built["version"], built["ok"]) == ("mill", "1.2", False)
    assert built["findings"][0]["name"] == "unreadable-plan"
    assert ElementTree.parse(report).getroot().get("failures") == "1"


def test_a_variant_of_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stoker.toml").write_text('[variants.ours]\nvariant = "cpu"\npython = "3.12"\n')
    monkeypatch.chdir(tmp_path)
    assert _verify(_wheel(tmp_path), "--variant", "ours", "--json") == 1
    built = json.loads(capsys.readouterr().out)
    assert built["variant"] == "cpu-py312"
    assert built["findings"][0]["name"] == "other-plan"


def _worst(folder: Path, capsys: pytest.CaptureFixture[str], **more: bytes) -> dict[str, str]:
    """Return the evidence of errors and warnings by name."""
    status = _verify(_wheel(folder, **more), "--json")
    built = json.loads(capsys.readouterr().out)
    assert status == (0 if built["ok"] else 1)
    worst = [one for one in built["findings"] if one["severity"] in ("error", "warning")]
    assert built["ok"] == all(one["severity"] == "warning" for one in worst)
    return {one["name"]: one["evidence"] for one in worst}


@pytest.mark.parametrize(
    ("path", "content", "name"),
    [
        ("zz.pth", b"import os; os.system('true')\n", "runs-at-start"),
        ("mill-1.2.data/purelib/zz.pth", b"# more\nimport\tos\n", "runs-at-start"),
        ("sitecustomize.py", b"", "runs-at-start"),
        ("usercustomize/__init__.py", b"", "runs-at-start"),
        ("mill-1.2.data/scripts/python3", b"#!python\n", "foreign-files"),
        ("mill-1.2.data/data/bin/grind", b"#!/bin/sh\n", "foreign-files"),
        ("mill-1.2.data/data/lib/python3.12/site-packages/far.py", b"", "foreign-files"),
        ("mill-1.2.data/data/pyvenv.cfg", b"home = /tmp\n", "foreign-files"),
        ("mill-1.2.data/platlib/torch-2.9.dist-info/METADATA", b"", "foreign-files"),
        ("mill-1.2.dist-info/entry_points.txt", b"[console_scripts]\npip = a:b\n", "foreign-files"),
        ("mill-1.2.dist-info/entry_points.txt", b"[gui_scripts]\n../x = a:b\n", "foreign-files"),
        ("zz.pth", b"../far\n", "adds-search-path"),
        ("zz-nspkg.pth", b"import sys, types\n", "known-start-file"),
        ("mill-1.2.data/data/LICENSE", b"", "files-outside"),
        ("torch/lib/extra.txt", b"", "files-of-a-requirement"),
    ],
)
def test_what_a_wheel_writes_outside_of_its_own_packages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, content: bytes, name: str
) -> None:
    wants = METADATA.replace(b"\n\n", b"\nRequires-Dist: torch\n\n")
    more = {f"{DIST_INFO}/METADATA": wants, path: content}
    assert [*_worst(tmp_path, capsys, **more)] == [name]


def test_what_a_wheel_may_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "mill/inside.pth": b"import os\n",
        "mill-1.2.data/scripts/grind": b"#!python\n",
        "mill-1.2.data/data/share/mill/corn.txt": b"",
        "mill-1.2.data/data/lib/libmill.txt": b"",
        "mill-1.2.data/headers/mill.h": b"",
        f"{DIST_INFO}/entry_points.txt": b"[console_scripts]\nmill = mill:grind\n[far]\n../x = a:b",
    }
    assert _worst(tmp_path, capsys, **files) == {}


def test_a_slim_record_excuses_only_what_slimming_leaves_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record is a file of the wheel, so a wheel could excuse itself from everything."""
    wrong = "mill/__init__.py: the hash in RECORD is wrong"
    starts = "zz.pth: import os"
    note = {"targets": ["9.0"], "label": "sm90", "private": False}
    note["inherited"] = {"wrong-hash": [wrong], "runs-at-start": [starts]}
    contents = {
        "mill/__init__.py": CODE,
        "zz.pth": b"import os\n",
        f"{DIST_INFO}/METADATA": METADATA,
        f"{DIST_INFO}/WHEEL": WHEEL,
        f"{DIST_INFO}/stoker-slim.json": json.dumps(note).encode(),
    }
    listed = record({**contents, "mill/__init__.py": CODE[::-1]})
    wheel = make_wheel(tmp_path, zipped({**contents, f"{DIST_INFO}/RECORD": listed}))
    assert _verify(wheel, "--json") == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["wrong-hash"]["severity"] == "error"
    assert found["runs-at-start"]["severity"] == "warning"


def test_what_is_no_wheel(tmp_path: Path) -> None:
    text = tmp_path / "mill-1.2-py3-none-any.whl"
    text.write_text("not a zip file")
    with pytest.raises(ArtifactError, match="mill"):
        _verify(text)
    with pytest.raises(UsageError, match="there is no file"):
        _verify(tmp_path / "nowhere.whl")
    renamed = _wheel(tmp_path).rename(tmp_path / "mill.zip")
    with pytest.raises(UsageError, match="not named like a wheel"):
        _verify(renamed)


@pytest.mark.slow
def test_a_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = _wheel(tmp_path, **{"broken.py": b"raise RuntimeError('jammed')\n"})
    assert _verify(wheel, "--run", "--json") == 1
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["trial-install"]["severity"] == "ok"
    assert findings["trial-import-mill"]["severity"] == "ok"
    assert findings["trial-import-broken"]["severity"] == "error"
    assert "RuntimeError: jammed" in findings["trial-import-broken"]["evidence"]


@pytest.mark.slow
def test_a_wheel_that_cannot_be_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wants = METADATA.replace(b"\n\n", b"\nRequires-Dist: nowhere-to-be-found\n\n")
    wheel = _wheel(tmp_path, **{f"{DIST_INFO}/METADATA": wants})
    assert _verify(wheel, "--run", "--json") == 1
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert "nowhere-to-be-found" in findings["trial-install"]["evidence"]
    assert not [name for name in findings if name.startswith("trial-import")]


def test_what_is_piped_has_no_blanks_at_the_ends_of_lines(
    stoker: Stoker, tmp_path: Path, need: Need
) -> None:
    """Long lines are wrapped in tables, which rich pads."""
    wheel = _lacking(tmp_path, need, *(f"lib{number}_{'x' * 190}.so" for number in range(3)))
    for words in (
        ("verify", str(wheel)),
        ("diagnose", "--explain", "optional-dep-silently-off"),
        ("diagnose", "--explain"),
    ):
        done = stoker(*words)
        assert len(done.stdout.splitlines()) > 5
        assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


def _lacking(folder: Path, need: Need, *names: str) -> Path:
    """A wheel with a library that needs others, which no package has."""
    for name in names:
        build(need, folder, f"-Wl,-soname,{name}", source="int a;", name=name)
    library = build(
        need,
        folder,
        "-Wl,--no-as-needed",
        "-L.",
        *(f"-l:{name}" for name in names),
        source="int b;",
    )
    return _wheel(folder, **{"mill/libmill.so": library.read_bytes()})


@pytest.mark.parametrize(
    ("library", "mode", "said"),
    [
        ("libnobody.so", "plain", "bundle"),
        ("libnobody.so", "bundle", None),
        ("libcublas.so.13", "plain", "pypi"),
    ],
)
def test_a_build_says_how_a_wheel_gets_the_libraries_it_lacks(
    tmp_path: Path, need: Need, library: str, mode: str, said: str | None
) -> None:
    wheel = _lacking(tmp_path, need, library)
    with (tmp_path / "log").open("wb") as stream, pytest.raises(StokerError) as raised:
        check_wheel(wheel, StageLog(tmp_path / "log", stream, None), mode)
    hints = "\n".join(raised.value.hints)
    assert f"{library}, needed by mill/libmill.so" in hints
    assert re.findall(r"next: --mode (\w+)", hints) == ([said] if said else [])
