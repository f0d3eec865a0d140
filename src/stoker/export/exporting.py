"""Builds of variants on another machine: what each job runs, in which image, with which stoker."""

import re
import shutil
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from stoker.builds.acquire.naming import Named, parse_source
from stoker.builds.named_torch import INDEX_EXAMPLE, NamedTorch, index_for
from stoker.export.files import OWN_PYTHON, PYTORCH
from stoker.export.workers import checked_image
from stoker.knowledge.export_targets import (
    BuilderSize,
    Export,
    ExportedFile,
    ExportFormat,
    ExportJob,
)
from stoker.knowledge.projects import builder_image, projects
from stoker.knowledge.torch_releases import torch_release
from stoker.model.errors import UsageError
from stoker.model.plan import Plan
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import SourceKind
from stoker.model.value import Value
from stoker.model.variant import Backend
from stoker.outside.files import file_made_whole, write_whole
from stoker.outside.folders import current_folder
from stoker.plan.survey import Surveyor, plan_of
from stoker.settings.declared import CommandLine
from stoker.settings.toml import find_file, variant_names
from stoker.settings.user_options import UserOptions, read_user_options

_BY_NIXPKGS = (ExportFormat.NIX, ExportFormat.FLOX)  # they need no stoker
_WITHOUT_IMAGE = (ExportFormat.SLURM, *_BY_NIXPKGS)
_BY_URL = "--stoker https://HOST/stoker-VERSION.whl names a wheel on a server"
_EXAMPLE = "https://github.com/pytorch/pytorch@v2.9.1"


class StokerOrigin(Value, frozen=True, kw_only=True):
    """``wheel`` has to be in the folder of the exported files."""

    requirement: str
    wheel: Path | None = None


class ExportWanted(Value, frozen=True, kw_only=True):
    """What the command line asks for. ``image`` replaces the usual one of each variant."""

    format: ExportFormat
    source: str | None
    matrix: bool = False  # all variants of stoker.toml whose name contains ``only``
    only: str = ""
    size: BuilderSize
    stoker: str | None  # a wheel, a URL or a requirement
    torch: str | None = None  # that an extension is compiled with
    torch_index: str | None = None  # that has it
    image: str | None = None
    shards: int = 0


def export(wanted: ExportWanted, request: CommandLine) -> Export:
    """Plan each variant and return the jobs that build them."""
    if wanted.format is ExportFormat.COMPOSE:
        raise UsageError(
            "compose files are for the workers of a cluster",
            hints=["--cluster", "`stoker export dockerfile` builds"],
        )
    chosen = read_user_options(request)
    given = wanted.source or chosen.text("source")
    if given is None:
        raise UsageError("no SOURCE", hints=[f"for example {_EXAMPLE}"])
    named = parse_source(given)
    source, project = _portable(named), _project(named)
    if wanted.format in _BY_NIXPKGS and not (project and project.name == PYTORCH):
        raise UsageError(
            f"{source} is not PyTorch, and {wanted.format} files are for PyTorch only: they use "
            "the recipe of nixpkgs",
            hints=["`stoker export dockerfile` works for any project"],
        )
    if project and project.torch and not wanted.torch:
        raise UsageError(
            f"{project.name} is compiled with PyTorch, which the other machine has to install",
            hints=["name its version: --torch 2.9.1"],
        )
    requests = [
        replace(request, options={**request.options, "variant": name})
        for name in _variants(wanted, request, chosen)
    ]
    surveyor, jobs = Surveyor(), []
    for one in requests:
        planned = plan_of(surveyor.survey(one))
        words = [source, *_defines(one)]
        job = _job(planned, words, _image(wanted, planned, project), _torch(wanted, planned))
        _check_machine(wanted, job)
        jobs.append(job)
    return Export(
        format=wanted.format,
        source=source,
        requirement=origin_of_stoker(wanted.stoker, wanted.format).requirement,
        size=wanted.size,
        shards=wanted.shards,
        jobs=tuple(jobs),
        project=project.name if project else None,
    )


def _variants(wanted: ExportWanted, request: CommandLine, chosen: UserOptions) -> tuple[str, ...]:
    if not wanted.matrix:
        if wanted.only:
            raise UsageError("--only belongs to --matrix")
        if chosen.text("variant") in (None, "native"):
            raise UsageError(
                "an export needs a variant, because another machine builds it",
                hints=["--variant cu130-sm90, or --matrix for all variants of stoker.toml"],
            )
        return (str(chosen.text("variant")),)
    if "variant" in request.options:
        raise UsageError("--variant and --matrix exclude each other")
    return variant_names(find_file(current_folder()), wanted.only)


def _portable(named: Named) -> str:
    """Return a source that another machine can fetch, pinned to a tag, commit or version."""
    if named.kind not in (SourceKind.GIT, SourceKind.INDEX) or Path(named.place).exists():
        raise UsageError(
            f"another machine cannot fetch {named.shown}",
            hints=["name a git URL with a tag, such as https://HOST/GROUP/NAME@v1.0, or NAME==1.0"],
        )
    if not named.reference:
        raise UsageError(
            f"{named.shown} is not pinned", hints=[f"add a tag or commit: {named.shown}@v1.0"]
        )
    if re.search(r"\$\{\{|[\x00-\x1f]", named.shown):
        raise UsageError(f"{named.shown!r} contains characters that a workflow would expand")
    return named.shown


def _project(named: Named) -> ProjectRecipe | None:
    """Return the recipe that the name of a source tells; the tree itself is not here."""
    name = named.place.rstrip("/").rpartition("/")[2].removesuffix(".git")
    name = canonicalize_name(name)
    found = (one for one in projects().values() if name in (one.name, *one.packages))
    return next(found, None)


def _check_machine(wanted: ExportWanted, job: ExportJob) -> None:
    """Refuse a wheel of stoker that does not run where the job does."""
    file = (wanted.stoker or "").partition("#")[0].rpartition("/")[2]
    with suppress(InvalidWheelFilename):
        platforms = {tag.platform for tag in parse_wheel_filename(file)[3]}
        cpu = job.plan.platform.cpu
        if not any(platform == "any" or platform.endswith(cpu) for platform in platforms):
            raise UsageError(
                f"{file} does not run on {job.plan.platform}, where {job.name} is built",
                hints=[f"name the wheel of stoker for {cpu}, or the platform: --platform OS-CPU"],
            )


def _image(wanted: ExportWanted, planned: Plan, project: ProjectRecipe | None) -> str:
    """Return the builder image of a job; nothing for a format that uses none."""
    if wanted.format in _WITHOUT_IMAGE:
        if wanted.image:
            raise UsageError(f"--image is not for {wanted.format}: its file uses no image")
        return ""
    variant, platform = planned.variant, planned.platform
    # A project without GPU code needs no toolkit; PyTorch's images have those of all others.
    plain = variant.backend is Backend.CPU and not (project and project.name == PYTORCH)
    kind = "" if plain else PYTORCH
    usual = builder_image(kind, platform.cpu, variant.backend, variant.toolkit)
    if found := wanted.image or usual:
        return checked_image(found)
    raise UsageError(
        f"no builder image is known for {planned.name} on {platform}",
        hints=["name one with --image", "a CUDA variant needs a version, such as cu130-sm90"],
    )


def _torch(wanted: ExportWanted, planned: Plan) -> NamedTorch | None:
    """Return the PyTorch of an extension; refuse one of another CUDA than the variant's."""
    torch, variant = wanted.torch, planned.variant
    if torch is None:
        if wanted.torch_index:
            raise UsageError("--torch-index belongs to --torch")
        return None
    if wanted.torch_index:
        return NamedTorch(name=torch, index=index_for(wanted.torch_index, variant))
    release = torch_release(torch) if planned.platform.cpu == "x86_64" else None
    usual = release.cuda_usual if release else None
    if usual and variant.backend is Backend.CUDA and variant.toolkit not in (None, usual):
        raise UsageError(
            f"PyTorch {torch} of the usual package index is for CUDA {usual}, and the variant for "
            f"{variant.toolkit}",
            hints=[INDEX_EXAMPLE],
        )
    return NamedTorch(name=torch)


def _job(planned: Plan, words: list[str], image: str, torch: NamedTorch | None) -> ExportJob:
    variant = planned.variant
    python = variant.python or OWN_PYTHON
    folders = []
    for version in dict.fromkeys((python, OWN_PYTHON)):  # of the wheel, and of stoker
        digits = version.replace(".", "")
        folders.append(f"/opt/python/cp{digits.rstrip('t')}-cp{digits}/bin")
    name = replace(variant, platform=None).name
    return ExportJob(
        plan=planned,
        name=name,
        command=("stoker", "build", *words, *(torch.options if torch else ()), "--variant", name),
        torch=torch.pip_words if torch else (),
        image=image,
        folders=tuple(folders),
        python=python,
    )


def _defines(request: CommandLine) -> list[str]:
    """Return the CMake options that the user set; the variant's name carries everything else."""
    defines = read_user_options(request).defines
    return [word for name, found in defines.items() for word in ("-D", f"{name}={found.value}")]


def origin_of_stoker(given: str | None, form: ExportFormat) -> StokerOrigin:
    """Return where the other machine gets stoker from: a URL, a wheel that goes along with the
    files, or a requirement that the user's own package index has.
    """
    if form in _BY_NIXPKGS:
        return StokerOrigin(requirement="")
    if given is None:
        raise UsageError(
            "an export installs stoker on the other machine, and stoker is not on PyPI",
            hints=["`make dist` builds its wheel: --stoker dist/stoker-VERSION.whl", _BY_URL],
        )
    if "://" in given:
        return StokerOrigin(requirement=f"stoker[tools] @ {given}")
    if not given.endswith(".whl"):
        return StokerOrigin(requirement=given)
    wheel = Path(given)
    if not wheel.is_file() or not wheel.name.startswith("stoker-"):
        raise UsageError(f"--stoker {given} is not a wheel of stoker", hints=[_BY_URL])
    if form is ExportFormat.KUBERNETES:
        raise UsageError("a Kubernetes job cannot read a file of this machine", hints=[_BY_URL])
    if form is ExportFormat.SLURM:  # its nodes share the file system
        return StokerOrigin(requirement=f"{wheel.resolve()}[tools]")
    return StokerOrigin(requirement=f"./{wheel.name}[tools]", wheel=wheel)


def write(
    files: tuple[ExportedFile, ...], folder: Path, *, wheel: Path | None = None, force: bool
) -> None:
    """Write all files below a folder. Without ``force``, refuse to replace a file that differs.

    ``wheel`` is copied to the folder, where the files expect it.
    """
    changed = [
        file
        for file in files
        if not (path := folder / file.path).is_file() or path.read_text() != file.text
    ]
    existing = [file.path for file in changed if (folder / file.path).exists()]
    if existing and not force:
        raise UsageError(
            f"{', '.join(existing)} exists already in {folder}",
            hints=["--force replaces it", "--out names another folder"],
        )
    for file in changed:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, file.text)
    if wheel and wheel.resolve() != (folder / wheel.name).resolve():
        with wheel.open("rb") as source, file_made_whole(folder / wheel.name) as stream:
            shutil.copyfileobj(source, stream)
