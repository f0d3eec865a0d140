"""`stoker install`: chooses wheels for this machine, and installs them with pip or uv."""

import os
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name, parse_wheel_filename

from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.choosing import choose, read_word, read_words
from stoker.catalogue.entry import without_label
from stoker.catalogue.index import Pruned
from stoker.catalogue.store import Say
from stoker.catalogue.values import Choice, Fit, Host, HostGpu, PublishedWheel, Selection
from stoker.knowledge.hardware import cpu_family, cpu_offers, gpus
from stoker.knowledge.wheels import policies
from stoker.machine.installers import (
    FILE,
    PROGRESS,
    Installer,
    InstallerKind,
    InstallReport,
    find_installer,
    install_failure,
    tells_progress,
)
from stoker.machine.python import Probe, ask_interpreter
from stoker.machine.system import read_machine
from stoker.model.artifact import TargetKind
from stoker.model.errors import MissingError, UsageError
from stoker.model.machine import Machine
from stoker.model.plan import GpuTarget, Platform
from stoker.model.value import Value, counted, size
from stoker.outside import folders, process
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_of_process, read_json
from stoker.outside.package_index import PackageIndex, download
from stoker.outside.progress import Advance, stage
from stoker.outside.terminal import Group, Listing, Page, Text, whole
from stoker.outside.web import Web, size_of
from stoker.plan.grammar import parse, parts_beside, squeeze
from stoker.wheel.slim.cuts import SlimRequest, is_nvidia_distribution
from stoker.wheel.slim.slimming import OutputOptions, slim
from stoker.wheel.slim.targets import gpu_targets
from stoker.wheel.target import Target

# -- installing ------------------------------------------------------------------------------------
# From a catalogue, or from the ordinary package index, to packages that suit this machine.


_TIMEOUT_S = 60.0
_CONNECTIONS = 8
_ASIDE = ".stoker-install-"
_HOST_PARTS = ("backend", "gpus", "cpu", "python", "platform")  # of a variant that is a machine
_ASKING = "asking the package index"


class SlimInstalled(Value, frozen=True, kw_only=True):
    """One wheel of `stoker install --slim`: bytes of its file before and after."""

    name: str
    version: str
    before_bytes: int
    after_bytes: int


def select(
    place: str, words: Sequence[str], *, python: str, wished: str | None
) -> tuple[LocatedCatalogue, Selection]:
    """Read a catalogue and choose from it; ``wished`` names a machine other than this one."""
    located = locate(place, wanted=[read_word(word) for word in words])
    wanted = read_words(words, located.catalogue)
    return located, choose(read_host(python, wished), located.catalogue, wanted)


# -- the machine -----------------------------------------------------------------------------------


def read_host(python: str, wished: str | None = None) -> Host:
    machine = read_machine(())
    asked = ask_interpreter(python, Probe(environment=os.environ, timeout_s=_TIMEOUT_S))
    host = Host(
        os=machine.os.system,
        cpu_family=machine.cpu.family,
        cpu=machine.cpu.microarchitecture,
        cpu_features=machine.cpu.features,
        python=asked.version,
        free_threaded=asked.free_threaded,
        gpus=tuple(HostGpu(name=gpu.name, capability=gpu.capability) for gpu in machine.gpus),
        driver=next((gpu.driver for gpu in machine.gpus if gpu.is_nvidias), None),
        libc=machine.os.libc,
    )
    return host if wished is None else wished_host(host, wished, machine)


def wished_host(host: Host, text: str, machine: Machine | None = None) -> Host:
    """Return the host that words describe: ``l40s``, ``h100 avx512``, ``cpu``, ``sm80
    linux-x86_64``. The rest is as on this machine.
    """
    variant = parse(text, machine)
    if other := parts_beside(variant, _HOST_PARTS):
        raise UsageError(
            f"'{text}' gives a {' and a '.join(other)}, which describes a build and not a machine",
            hints=["name the GPU, the CPU, the platform and the Python: 'h100 linux-x86_64 py312'"],
        )
    named = tuple(_named_gpu(text, target) for target in variant.gpus)
    host = msgspec.structs.replace(host, gpus=named, driver=None)
    family = cpu_family(variant.cpu) if variant.cpu else host.cpu_family
    platform = variant.platform or Platform(os=host.os, cpu=family)
    if (platform.os, platform.cpu) != (host.os, host.cpu_family):
        newest = policies()[-1].name.removeprefix("manylinux_").replace("_", ".")
        host = msgspec.structs.replace(
            host,
            os=platform.os,
            cpu_family=platform.cpu,
            cpu=platform.cpu,
            cpu_features=(),
            libc=f"glibc {newest}",
        )
    if variant.cpu:
        features = tuple(sorted(cpu_offers(variant.cpu)))
        host = msgspec.structs.replace(host, cpu=variant.cpu, cpu_features=features)
    if variant.python:
        free = variant.python.endswith("t")
        python = variant.python.rstrip("t")
        host = msgspec.structs.replace(host, python=python, free_threaded=free)
    return host


def check_installable(host: Host, python: str) -> None:
    """Raise UsageError if packages for ``host`` cannot be installed for that interpreter."""
    here = read_host(python)
    wanted, own = (Platform(os=one.os, cpu=one.cpu_family) for one in (host, here))
    if wanted != own:
        raise UsageError(
            f"packages for {wanted} cannot be installed on this machine, which is {own}",
            hints=[
                "run the command on the other machine, or in a container for it",
                "`pip download --platform` and `stoker slim WHEEL --for GPU` need no such machine",
            ],
        )
    asked, found = (
        ".".join(one.python.split(".")[:2]) + ("t" if one.free_threaded else "")
        for one in (host, here)
    )
    if asked != found:
        raise UsageError(
            f"packages for Python {asked} cannot be installed for {python} (Python {found})",
            hints=[f"name the interpreter: --python {asked}"],
        )


def _named_gpu(text: str, target: GpuTarget) -> HostGpu:
    """Return the GPU with the name that the user gave it, if the words contain one."""
    capability = ".".join(map(str, target.capability)) if "." in target.arch else target.arch
    names = gpus()[capability].names if capability in gpus() else ()
    said = [name for name in names if squeeze(name) in squeeze(text)]
    name = max(said, key=len, default=f"sm_{capability.replace('.', '')}")
    return HostGpu(name=name, capability=capability)


# -- from a catalogue ------------------------------------------------------------------------------


def installer_for(python: str, wished: str | None) -> Installer:
    return find_installer(python, os.environ, InstallerKind(wished) if wished else None)


def install_command(
    located: LocatedCatalogue, selection: Selection, installer: Installer
) -> list[str]:
    """Return the command that installs each wheel by its address and hash, so that no other package
    replaces it.
    """
    for wheel in selection.wheels:
        if _labelled(wheel):
            raise UsageError(
                f"no command can be printed: pip refuses the label '{wheel.variant}' in "
                f"{wheel.file}",
                hints=["without --print, stoker downloads it and installs it without the label"],
            )
    return installer.install([located.reference(wheel) for wheel in selection.wheels])


def _labelled(wheel: PublishedWheel) -> bool:
    return without_label(wheel.file)[1] is not None


def install(
    located: LocatedCatalogue, selection: Selection, installer: Installer, *, say: Say
) -> None:
    """Install each wheel by its address and hash; one with the label of a wheel variant, which pip
    refuses, is downloaded and loses it.
    """
    index = PackageIndex(roots=(), links=(), web=Web())
    with folder_of_process(folders.cache() / "install", _ASIDE) as work, stage("installing"):
        references = []
        for wheel in selection.wheels:
            if not _labelled(wheel):
                references.append(located.reference(wheel))
                continue
            path = download(located.files[wheel.file], work, index, say=say)
            references.append(str(path.rename(work / without_label(wheel.file)[0])))
        run_installer(installer.install(references), say)


def run_installer(command: Sequence[str], say: Say) -> None:
    outcome = process.stream(list(command), say)
    if not outcome.ok:
        raise install_failure(outcome.stdout, "the packages")


# -- without a catalogue ---------------------------------------------------------------------------


class Download(Value, frozen=True, kw_only=True):
    """A file that `stoker install --slim` downloads. ``size`` is None if the server does not tell
    it; ``slims``: it may hold device code.
    """

    name: str
    version: str
    pin: str
    size: int | None
    slims: bool


def resolve(words: Sequence[str], installer: Installer) -> tuple[Download, ...]:
    """Return what pip would download for these requirements, largest first."""
    named = [canonicalize_name(read_word(word).name) for word in words]
    with folder_of_process(folders.cache() / "install", _ASIDE) as work:
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
            size=size,
            slims=holds_code(canonicalize_name(one.metadata.name), named),
        )
        for one, size in zip(found.install, sizes, strict=True)
    ]
    return tuple(sorted(downloads, key=lambda one: -(one.size or 0)))


def _size_of(url: str) -> int | None:
    try:
        return size_of(url, Web(certificates=os.environ.get("PIP_CERT")))
    except MissingError:
        return None


def downloads_page(downloads: Sequence[Download]) -> Page:
    """Return what would be downloaded; the total comes first."""
    table = Listing("package", "version", ">size", "")
    for one in downloads:
        told = "unknown" if one.size is None else size(one.size)
        table.add(one.name, one.version, told, "is slimmed" if one.slims else "")
    return Group(Text(downloads_text(downloads), style="bold"), Text(), table)


def downloads_text(downloads: Sequence[Download]) -> str:
    amount = size(sum(one.size or 0 for one in downloads))
    total = f"{counted(len(downloads), 'file')}, {amount} to download"
    unknown = sum(one.size is None for one in downloads)
    return f"{total}; the size of {unknown} is unknown" if unknown else total


class PipDownload:
    """The stages of `pip download`, from its output: until it names the first file, it waits for
    the index. A file is complete when the next one is named: older versions of pip do not tell how
    far one is, and none does for a file of its cache.
    """

    def __init__(self, downloads: Sequence[Download], stages: ExitStack):
        self._sizes = {one.name: one.size or 0 for one in downloads}
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


def _download(downloads: Sequence[Download], installer: Installer, wheels: Path) -> None:
    pins = [one.pin for one in downloads]
    command = installer.download(wheels, pins, tells=tells_progress(installer.pip))
    with ExitStack() as stages:
        outcome = process.stream(command, PipDownload(downloads, stages).hear)
    if not outcome.ok:
        raise install_failure(outcome.stdout, "the packages")


def slim_targets(wished: str | None, python: str) -> tuple[GpuTarget, ...]:
    """Return the GPUs of the machine that words describe, by default of this one."""
    if wished:
        check_installable(read_host(python, wished), python)
    return gpu_targets(wished or "native", _HOST_PARTS)


def slim_install(
    words: Sequence[str], targets: tuple[GpuTarget, ...], installer: Installer, *, say: Say
) -> tuple[SlimInstalled, ...]:
    """Download what is asked for and all it requires, slim it, and install the result."""
    request = SlimRequest(gpus=targets, nvidia=True)
    downloads = resolve(words, installer)
    say(downloads_text(downloads))
    named = [one.name for one in downloads if one.slims]
    with folder_of_process(folders.cache() / "install", _ASIDE) as work:
        wheels = work / "wheels"
        _download(downloads, installer, wheels)
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


# -- selection -------------------------------------------------------------------------------------
# Terminal pages of a selection, of published wheels and of removed wheels.


_STYLES = {Fit.NATIVE: "ok", Fit.COMPATIBLE: "ok", Fit.PTX: "warning", Fit.NONE: "dim"}


def selection_page(selection: Selection) -> Page:
    """Return the machine, every choice with its reason, and what would be installed."""
    table = Listing("", "variant", "version", ">size", "why")
    taken = {wheel.key for wheel in selection.wheels}
    for choice in selection.choices:
        table.add(*_row(choice, chosen=choice.wheel.key in taken))
    parts: list[Page] = [Text(host_line(selection.host)), Text(), table]
    others = [wheel for wheel in selection.wheels if wheel.project != _first(selection)]
    parts += [Text(f"with {wheel.file} of {wheel.variant}") for wheel in others]
    return Group(*parts)


def _first(selection: Selection) -> str:
    return selection.wheels[0].project


def host_line(host: Host) -> str:
    gpus = ", ".join(map(str, host.gpus)) or "no NVIDIA GPU"
    driver = f", driver {host.driver}" if host.driver else ""
    libc = f", {host.libc}" if host.libc else ""
    return f"{gpus}{driver}; {host.cpu} ({host.cpu_family}), {host.os}{libc}, Python {host.python}"


def _row(choice: Choice, *, chosen: bool) -> tuple[str | Text, ...]:
    wheel = choice.wheel
    return (
        Text("->" if chosen else "", style="ok"),
        Text(wheel.variant, style="bold" if chosen else _STYLES.get(choice.fit, "")),
        wheel.version,
        size(wheel.size_bytes) if wheel.size_bytes else "",
        Text("; ".join((choice.reason, *choice.notes)), style=_STYLES.get(choice.fit, "")),
    )


def command_line(command: Sequence[str]) -> str:
    """Return a command that can be pasted into a shell."""
    return shlex.join(command)


def wheels_page(wheels: Sequence[PublishedWheel]) -> Page:
    table = Listing("variant", "wheel", ">size", "architectures")
    for wheel in wheels:
        archs = " ".join(code.arch for code in wheel.code) or "no device code"
        table.add(wheel.variant, whole(wheel.file), size(wheel.size_bytes), archs)
    return table


def pruned_text(pruned: Pruned, *, dry_run: bool) -> str:
    verb = "would remove" if dry_run else "removed"
    listed = (
        counted(len(pruned.wheels), "wheel") + " from the index" if pruned.wheels else "no wheel"
    )
    files = counted(len(pruned.files), "unused file")
    return f"{verb} {listed}; {files}, {size(pruned.freed_bytes)}"
