"""A wheel's facts as an entry of a catalogue. Pure: the caller reads the wheel."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from stoker.catalogue.values import (
    NO_LABEL,
    WHEEL_VARIANTS,
    ArchCode,
    CodeRegions,
    PublishedWheel,
)
from stoker.knowledge.cpus import cpu_levels, cpu_needs
from stoker.knowledge.gpus import gpus
from stoker.knowledge.sonames import cuda_of
from stoker.model.artifact import ArtifactFacts, CxxAbi, WheelFacts
from stoker.model.distribution import read_requirement, read_version
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.plan import Backend, Variant
from stoker.model.slimming import SlimRecord
from stoker.model.value import UNDECODABLE, Value
from stoker.plan.grammar import label

RESERVED = frozenset(
    {"files", "signatures", WHEEL_VARIANTS}
)  # a variant's folder stands beside these
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
    plan = recorded.plan or Variant(backend=_backend(facts))
    cuda = plan.toolkit or _cuda(facts, wheel) if plan.backend is Backend.CUDA else None
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
        regions=_regions(facts),
        code=_code(facts),
        minimum_driver=facts.minimum_driver,
        cpu=plan.cpu,
        cpu_needs=tuple(sorted(cpu_needs(plan.cpu))) if plan.cpu else (),
        blas=plan.blas,
        cxx_abi=_cxx_abi(facts),
        torch=(facts.loads_with and recorded.torch) or _built_for_torch(wheel),
        loads_with=_loads_with(facts),
        stable_abi=facts.loads_with is not None and facts.loads_with.stable_abi,
        source=recorded.source,
        slimmed_for=recorded.slim.targets if recorded.slim else (),
        verified=recorded.verified,
        built=identity.built,
    )
    return _checked(entry)


def _loads_with(facts: ArtifactFacts) -> tuple[str, ...]:
    fits = facts.loads_with.builds if facts.loads_with else ()
    return tuple(dict.fromkeys(fit.release for fit in fits if fit.loads and not fit.torch))


def _checked(entry: PublishedWheel) -> PublishedWheel:
    """Apply the patterns of the fields, which msgspec checks only when it decodes."""
    if entry.variant in RESERVED:
        raise UsageError(f"'{entry.variant}' cannot be the name of a variant")
    try:
        return msgspec.convert(msgspec.to_builtins(entry), PublishedWheel)
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
            return ".".join(version.split(".")[:2])
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


def _cxx_abi(facts: ArtifactFacts) -> CxxAbi | None:
    found = {library.cxx_abi for library in facts.libraries if library.cxx_abi}
    return found.pop() if len(found) == 1 else None


def _regions(facts: ArtifactFacts) -> tuple[CodeRegions, ...]:
    counted: Counter[tuple[str, ...]] = Counter()
    for library in facts.libraries:
        for pattern in library.regions:
            counted[pattern.archs] += pattern.count
    return tuple(CodeRegions(archs=archs, count=counted[archs]) for archs in sorted(counted))


def _code(facts: ArtifactFacts) -> tuple[ArchCode, ...]:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for library in facts.libraries:
        for code in library.device_code:
            if code.linked:
                sizes[code.arch] += code.size_bytes
                counts[code.arch] += code.count
    return tuple(
        ArchCode(arch=arch, size_bytes=sizes[arch], count=counts[arch])
        for arch in sorted(sizes, key=_order)
    )


def _order(arch: str) -> tuple[str, int, str]:
    kind, _, name = arch.partition("_")
    return kind, int(re.sub(r"\D", "", name) or 0), name


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


# -- wheels of other indexes -----------------------------------------------------------------------
# An index that is no catalogue tells what a wheel is for only by the label in its name, and by the
# properties of that label in `NAME-VERSION-variants.json`.


Properties = dict[str, dict[str, list[str]]]  # values by namespace and feature
_PARTS = 5  # of a wheel's name, without build number and label


class _Variants(Value, frozen=True, kw_only=True):
    variants: dict[str, Properties]


def read_variants(content: bytes, where: str) -> dict[str, Properties]:
    """Return the properties by label; anyone may have written the file."""
    try:
        return msgspec.json.decode(content, type=_Variants).variants
    except UNDECODABLE as error:
        raise ArtifactError(f"this does not describe wheel variants: {error}", file=where) from None


def without_label(file: str) -> tuple[str, str | None]:
    """Return the name of a wheel without the label of its variant, and the label."""
    parts = file.removesuffix(".whl").split("-")
    usual = _PARTS + (len(parts) > _PARTS and parts[2][:1].isdigit())
    if len(parts) != usual + 1:
        return file, None
    return "-".join(parts[:usual]) + ".whl", parts[usual]


def foreign_entry(
    file: str, sha256: str, size: int, described: dict[str, Properties]
) -> PublishedWheel | None:
    """Return a wheel of another index as an entry; ``None`` for one whose label is not described,
    and for a file that is not a wheel.
    """
    bare, label = without_label(file)
    try:
        name, version, _, tags = parse_wheel_filename(bare)
    except ValueError:  # also InvalidWheelFilename and InvalidVersion
        return None
    if label is not None and label not in described:
        return None
    properties = described[label] if label else {}
    nvidia, x86 = properties.get("nvidia", {}), properties.get("x86_64", {})
    archs = tuple(_nvidia_archs(nvidia.get("sm_arch", [])))
    levels = [f"x86_64_{level}" for level in sorted(x86.get("level", []))]
    known = [level for level in levels if level in cpu_levels()]
    instructions = {
        name
        for family in ("x86_64", "aarch64")
        for name, values in properties.get(family, {}).items()
        if values == ["on"]
    }
    needs = cpu_needs(known[0]) if known else frozenset()
    return PublishedWheel(
        file=file,
        sha256=sha256,
        size_bytes=size,
        unpacked_bytes=0,
        metadata_sha256="",
        project=name,
        version=str(version),
        tags=tuple(sorted(map(str, tags))),
        variant=label or NO_LABEL,
        backend=_foreign_backend(properties),
        cuda=min(nvidia.get("cuda_version_lower_bound", []), key=_release, default=None),
        regions=(CodeRegions(archs=archs, count=1),) if archs else (),
        code=tuple(ArchCode(arch=arch, size_bytes=0, count=1) for arch in archs),
        cpu=", ".join([*known[:1], *sorted(instructions)]) or None,
        cpu_needs=tuple(sorted(needs | instructions)),
        properties=tuple(
            f"{namespace} :: {feature} :: {value}"
            for namespace, features in properties.items()
            for feature, values in features.items()
            for value in values
        ),
    )


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,4}", text))


def _foreign_backend(properties: Properties) -> Backend:
    found = {"nvidia": Backend.CUDA, "amd": Backend.ROCM, "intel": Backend.XPU, "xpu": Backend.XPU}
    return next((found[name] for name in properties if name in found), Backend.CPU)


def _nvidia_archs(values: Iterable[str]) -> Iterator[str]:
    """Yield ``sm_90`` and ``compute_90`` for the values ``90_real`` and ``90_virtual``."""
    kinds = {"real": "sm", "virtual": "compute"}
    for value in values:
        number, _, kind = value.partition("_")
        if kind in kinds and re.fullmatch(r"[0-9]{1,4}[af]?", number):
            yield f"{kinds[kind]}_{number}"


def unknown_properties(wheel: PublishedWheel) -> tuple[str, ...]:
    """Return the properties whose meaning is not known here, so they cannot be checked."""
    return tuple(line for line in wheel.properties if not _KNOWN.fullmatch(line))


_KNOWN = re.compile(
    r"nvidia :: sm_arch :: [0-9]+[af]?_(real|virtual)"
    r"|nvidia :: cuda_version_(lower|upper)_bound :: [0-9]+(\.[0-9]+)?"
    r"|amd :: gfx_arch :: .+|(intel|xpu) :: device_ip :: .+"
    r"|x86_64 :: level :: v[1-4]|(x86_64|aarch64) :: [a-z0-9_]+ :: on"
)
