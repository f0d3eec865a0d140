"""`stoker export`: what an exported file says is executed, up to compiles and a wheel.

CI systems and Slurm are replaced by a shell that gets their variables, a Dockerfile by its
instructions in a container. The environment that holds stoker is the one of these tests.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.utils import canonicalize_name

from conftest import PROJECTS, Need, Stoker
from repositories import git, git_environment
from stoker.knowledge.export_targets import ExportFormat

pytestmark = pytest.mark.usefixtures("git_alone")
HERE = f"linux-{platform.machine()}"
Exported = Callable[..., tuple[Path, dict[str, str]]]


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The address of a git repository with a small project, and its tag."""
    return repository(tmp_path / "mini-wheel")


def repository(folder: Path) -> str:
    subprocess.run(["cp", "-r", PROJECTS / folder.name, folder], check=True)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    git(folder, "tag", "v1")
    return f"file://{folder}@v1"


@pytest.fixture
def exported(stoker: Stoker, tmp_path: Path, source: str, need: Need) -> Exported:
    """Export the build of the project for this machine; return the folder and an environment."""
    need("cmake")
    need("ninja")

    def export(form: str, *words: str, of: str = source) -> tuple[Path, dict[str, str]]:
        out, tools = tmp_path / "exported", tmp_path / "bin"
        words = ("--variant", "cpu", "--platform", HERE, "--stoker", "stoker", *words)
        done = stoker("export", form, of, *words, "--out", str(out))
        assert done.returncode == 0, done.stderr
        tools.mkdir(exist_ok=True)
        # The image has this interpreter; its new environment is the one of the tests.
        python = tools / "python3.12"
        python.write_text(
            f'#!/bin/sh\nset -e\ntest "$1 $2" = "-m venv"\nln -sn {sys.prefix} "$3"\n'
        )
        python.chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return out, {**os.environ, "PATH": path, "PIP_NO_INDEX": "1"}

    return export


def run(script: str, folder: Path, environment: dict[str, str], *, ends: bool = True) -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not ends, done.stdout + done.stderr
    return done.stderr


def venv(folder: Path) -> str:
    """Return another name of the environment: the script makes a lock beside it."""
    (folder / "venv").symlink_to(sys.prefix)
    return str(folder / "venv")


def check_wheel(folder: Path) -> None:
    (wheel,) = folder.rglob("mini_wheel-*.whl")
    assert platform.machine() in wheel.name


def test_a_slurm_script_builds(exported: Exported, tmp_path: Path) -> None:
    folder, environment = exported("slurm")
    environment |= {"STOKER_VENV": venv(tmp_path), "SLURM_ARRAY_TASK_ID": "0"}
    environment["SLURM_SUBMIT_DIR"] = str(tmp_path / "submitted")
    run("bash wheels.sbatch", folder, environment)
    check_wheel(tmp_path / "submitted" / "wheels")


# Runs a job at once, each task of an array after the other, as Slurm would start it.
SBATCH = """\
#!/bin/sh
tasks=
while [ "${1#-}" != "$1" ]; do
    case "$1" in --array=1-*) tasks=$(seq "${1#--array=1-}");; esac
    shift
done
echo 7
for task in ${tasks:-none}; do
    export SLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID="${task#none}"
    bash "$@" >&2 || exit
done
"""


@pytest.mark.slow
def test_shards_of_a_slurm_script_compile_and_the_last_job_links(
    exported: Exported, tmp_path: Path, need: Need
) -> None:
    ccache, source = need("ccache"), repository(tmp_path / "mini-cmake")
    folder, environment = exported("slurm", "--shards", "2", of=source)
    (tmp_path / "bin/sbatch").write_text(SBATCH)
    (tmp_path / "bin/sbatch").chmod(0o755)
    programs = tmp_path / "venv/bin"
    programs.mkdir(parents=True)
    (programs / "stoker").symlink_to(Path(sys.executable).with_name("stoker"))
    (programs / "ccache").symlink_to(ccache)
    environment |= {"STOKER_VENV": str(programs.parent), "SLURM_SUBMIT_DIR": str(tmp_path)}
    environment["STOKER_CACHE"] = "ccache"  # other tests build without a cache
    told = run("bash wheels.sh", folder, environment)
    builds = tmp_path / "checkpoint/builds"
    shares = [json.loads(path.read_text())["steps"] for path in builds.glob("*/done-*-of-2.json")]
    assert sum(shares) == 3, told
    assert len(shares) == 2
    assert all(shares)
    homes = sorted(path.name for path in (tmp_path / ".stoker").iterdir())
    assert len(homes) == 3, "each job has its own"
    assert "cache: 3 of 3 compiles found (100%); 3 in the remote" in told, "the last job links"


@pytest.mark.slow
def test_the_steps_of_a_github_workflow_build(exported: Exported, tmp_path: Path) -> None:
    folder, environment = exported("github-actions")
    job = yaml.safe_load((folder / ".github/workflows/wheels.yml").read_text())["jobs"]["build"]
    (row,) = job["strategy"]["matrix"]["include"]
    environment |= {"GITHUB_WORKSPACE": str(folder), "GITHUB_PATH": str(tmp_path / "path")}
    for step in job["steps"]:
        if "run" in step:
            given = dict(step.get("env", {}))
            for name, value in row.items():
                given = {n: v.replace(f"${{{{ matrix.{name} }}}}", value) for n, v in given.items()}
            run(step["run"], folder, {**environment, **given})
    check_wheel(folder / "wheels")


@pytest.mark.slow
def test_the_script_of_a_gitlab_job_builds(
    exported: Exported,
) -> None:
    folder, environment = exported("gitlab")
    job = yaml.safe_load((folder / ".gitlab-ci.yml").read_text())["wheel"]
    (row,) = job["parallel"]["matrix"]
    environment["CI_PROJECT_DIR"] = str(folder)
    for name, value in {**job["variables"], **row}.items():
        environment[name] = value.replace("$CI_PROJECT_DIR", str(folder)).replace("$$", "$")
    run("\n".join(job["script"]), folder, environment)
    check_wheel(folder / "wheels")


def in_image(form: str, folder: Path) -> tuple[dict[str, str], list[list[str]]]:
    """Return the variables and the commands of a file that builds in an image."""
    if form == "dockerfile":
        lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
        (path,) = (line.removeprefix("ENV PATH=") for line in lines if line.startswith("ENV"))
        first = lines[: lines.index("FROM scratch AS wheel")]
        words = [line[line.index("[") :] for line in first if line.startswith("RUN")]
        return {"PATH": path}, [json.loads(line) for line in words]
    if form == "kubernetes":
        job = yaml.safe_load((folder / "wheels.yaml").read_text())
        (box,) = job["spec"]["template"]["spec"]["containers"]
        variables = {one["name"]: one["value"] for one in box["env"]}
        return variables, [[*box["command"], *(word.replace("$$", "$") for word in box["args"])]]
    (step,) = yaml.safe_load((folder / "cloudbuild.yaml").read_text())["steps"]
    variables = dict(line.split("=", 1) for line in step["env"])
    return variables, [[step["entrypoint"], *(word.replace("$$", "$") for word in step["args"])]]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dockerfile", "kubernetes", "cloudbuild"])
def test_what_runs_in_an_image_builds(
    form: str,
    exported: Exported,
    tmp_path: Path,
    system: Path,
    need: Need,
) -> None:
    """The image is the root of this machine, with the Python that the file expects."""
    folder, _ = exported(form)
    variables, commands = in_image(form, folder)
    python = system / "opt/python/cp312-cp312/bin"
    python.mkdir(parents=True)
    shutil.move(tmp_path / "bin/python3.12", python)
    # A link would be another interpreter: one without the packages of its environment.
    (python / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (python / "python3").chmod(0o755)
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    variables["PATH"] = variables.get("PATH", "$PATH").replace("$PATH", path)
    variables |= {"PIP_NO_INDEX": "1", **git_environment()}
    need("runc")
    options = ["--rm", "--runtime", "runc", "--network", "host"]
    options += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    options += [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    shared = tmp_path / "mini-wheel"
    options += ["-v", f"{shared}:{shared}", "--rootfs", str(system)]
    for command in commands:
        done = subprocess.run(
            ["podman", "run", *options, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    check_wheel(system / ("workspace/wheels" if form == "cloudbuild" else "wheels"))


def package_index(folder: Path, requirement: str) -> str:
    """Return the address of an index with only what pip downloads for a requirement."""
    files, pages = folder / "files", folder / "simple"
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    subprocess.run([*words, "--dest", files, requirement], check=True)
    for file in files.iterdir():
        page = pages / canonicalize_name(file.name.partition("-")[0])
        page.mkdir(parents=True, exist_ok=True)
        with (page / "index.html").open("a") as stream:
            stream.write(f'<a href="{file.as_uri()}">{file.name}</a>\n')
    return f"file://{pages}"


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
def test_an_extension_is_compiled_with_the_pytorch_that_is_named(
    exported: Exported, tmp_path: Path
) -> None:
    """Nothing installed PyTorch on the other machine, so the build ended at once."""
    source = repository(tmp_path / "mini-extension")
    index = package_index(tmp_path / "whl/cpu", "torch==2.9.1").replace("/cpu/", "/{cuda}/")
    named = ("--torch", "2.9.1", "--torch-index", index)
    folder, environment = exported("slurm", *named, of=source)
    del environment["PIP_NO_INDEX"]
    environment |= {"STOKER_VENV": venv(tmp_path), "SLURM_ARRAY_TASK_ID": "0"}
    environment["SLURM_SUBMIT_DIR"] = str(tmp_path / "submitted")
    # A Python of one's own may add its folder to the search path, which `verify` then refuses.
    told = run("bash wheels.sbatch", folder, environment, ends=False)
    assert "wheel      done" in told


FORMATS = [str(form) for form in ExportFormat if form not in ("compose", "nix", "flox")]
INDEX = ("--torch-index", "https://example.org/whl/{cuda}")


@pytest.mark.parametrize("form", FORMATS)
def test_an_extension_gets_the_pytorch_of_its_cuda_and_no_settings_of_pytorch(
    stoker: Stoker, form: str
) -> None:
    words = ("--variant", "cu130-sm90", "--platform", "linux-x86_64", "--stoker", "stoker")
    named = ("--torch", "2.9.1", *INDEX)
    done = stoker("export", form, "flash-attn==2.8.3", *words, *named, "--json")
    (file,) = json.loads(done.stdout)["files"]
    told = " ".join(re.sub(r"""['",]| - """, " ", " ".join(file["text"].split())).split())
    assert "--torch 2.9.1 --torch-index https://example.org/whl/cu130 --variant cu130-sm90" in told
    assert not re.search(r"USE_|BUILD_TEST|TORCH_CUDA_ARCH_LIST|PYTORCH_", file["text"])


def test_an_image_with_an_extension_has_the_pytorch_that_it_was_compiled_with(
    stoker: Stoker,
) -> None:
    words = ("--variant", "cu130-sm90", "--platform", "linux-x86_64", "--stoker", "stoker")
    done = stoker("export", "dockerfile", "xformers==0.0.35", *words, "--torch", "2.9.1", *INDEX)
    last = done.stdout.partition("-slim\n")[2]
    pip = ["pip", "install", "--no-cache-dir", "--index-url", "https://example.org/whl/cu130"]
    assert last.startswith(f"RUN {json.dumps([*pip, 'torch==2.9.1'])}\nRUN --mount")
    plain = stoker("export", "dockerfile", "ujson==5.11.0", "--variant", "cpu", *words[2:])
    assert "torch" not in plain.stdout


@pytest.mark.parametrize("torch", ["2.9.1", "2.8.0"])
def test_the_usual_pytorch_of_another_cuda_is_refused(stoker: Stoker, torch: str) -> None:
    words = ("--platform", "linux-x86_64", "--stoker", "stoker", "--torch", torch, "--variant")
    refused = stoker("export", "slurm", "causal-conv1d==1.7.0", *words, "cu130-sm90")
    assert (refused.returncode, "is for CUDA 12.8" in refused.stderr) == (2, True), refused.stderr
    assert "--torch-index https://" in refused.stderr
    assert stoker("export", "slurm", "causal-conv1d==1.7.0", *words, "cu128-sm90").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nix", "https://example.org/a/flash-attention@v2"], "is not PyTorch"),
        (["flox", "numpy==2.0"], "is not PyTorch"),
        (["nix", "xformers==0.0.35", "--torch", "2.9.1"], "is not PyTorch"),
        (
            ["slurm", "numpy==2.0", "--stoker", "stoker", "--torch-index", "file:///w"],
            "belongs to --torch",
        ),
        (["slurm", "flash-attn==2.8.3", "--stoker", "stoker"], "--torch 2.9.1"),
        (["dockerfile", "numpy==2.0", "--stoker", "{other}"], "does not run on linux-"),
        (
            ["slurm", "numpy==2.0", "--stoker", "https://example.org/{other}#sha256=0"],
            "does not run on linux-",
        ),
    ],
)
def test_what_could_not_build_is_refused(
    stoker: Stoker, tmp_path: Path, words: list[str], message: str
) -> None:
    cpu = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    other = f"stoker-0.1.0-py3-none-manylinux_2_17_{cpu}.whl"
    (tmp_path / other).write_bytes(b"")
    words = [word.format(other=other) for word in words]
    done = stoker("export", *words, "--variant", "cpu", "--platform", HERE, cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_dockerfile_of_a_project_without_gpu_code_uses_a_plain_image(stoker: Stoker) -> None:
    words = ("--variant", "cpu", "--platform", HERE, "--stoker", "stoker", "--json")
    done = stoker("export", "dockerfile", "ujson==5.11.0", *words)
    (file,) = json.loads(done.stdout)["files"]
    assert f"FROM quay.io/pypa/manylinux_2_28_{platform.machine()} AS build" in file["text"]
    assert "USE_CUDA" not in file["text"], "that is an option of PyTorch"
