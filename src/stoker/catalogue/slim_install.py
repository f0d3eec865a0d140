"""`stoker install --slim`: packages of an ordinary index, slimmed before they are installed."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from stoker.catalogue.choosing import read_word
from stoker.catalogue.host import HOST_PARTS, check_installable, read_host
from stoker.catalogue.installing import ASIDE, run_installer
from stoker.machine.installers import (
    FILE,
    PROGRESS,
    Installer,
    InstallReport,
    install_failure,
    tells_progress,
)
from stoker.model.artifact import TargetKind
from stoker.model.errors import MissingError, UsageError
from stoker.model.value import Value, counted, size
from stoker.model.variant import GpuTarget
from stoker.outside import folders, process
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_of_process, read_json
from stoker.outside.long_work import Advance, Say, stage
from stoker.outside.web import Web, size_of
from stoker.wheel.inspect.target import Target
from stoker.wheel.slim.files import is_nvidia_distribution
from stoker.wheel.slim.selection import SlimRequest, gpu_targets
from stoker.wheel.slim.slimming import OutputOptions, slim

_CONNECTIONS = 8
_ASKING = "asking the package index"


class SlimInstalled(Value, frozen=True, kw_only=True):
    """One wheel of `stoker install --slim`: bytes of its file before and after."""

    name: str
    version: str
    before_bytes: int
    after_bytes: int


class Download(Value, frozen=True, kw_only=True):
    """A file that `stoker install --slim` downloads. ``size_bytes`` is None if the server does not
    tell it; ``slims``: it may hold device code.
    """

    name: str
    version: str
    pin: str
    size_bytes: int | None
    slims: bool


def resolve(words: Sequence[str], installer: Installer) -> tuple[Download, ...]:
    """Return what pip would download for these requirements, largest first."""
    named = [canonicalize_name(read_word(word).name) for word in words]
    with folder_of_process(folders.cache() / "install", ASIDE) as work:
        report = work / "report.json"
        with stage(_ASKING):
            outcome = process.stream(installer.resolve(report, words), lambda _: None)
        found = read_json(report, InstallReport)
        if not outcome.ok or found is None:
            raise install_failure(outcome.stdout, "the packages")
    with stage("asking for sizes"), ThreadPoolExecutor(_CONNECTIONS) as pool:
        sizes = list(pool.map(_size_of, (one.url for one in found.install)))
    downloads = [
        Download(
            name=canonicalize_name(one.metadata.name),
            version=one.metadata.version,
            pin=one.pin,
            size_bytes=size,
            slims=holds_code(canonicalize_name(one.metadata.name), named),
        )
        for one, size in zip(found.install, sizes, strict=True)
    ]
    return tuple(sorted(downloads, key=lambda one: -(one.size_bytes or 0)))


def _size_of(url: str) -> int | None:
    try:
        return size_of(url, Web(certificates=os.environ.get("PIP_CERT")))
    except MissingError:
        return None


def downloads_text(downloads: Sequence[Download]) -> str:
    amount = size(sum(one.size_bytes or 0 for one in downloads))
    total = f"{counted(len(downloads), 'file')}, {amount} to download"
    unknown = sum(one.size_bytes is None for one in downloads)
    return f"{total}; the size of {unknown} is unknown" if unknown else total


class PipDownload:
    """The stages of `pip download`, from its output: until it names the first file, it waits for
    the index. A file is complete when the next one is named: older versions of pip do not tell how
    far one is, and none does for a file of its cache.
    """

    def __init__(self, downloads: Sequence[Download], stages: ExitStack):
        self._sizes = {one.name: one.size_bytes or 0 for one in downloads}
        self._stages = stages
        self._advance: Advance | None = None
        self._size = self._done = 0  # of the current file
        stages.enter_context(stage(_ASKING))

    def hear(self, line: str) -> None:
        file = FILE.fullmatch(line)
        if file and file[1] != "Processing" and not file[2].endswith(".metadata"):
            self._begin(file[2].rpartition("/")[2])
        elif found := PROGRESS.fullmatch(line):
            self._reach(int(found[1]))
        elif line.startswith("Saved "):
            self._reach(self._size)

    def _begin(self, file: str) -> None:
        if self._advance is None:
            self._stages.close()
            total = sum(self._sizes.values())
            self._advance = self._stages.enter_context(stage("downloading", total))
        self._reach(self._size)
        self._size, self._done = self._sizes.get(canonicalize_name(file.partition("-")[0]), 0), 0

    def _reach(self, done: int) -> None:
        if self._advance and done > self._done:
            self._advance(done - self._done)
            self._done = done


def slim_targets(wished: str | None, python: str) -> tuple[GpuTarget, ...]:
    """Return the GPUs of the machine that words describe, by default of this one."""
    if wished:
        check_installable(read_host(python, wished), python)
    return gpu_targets(wished or "native", HOST_PARTS)


def slim_install(
    words: Sequence[str], targets: tuple[GpuTarget, ...], installer: Installer, *, say: Say
) -> tuple[SlimInstalled, ...]:
    """Download what is asked for and all it requires, slim it, and install the result."""
    request = SlimRequest(gpus=targets, nvidia=True)
    downloads = resolve(words, installer)
    say(downloads_text(downloads))
    named = [one.name for one in downloads if one.slims]
    with folder_of_process(folders.cache() / "install", ASIDE) as work:
        wheels, pins = work / "wheels", [one.pin for one in downloads]
        command = installer.download(wheels, pins, tells=tells_progress(installer.pip))
        with ExitStack() as stages:
            outcome = process.stream(command, PipDownload(downloads, stages).hear)
        if not outcome.ok:
            raise install_failure(outcome.stdout, "the packages")
        done = [
            slim_wheel(path, request, say)
            for path in sorted(wheels.glob("*.whl"))
            if parse_wheel_filename(path.name)[0] in named
        ]
        pins = [f"{one.name}=={one.version}" for one in done]
        alone = all(path.suffix == ".whl" for path in wheels.iterdir())
        # The pins name the slimmed versions; the words may ask for extras.
        command = installer.install_from(wheels, [*pins, *words], alone=alone)
        with stage("installing"):
            run_installer(command, say)
    return tuple(done)


def holds_code(project: str, named: Sequence[str]) -> bool:
    """Return whether a project may hold device code: torch, what was named, and NVIDIA's."""
    return project == "torch" or project in named or is_nvidia_distribution(project)


def slim_wheel(path: Path, request: SlimRequest, say: Say) -> SlimInstalled:
    """Replace a wheel by its slimmed one, where that is smaller."""
    before = path.stat().st_size
    target = Target(kind=TargetKind.WHEEL, path=path)
    try:
        with stage(f"slimming {path.name}"):
            report = slim(target, request, OutputOptions(out=path.parent))
        output = Path(report.output) if report.output else path
    except UsageError as error:
        # A library may serve fewer GPUs than PyTorch does; PyTorch itself must serve them.
        if not is_nvidia_distribution(path.name.partition("-")[0]):
            raise
        say(f"{path.name} stays whole: {error.message}")
        output = path
    if output != path and output.stat().st_size >= before:
        remove_file(output)
        output = path
    elif output != path:
        remove_file(path)
    name, version, _, _ = parse_wheel_filename(output.name)
    after = output.stat().st_size
    say(f"{name} {version}: {size(before)} -> {size(after)}")
    return SlimInstalled(name=name, version=str(version), before_bytes=before, after_bytes=after)
