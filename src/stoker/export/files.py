"""Renders an Export as the files of another system.

Words of the user appear in a file only as values that `filling.py` or `quoting.py` wrote.
"""

import re
import shlex
from collections.abc import Callable, Iterable

from stoker.export.filling import fill_template, fill_yaml
from stoker.export.quoting import (
    docker_words,
    github_command,
    nix_text,
    without_variables,
)
from stoker.knowledge.export_targets import (
    Export,
    ExportedFile,
    ExportFormat,
    ExportJob,
    cloud_build_machine,
    github_runner,
    nix_blas,
)
from stoker.model.errors import UsageError
from stoker.model.setting import OriginKind
from stoker.model.variant import Backend

PYTORCH = "pytorch"  # the name of its recipe
OWN_PYTHON = "3.12"  # runs stoker itself in builder images, whatever Python the wheel is for


def render(export: Export) -> tuple[ExportedFile, ...]:
    """Return the files, with paths relative to the folder that they belong in."""
    return tuple(_RENDERERS[export.format](export))


def size_values(export: Export) -> dict[str, object]:
    """Return the placeholders of all builds: what is installed, and the size of the machine."""
    size, wheel = export.size, export.requirement.removeprefix("./").partition("[")[0]
    beside = export.requirement.startswith("./")  # the wheel of stoker lies beside the Dockerfile
    return {
        "bring": f"COPY {docker_words([wheel, './'])}\n" if beside else "",
        "own_python": OWN_PYTHON,
        "cpus": size.cpus,
        "memory_mb": size.memory_bytes >> 20,
        "disk_gb": -(-size.disk_bytes // 1024**3),
        "seconds": size.seconds,
        "minutes": -(-size.seconds // 60),
    }


def _of_job(job: ExportJob) -> dict[str, object]:
    return {
        "name": job.name,
        "id": identifier(job.name),
        "label": job.plan.label,
        "image": job.image,
        "python": job.python,
        "path": ":".join(job.folders),
    }


def identifier(name: str) -> str:
    """Return a name as a DNS label: lower-case letters, digits and dashes, at most 63."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "variant"


def _dockerfiles(export: Export) -> Iterable[ExportedFile]:
    for job in export.jobs:
        # `stoker build` sets these itself; they stand here so that the image says what it is for.
        lines = [
            f"# {s.name}={s.value}"
            for s in job.plan.environment
            if s.origin.kind is not OriginKind.MACHINE and s.value.isprintable()
        ]
        if export.project != PYTORCH:  # the plan is one of PyTorch: this tree is not here
            lines = ["# Settings: `stoker plan` shows them for the source tree."]
        pip = ("/opt/stoker/bin/pip", "install", "--no-cache-dir", export.requirement)
        build = ("/opt/stoker/bin/stoker", *job.command[1:], "--out", "/wheels")
        # The wheel of an extension alone would bring the PyTorch of the usual index.
        torch = ("pip", "install", "--no-cache-dir", *job.torch)
        values = {
            **_of_job(job),
            "tag": identifier(job.name),
            "environment": "\n".join(lines),
            "install": docker_words(pip),
            "build": docker_words((*build, "--progress", "log")),
            "torch": f"RUN {docker_words(torch)}\n" if job.torch else "",
        }
        path = f"Dockerfile.{job.name}" if len(export.jobs) > 1 else "Dockerfile"
        text = fill_template("dockerfile", size_values(export) | values)
        yield ExportedFile(path=path, text=text)


def _cloud_builds(export: Export) -> Iterable[ExportedFile]:
    machine = cloud_build_machine(export.size.cpus, export.size.memory_bytes)
    for job in export.jobs:
        file = f"cloudbuild.{job.name}.yaml" if len(export.jobs) > 1 else "cloudbuild.yaml"
        values = {
            **_of_job(job),
            "file": file,
            "machine_type": machine.name,
            "words": words_of_script(export, job),
        }
        text = fill_yaml("cloudbuild", size_values(export) | values)
        yield ExportedFile(path=file, text=text)


def words_of_script(export: Export, job: ExportJob) -> list[str]:
    """Return the arguments of the script: its name, what pip installs, and those of stoker."""
    return list(map(without_variables, ("stoker", export.requirement, *job.command[1:])))


def _github(export: Export) -> Iterable[ExportedFile]:
    rows = []
    for job in export.jobs:
        row = {"variant": job.name, "runner": github_runner(job), "image": job.image}
        row |= {"path": ":".join(job.folders), "command": github_command(job.command)}
        rows.append(row)
    values = {"matrix": rows, "requirement": github_command([export.requirement])}
    text = fill_yaml("github-actions", size_values(export) | values)
    yield ExportedFile(path=".github/workflows/wheels.yml", text=text)


def _gitlab(export: Export) -> Iterable[ExportedFile]:
    rows = []
    for job in export.jobs:
        row = {"VARIANT": job.name, "IMAGE": job.image, "FOLDERS": ":".join(job.folders)}
        row["COMMAND"] = without_variables(shlex.join(job.command))
        rows.append(row)
    values = {"matrix": rows, "requirement": without_variables(export.requirement)}
    text = fill_yaml("gitlab", size_values(export) | values)
    yield ExportedFile(path=".gitlab-ci.yml", text=text)


def slurm_values(export: Export, file: str) -> dict[str, object]:
    """Return what the script ``file`` of an array job says, one element for each job."""
    return {
        "file": file,
        "requirement": shlex.quote(export.requirement),
        "last": len(export.jobs) - 1,
        "variants": "\n".join(f"    {shlex.quote(job.name)}" for job in export.jobs),
        "commands": "\n".join(f"    {shlex.quote(shlex.join(job.command))}" for job in export.jobs),
    }


def _slurm(export: Export) -> Iterable[ExportedFile]:
    file = "wheels.sbatch"
    values = size_values(export) | slurm_values(export, file)
    yield ExportedFile(path=file, text=fill_template("slurm", values))


def _kubernetes(export: Export) -> Iterable[ExportedFile]:
    texts = []
    for job in export.jobs:
        values = {**_of_job(job), "words": words_of_script(export, job)}
        texts.append(fill_yaml("kubernetes", size_values(export) | values))
    yield ExportedFile(path="wheels.yaml", text="---\n".join(texts))


def _nix(export: Export, folder: str = "") -> Iterable[ExportedFile]:
    for job in export.jobs:
        name = f"pytorch-{job.name}"
        text = fill_template("nix", {**_nix_values(job, name), "file": f"{name}.nix"})
        yield ExportedFile(path=f"{folder}{name}.nix", text=text)


def _nix_values(job: ExportJob, name: str) -> dict[str, object]:
    variant = job.plan.variant
    packages = f"python{job.python.replace('.', '')}Packages"
    arguments, overrides = [packages], []
    if variant.backend is Backend.CUDA:
        overrides.append("cudaSupport = true;")
        targets = [target.torch_word for target in variant.gpus]
        overrides.append(f"gpuTargets = [ {' '.join(map(nix_text, targets))} ];")
        if variant.toolkit:
            arguments.append(f"cudaPackages_{variant.toolkit.replace('.', '_')}")
            overrides.append(f"cudaPackages = {arguments[-1]};")
    elif variant.backend is Backend.ROCM:
        overrides.append("rocmSupport = true;")
        targets = [target.arch for target in variant.gpus]
        overrides.append(f"gpuTargets = [ {' '.join(map(nix_text, targets))} ];")
    elif variant.backend is not Backend.CPU:
        raise UsageError(f"nixpkgs does not build PyTorch for {variant.backend}")
    if variant.blas:
        overrides += _nix_blas(variant.blas, arguments)
    flags = job.plan.value("CXXFLAGS")
    attributes = []
    if flags:
        attributes.append("env = (old.env or { }) // {")
        attributes.append("  NIX_CFLAGS_COMPILE =")
        attributes.append(
            f'    toString (old.env.NIX_CFLAGS_COMPILE or "") + {nix_text(" " + flags)};'
        )
        attributes.append("};")
    return {
        "name": job.name,
        "arguments": ", ".join(arguments),
        "python_packages": packages,
        "overrides": "\n".join(f"  {line}" for line in overrides),
        "pname": nix_text(name),
        "attributes": "\n".join(f"  {line}" for line in attributes),
    }


def _nix_blas(blas: str, arguments: list[str]) -> list[str]:
    attribute = nix_blas().get(blas)
    if attribute is None:
        raise UsageError(
            f"nixpkgs cannot build PyTorch with {blas}",
            hints=[f"it can with {', '.join(nix_blas())}"],
        )
    arguments += ["blas", attribute]
    return [f"blas = blas.override {{ blasProvider = {attribute}; }};"]


_RENDERERS: dict[ExportFormat, Callable[[Export], Iterable[ExportedFile]]] = {
    ExportFormat.DOCKERFILE: _dockerfiles,
    ExportFormat.CLOUDBUILD: _cloud_builds,
    ExportFormat.GITHUB_ACTIONS: _github,
    ExportFormat.GITLAB: _gitlab,
    ExportFormat.SLURM: _slurm,
    ExportFormat.KUBERNETES: _kubernetes,
    ExportFormat.NIX: _nix,
    ExportFormat.FLOX: lambda export: _nix(export, ".flox/pkgs/"),
}
