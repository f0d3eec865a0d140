"""A wheel's facts as an entry of a catalogue. Pure: the caller reads the wheel."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from stoker.catalogue.values import WHEEL_VARIANTS, ArchCode, CodeRegions, PublishedWheel
from stoker.knowledge.cpus import cpu_needs
from stoker.knowledge.gpus import gpus
from stoker.knowledge.sonames import cuda_of
from stoker.model.artifact import ArtifactFacts, LibraryFacts, WheelFacts
from stoker.model.distribution import read_requirement, read_version
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.slimming import SlimRecord
from stoker.model.value import Value, minor_release, prepared
from stoker.model.variant import Backend, Variant
from stoker.plan.grammar import label
from stoker.wheel.inspect.origins import own_libraries
from stoker.wheel.inspect.runs_on import arch_order

# A variant's folder stands beside these.
RESERVED = frozenset({"files", "signatures", WHEEL_VARIANTS})
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?|cuda-toolkit")
_CUDA_LABEL = re.compile(r"cu(\d{2})(\d?)(?!\d)")  # cu128, or only the major release: cu12
_TORCH_LABEL = re.compile(r"torch(\d+\.\d+)")


class FileIdentity(Value, frozen=True, kw_only=True):
    """The facts of a file that are known without opening it."""

    file: str
    sha256: str
    size: int
    metadata_sha256: str
    built: str


class RecordedOrigin(Value, frozen=True, kw_only=True):
    """What the wheel says about its build and its slimming, and what the publisher adds."""

    plan: Variant | None = None
    slim: SlimRecord | None = None
    variant: str | None = None  # the publisher's own name for the variant
    torch: str | None = None
    source: str | None = None
    verified: bool = False


def make_entry(
    identity: FileIdentity, facts: ArtifactFacts, recorded: RecordedOrigin
) -> PublishedWheel:
    wheel = facts.wheel
    assert wheel is not None
    _check_name(identity.file, wheel)
    own = own_libraries(facts.libraries, wheel.name)
    plan = recorded.plan or Variant(backend=_backend(facts))
    cuda = plan.toolkit or _cuda(facts, wheel) if plan.backend is Backend.CUDA else None
    abis = {library.cxx_abi for library in facts.libraries if library.cxx_abi}
    fits = facts.loads_with.builds if facts.loads_with else ()
    releases = [fit.release for fit in fits if fit.loads and not fit.torch]
    entry = PublishedWheel(
        file=identity.file,
        sha256=identity.sha256,
        size_bytes=identity.size,
        unpacked_bytes=wheel.unpacked_bytes,
        metadata_sha256=identity.metadata_sha256,
        project=canonicalize_name(wheel.name),
        version=wheel.version,
        tags=wheel.tags,
        requires_python=wheel.requires_python,
        requires=wheel.requires,
        variant=recorded.variant or _variant_name(wheel, recorded, plan, cuda),
        backend=plan.backend,
        cuda=cuda,
        regions=_regions(own),
        code=_code(own),
        minimum_driver=facts.minimum_driver,
        cpu=plan.cpu,
        cpu_needs=tuple(sorted(cpu_needs(plan.cpu))) if plan.cpu else (),
        blas=plan.blas,
        cxx_abi=abis.pop() if len(abis) == 1 else None,
        torch=(facts.loads_with and recorded.torch) or _built_for_torch(wheel),
        loads_with=tuple(dict.fromkeys(releases)),
        stable_abi=facts.loads_with is not None and facts.loads_with.stable_abi,
        source=recorded.source,
        slimmed_for=recorded.slim.targets if recorded.slim else (),
        verified=recorded.verified,
        built=identity.built,
    )
    return _checked(entry)


def _checked(entry: PublishedWheel) -> PublishedWheel:
    """Apply the patterns of the fields, which msgspec checks only when it decodes."""
    if entry.variant in RESERVED:
        raise UsageError(f"'{entry.variant}' cannot be the name of a variant")
    try:
        return msgspec.convert(msgspec.to_builtins(entry), prepared(PublishedWheel))
    except msgspec.ValidationError as error:
        raise ArtifactError(f"this cannot be published: {error}", file=entry.file) from None


def _check_name(file: str, wheel: WheelFacts) -> None:
    try:
        name, version, _, _ = parse_wheel_filename(file)
        said = canonicalize_name(wheel.name), read_version(wheel.version)
    except ValueError as error:  # also InvalidWheelFilename and InvalidVersion
        raise ArtifactError(str(error), file=file) from None
    if (name, version) != said:
        message = f"the file's name says {name} {version}, the wheel itself {said[0]} {said[1]}"
        raise ArtifactError(message, file=file)


def _needed(facts: ArtifactFacts) -> Iterator[str]:
    return (name for library in facts.libraries for name in library.needed)


def _backend(facts: ArtifactFacts) -> Backend:
    """Return the back end; without a plan, derive it from device code or required CUDA
    libraries.
    """
    device = any(library.regions for library in facts.libraries)
    linked = any(cuda_of(name) or name == "libcuda.so.1" for name in _needed(facts))
    return Backend.CUDA if device or linked else Backend.CPU


def _cuda(facts: ArtifactFacts, wheel: WheelFacts) -> str | None:
    for line in wheel.requires:
        name, version = _pinned(line)
        if version and _RUNTIME.fullmatch(name):
            return minor_release(version)
    if found := _CUDA_LABEL.search(wheel.version.partition("+")[2]):
        return f"{found[1]}.{found[2]}" if found[2] else found[1]
    majors = {major for name in _needed(facts) if (major := cuda_of(name))}
    return str(max(majors)) if majors else None


def _pinned(line: str) -> tuple[str, str | None]:
    """Return the project that a requirement names, and the version that it pins exactly."""
    try:
        requirement = read_requirement(line)
    except InvalidRequirement:
        return "", None
    exact = [item.version for item in requirement.specifier if item.operator == "=="]
    return canonicalize_name(requirement.name), exact[0] if len(exact) == 1 else None


def _built_for_torch(wheel: WheelFacts) -> str | None:
    """Return the torch version, from an exact requirement or from a label such as
    ``+cu12torch2.9``.
    """
    for line in wheel.requires:
        name, version = _pinned(line)
        if name == "torch" and version and "*" not in version:
            return version
    found = _TORCH_LABEL.search(wheel.version.partition("+")[2])
    return found[1] if found else None


def _regions(libraries: Iterable[LibraryFacts]) -> tuple[CodeRegions, ...]:
    counted: Counter[tuple[str, ...]] = Counter()
    for library in libraries:
        for pattern in library.regions:
            counted[pattern.archs] += pattern.count
    return tuple(CodeRegions(archs=archs, count=counted[archs]) for archs in sorted(counted))


def _code(libraries: Iterable[LibraryFacts]) -> tuple[ArchCode, ...]:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for library in libraries:
        for code in library.device_code:
            if code.linked:
                sizes[code.arch] += code.size_bytes
                counts[code.arch] += code.count
    return tuple(
        ArchCode(arch=arch, size_bytes=sizes[arch], count=counts[arch])
        for arch in sorted(sizes, key=arch_order)
    )


def _variant_name(
    wheel: WheelFacts, recorded: RecordedOrigin, plan: Variant, cuda: str | None
) -> str:
    """Return the variant from the plan, else from the version's local label, else from the
    libraries.
    """
    try:
        local = read_version(wheel.version).local
    except InvalidVersion:
        local = None
    if recorded.plan is None and recorded.slim is None and local:
        return _slug([local])
    toolkit = cuda if cuda and "." in cuda else None
    gpus = recorded.slim.gpus if recorded.slim else plan.gpus
    whole = msgspec.structs.replace(plan, toolkit=toolkit, gpus=gpus, python=None)
    return _slug([label(whole)])


def _slug(words: Iterable[str]) -> str:
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-") or "unnamed"


def variant_name(text: str) -> str:
    """Return the publisher's name for a variant after a check: it becomes a folder and part of a
    URL.
    """
    pattern = r"[a-z0-9]+([._-][a-z0-9]+)*"
    if len(text) > 120 or text in RESERVED or not re.fullmatch(pattern, text, re.ASCII):
        raise UsageError(
            f"'{text[:40]}' cannot be the name of a variant",
            hints=["lower-case letters, digits, dots and dashes, such as cu128-sm90"],
        )
    return text


def named_gpus(wheel: PublishedWheel) -> tuple[str, ...]:
    """Return the AMD or Intel GPUs that a wheel is for, by its properties or its variant's name."""
    words = f"-{wheel.variant}-"
    ips = [line.rpartition(" ")[2] for line in wheel.properties]
    return tuple(
        sorted(
            gpu.arch
            for gpu in gpus().values()
            if gpu.backend is wheel.backend
            and (f"-{gpu.arch}-" in words or gpu.arch in ips or gpu.device_ip in ips)
        )
    )
