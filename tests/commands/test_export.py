"""`stoker export`: each format against its snapshot and against its own tool.

``STOKER_UPDATE_SNAPSHOTS=1`` writes the snapshots in tests/exports. Not checked here, because the
tools are not in the package registries: a build of the Dockerfile, sbatch's options by Slurm, and
the evaluation of a Nix file by nixpkgs (it is parsed). The services of a Slurm job do run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from conftest import Need, Stoker
from small_disks import small_disk
from stoker.knowledge.export_targets import ExportFormat
from stoker.model.errors import ExitStatus

STOKER = ("--stoker", "stoker==1.2.3")
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
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stoker.toml").write_text(MATRIX)
    return tmp_path


CHECKS = {
    "dockerfile": ["hadolint", "--ignore", "DL3059", "--ignore", "SC2016"],
    "cloudbuild": ["check-jsonschema", "--builtin-schema", "vendor.cloudbuild"],
    "github-actions": ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"],
    "kubernetes": ["kubernetes-validate", "--strict", "--quiet"],
    "slurm": ["shellcheck"],
    "compose": ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"],
    "nix": ["nix-instantiate", "--parse"],
    "flox": ["nix-instantiate", "--parse"],
}


BUILDS = [str(form) for form in ExportFormat if form is not ExportFormat.COMPOSE]


@pytest.mark.slow
@pytest.mark.parametrize("form", BUILDS)
def test_every_format_is_that_of_its_snapshot_and_passes_its_own_tool(
    form: str, folder: Path, stoker: Stoker, need: Need
) -> None:
    words = ["export", form, SOURCE, "--matrix", "--stoker", "stoker==1.2.3"]
    snapshots = SNAPSHOTS / form.replace("flox", "nix")  # the same files in another folder
    check(form, written(stoker, words, folder / "out", snapshots), need)


@pytest.mark.parametrize("form", ["github-actions", "gitlab", "slurm", "kubernetes"])
def test_a_build_in_shards_is_that_of_its_snapshot_and_passes_the_tool_of_the_format(
    form: str, folder: Path, stoker: Stoker, need: Need
) -> None:
    """Where each variant has jobs of its own, a snapshot has those of one."""
    words = ["export", form, SOURCE, "--matrix", "--stoker", "stoker==1.2.3", "--shards", "4"]
    words += ["--cpus", "4", "--memory", "16G", "--hours", "6"]
    check(form, exported(stoker, words, folder / "out"), need)
    words += [] if form == "slurm" else ["--only", "fleet"]
    written(stoker, words, folder / "one", SNAPSHOTS / f"farm-{form}")


def test_the_number_of_jobs_is_said_and_refused_if_the_system_allows_fewer(
    folder: Path, stoker: Stoker
) -> None:
    words = ["export", "github-actions", SOURCE, "--matrix", *STOKER]
    said = stoker(*words, "--shards", "64")
    each = "64 shards and a job that links for each of 2 variants"
    assert f"130 jobs: {each}; 260 if time runs out" in said.stderr
    refused = stoker(*words, "--shards", "65", "--out", str(folder / "out"))
    assert refused.returncode == 2
    assert "can start 260 jobs in 2 rounds, and GitHub allows 256" in refused.stderr
    assert "--shards 64" in refused.stderr
    assert not (folder / "out").exists()
    words[1] = "gitlab"
    assert "GitLab allows 200 shards" in stoker(*words, "--shards", "201").stderr


@pytest.mark.parametrize("form", ["kubernetes", "compose", "slurm"])
def test_workers_are_those_of_their_snapshots_and_pass_the_tool_of_the_format(
    form: str, folder: Path, stoker: Stoker, need: Need
) -> None:
    options = {"kubernetes": ["--allow", "10.1.0.0/16"], "compose": ["--allow", "10.2.0.0/28"]}
    words = ["export", form, "--cluster", "--cpus", "8", *options.get(form, [])]
    made = written(stoker, words, folder / "out", SNAPSHOTS / "workers")
    dockerfiles = [path for path in made if path.name.startswith("Dockerfile.")]
    check(form, [path for path in made if path not in dockerfiles], need)
    if dockerfiles:
        check("dockerfile", dockerfiles, need, "--ignore", "DL3008")


def exported(stoker: Stoker, words: list[str], out: Path) -> list[Path]:
    done = stoker(*words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    found = [Path(line) for line in done.stdout.splitlines()]
    assert found
    return found


def written(stoker: Stoker, words: list[str], out: Path, snapshots: Path) -> list[Path]:
    """Export to a folder, compare each file with its snapshot, and return the files."""
    found = exported(stoker, words, out)
    for path in found:
        snapshot = snapshots / path.name.removeprefix(".")
        if os.environ.get("STOKER_UPDATE_SNAPSHOTS"):
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            snapshot.write_text(path.read_text())
        assert path.read_text() == snapshot.read_text()
    return found


def check(form: str, files: list[Path], need: Need, *more: str) -> None:
    program, *options = CHECKS[form]
    command = [need(program), *options, *more, *map(str, files)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("form", ["github-actions", "farm-github-actions"])
def test_every_script_of_a_workflow_passes_shellcheck(form: str, need: Need) -> None:
    """Jobs in a container have `sh`, not bash, unless they say otherwise."""
    workflow = yaml.safe_load((SNAPSHOTS / form / "wheels.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    scripts = dict.fromkeys(step["run"] for step in steps if "run" in step)
    assert scripts
    for script in scripts:
        words = [need("shellcheck"), "--shell=sh", "-"]
        done = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, script + done.stdout


# Runs the job in a network of its own: this machine is the only node.
SLURM = r"""
set -euo pipefail
python3 -c 'import fcntl, socket, struct
up = struct.pack("16sh", b"lo", 1)
fcntl.ioctl(socket.socket(), 0x8914, up)'
scontrol() { echo 127.0.0.1; }
srun() { while [[ $1 == --* ]]; do shift; done; "$@"; }
export -f scontrol srun
export SLURM_JOB_NODELIST=127.0.0.1 SLURMD_NODENAME=127.0.0.1 SLURM_JOB_ID=7 SCCACHE_LOG=info
bash workers.sbatch > log 2>&1 &
for _ in {1..100}; do
    grep -qs "Server connected to scheduler" log && grep -qs "Ready to accept" log && break
    sleep 0.1
done
stat -c %a stoker-workers-7.txt
echo 'int made;' > made.cpp
# The cache of this machine is empty, and the shared one has no such object.
compile='-- g++ -c made.cpp -o made.o'
sed "s/stoker build SOURCE \(.*\)/stoker run \1 $compile/" stoker-workers-7.txt > build.sh
SCCACHE_DIR=$PWD/cache sh -e build.sh >&2
remote=$(grep -o 'redis://[^ ]*' stoker-workers-7.txt)
redis-cli -u "$remote" set key value
redis-cli -h 127.0.0.1 get key
"""


@pytest.mark.slow
def test_the_services_of_a_slurm_job_compile_and_ask_for_a_password(
    folder: Path, stoker: Stoker, need: Need
) -> None:
    for program in ("sccache-dist", "bwrap", "redis-server", "redis-cli"):
        need(program)
    words = ["export", "slurm", "--cluster", "--cpus", "2", "--out", str(folder)]
    assert stoker(*words).returncode == 0
    alone = [need("unshare"), "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    alone += [] if os.getuid() == 0 else ["--map-root-user"]
    environment = {**os.environ, "STOKER_VENV": sys.prefix, "STOKER_CACHE": "sccache"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = [*alone, "bash", "-c", SLURM]
    run = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    log = run.stderr + (folder / "log").read_text()
    assert run.stdout.splitlines()[:2] == ["600", "OK"], run.stdout + log
    assert "NOAUTH" in run.stdout
    assert (folder / "made.o").exists(), log
    assert "Job 0 updated state to Complete" in log, log


def test_a_command_keeps_its_words_through_the_quoting_of_a_script(
    folder: Path, stoker: Stoker
) -> None:
    stoker("export", "slurm", SOURCE, "--matrix", "--only", "fleet", *STOKER, "--out", str(folder))
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


@pytest.mark.slow
def test_files_are_printed_or_written_once(folder: Path, stoker: Stoker) -> None:
    words = ["export", "dockerfile", SOURCE, "--variant", "laptop", *STOKER]
    assert "FROM " in stoker(*words).stdout
    files = json.loads(stoker(*words, "--json").stdout)["files"]
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


def test_a_wheel_that_does_not_fit_leaves_the_old_one(stoker: Stoker, tmp_path: Path) -> None:
    wheel = tmp_path / "stoker-0.1.0-py3-none-linux_x86_64.whl"
    words = (SOURCE, "--variant", "cpu", "--stoker", str(wheel), "--force")
    with small_disk(tmp_path / "disk", "size=256k") as disk:
        wheel.write_bytes(b"a wheel")
        assert stoker("export", "gitlab", *words, "--out", str(disk)).returncode == 0
        wheel.write_bytes(bytes(1 << 20))
        done = stoker("export", "gitlab", *words, "--out", str(disk))
        assert done.returncode == ExitStatus.STORAGE, done.stderr
        assert (disk / wheel.name).read_bytes() == b"a wheel"


@pytest.mark.slow
def test_the_wheel_of_stoker_goes_along(folder: Path, stoker: Stoker, tmp_path: Path) -> None:
    wheel = tmp_path / "made" / "stoker-0.1.0-py3-none-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"a wheel")
    words = (SOURCE, "--variant", "cpu", "--stoker")
    for form, file in (("dockerfile", "Dockerfile"), ("gitlab", ".gitlab-ci.yml")):
        done = stoker("export", form, *words, str(wheel), "--out", str(folder / form))
        assert done.returncode == 0, done.stderr
        assert (folder / form / wheel.name).read_bytes() == b"a wheel"
        text = (folder / form / file).read_text()
        assert f"./{wheel.name}[tools]" in text
        assert ("COPY" in text.partition("RUN")[0]) == (form == "dockerfile")
    url = "https://example.org/stoker-0.1.0-py3-none-any.whl"
    assert f"stoker[tools] @ {url}" in stoker("export", "kubernetes", *words, url).stdout
    refused = stoker("export", "kubernetes", *words, str(wheel))
    assert "cannot read a file of this machine" in refused.stderr


@pytest.mark.parametrize("form", ["slurm", "nix", "flox"])
def test_a_file_without_an_image_needs_none_to_be_known(stoker: Stoker, form: str) -> None:
    more = STOKER if form == "slurm" else ()  # the others build with nixpkgs alone
    done = stoker("export", form, SOURCE, "--variant", "cuda-sm90", *more)
    assert (done.returncode, "sm90" in done.stdout) == (0, True), done.stderr


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
        (["dockerfile", SOURCE, "--variant", "cpu"], "stoker is not on PyPI"),
        (["gitlab", SOURCE, "--variant", "cpu", "--stoker", "no.whl"], "not a wheel of stoker"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--memory", "much"], "no amount of memory"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--hours", "0"], "--hours"),
        (["nix", SOURCE, "--variant", "cpu-eigen"], "nixpkgs cannot"),
        (["nix", SOURCE, "--variant", "vulkan"], "nixpkgs does not"),
        (["slurm", SOURCE, "--variant", "cpu", "--image", "a"], "--image is not for slurm"),
        (["dockerfiles", SOURCE, "--variant", "cpu"], "dockerfile"),
        (["dockerfile", SOURCE, "--variant", "cpu", "--shards", "4", *STOKER], "--shards is for"),
        (["compose", SOURCE, "--variant", "cpu"], "--cluster"),
        (["nix", "--cluster"], "--cluster is for kubernetes, slurm, compose"),
        (["kubernetes", SOURCE, "--cluster"], "leave out SOURCE"),
        (["kubernetes", "--cluster", "distcc"], "docs/how-to/distribute.md"),
        (["kubernetes", "--cluster", "--variant", "cpu"], "variants"),
        (["slurm", "--cluster", "--allow", "10.0.0.0/8"], "everyone who has a token"),
        (["compose", "--cluster", *("--allow", "10.0.0.0/24") * 2], "once"),
        (["compose", "--cluster", "--allow", "10.0.0.0/30"], "too small"),
        (["compose", "--cluster", "--allow", "8.8.8.0/24"], "--trust-network"),
        (["slurm", "--cluster", "--memory", "1M"], "a single compile"),
        (["slurm", SOURCE, "--variant", "cpu", "--workers", "2"], "belong to --cluster"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    words: list[str], message: str, folder: Path, stoker: Stoker
) -> None:
    refused = stoker("export", *words)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["stoker.toml"]
