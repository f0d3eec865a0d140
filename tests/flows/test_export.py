"""`stoker export`: each format against its snapshot and against its own tool.

``STOKER_UPDATE_SNAPSHOTS=1`` writes the snapshots in tests/exports. Not checked here, because the
tools are not in the package registries: a build of the Dockerfile, sbatch's options by Slurm, and
the evaluation of a Nix file by nixpkgs (it is parsed).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Stoker
from stoker.model.export import ExportFormat

SNAPSHOTS = Path(__file__).parents[1] / "exports"
SOURCE = "https://example.org/pytorch/pytorch@v2.9.1"
MATRIX = """\
[defaults]
platform = "linux-x86_64"
[variants.fleet]
variant = "cu128-sm80+sm90-avx512"
blas = "mkl"
define = { USE_GDS = "a $HOME 'b'" }
[variants.laptop]
variant = "cpu-avx2-py311"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stoker.toml").write_text(MATRIX)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)  # tools that come as wheels
    return tmp_path


CHECKS = {
    "dockerfile": ["hadolint", "--ignore", "DL3059", "--ignore", "SC2016"],
    "cloudbuild": ["check-jsonschema", "--builtin-schema", "vendor.cloudbuild"],
    "github-actions": ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"],
    "kubernetes": ["kubernetes-validate", "--strict", "--quiet"],
    "slurm": ["shellcheck"],
    "nix": ["nix-instantiate", "--parse"],
    "flox": ["nix-instantiate", "--parse"],
}


@pytest.mark.parametrize("form", [str(form) for form in ExportFormat])
def test_every_format_is_that_of_its_snapshot_and_passes_its_own_tool(
    form: str, folder: Path, stoker: Stoker, need: Callable[[str], str]
) -> None:
    out = folder / "out"
    words = ["export", form, SOURCE, "--matrix", "--out", str(out), "--stoker", "stoker==1.2.3"]
    done = stoker(*words)
    assert done.returncode == 0, done.stderr
    written = [Path(line) for line in done.stdout.splitlines()]
    assert written
    for path in written:
        # Flox builds the same files as Nix, from another folder.
        snapshot = SNAPSHOTS / form.replace("flox", "nix") / path.name.removeprefix(".")
        if os.environ.get("STOKER_UPDATE_SNAPSHOTS"):
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            snapshot.write_text(path.read_text())
        assert path.read_text() == snapshot.read_text()
    program, *options = CHECKS[form]
    command = [need(program), *options, *map(str, written)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_command_keeps_its_words_through_the_quoting_of_a_script(
    folder: Path, stoker: Stoker
) -> None:
    stoker("export", "slurm", SOURCE, "--matrix", "--only", "fleet", "--out", str(folder))
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    program = venv / "bin" / "stoker"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "STOKER_VENV": str(venv), "SLURM_ARRAY_TASK_ID": "0"}
    script = ["bash", str(folder / "wheels.sbatch")]
    words = subprocess.check_output(script, env=environment, text=True).splitlines()
    assert words[:4] == ["build", SOURCE, "-D", "USE_GDS=a $HOME 'b'"]
    assert words[words.index("--variant") + 1].startswith("cu128-sm80+sm90-avx512-mkl")


def test_files_are_printed_or_written_once(folder: Path, stoker: Stoker) -> None:
    words = ["export", "dockerfile", SOURCE, "--variant", "laptop"]
    assert "FROM " in stoker(*words).stdout
    files = json.loads(stoker(*words, "--json").stdout)
    assert [file["path"] for file in files] == ["Dockerfile"]
    for _ in range(2):  # the second time, the content is the same
        assert stoker(*words, "--out", str(folder)).returncode == 0
    (folder / "Dockerfile").write_text("FROM scratch\n")
    refused = stoker(*words, "--out", str(folder))
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (folder / "Dockerfile").read_text() == "FROM scratch\n"
    stoker(*words, "--out", str(folder), "--force")
    assert (folder / "Dockerfile").read_text() == files[0]["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dockerfile", ".", "--variant", "cpu"], "cannot fetch"),
        (["dockerfile", "https://example.org/a/b", "--variant", "cpu"], "not pinned"),
        (["dockerfile", SOURCE], "needs a variant"),
        (["dockerfile", "--variant", "cpu"], "no SOURCE"),
        (["dockerfile", SOURCE, "--matrix", "--variant", "cpu"], "exclude each other"),
        (["dockerfile", SOURCE, "--matrix", "--only", "flet"], "did you mean fleet"),
        (["dockerfile", SOURCE, "--variant", "cuda-sm90"], "no builder image"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--image", "a b"], "not the name"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--memory", "much"], "no amount of memory"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--hours", "0"], "--hours"),
        (["nix", SOURCE, "--variant", "cpu-eigen"], "nixpkgs cannot"),
        (["nix", SOURCE, "--variant", "vulkan", "--image", "a"], "nixpkgs does not"),
        (["dockerfiles", SOURCE, "--variant", "cpu"], "dockerfile"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    words: list[str], message: str, folder: Path, stoker: Stoker
) -> None:
    refused = stoker("export", *words)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["stoker.toml"]
