"""Small wheels with real libraries and made-up device code, and entries of catalogues as values."""

import platform
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from built_libraries import CUBIN, PTX, entry, region, with_device_code
from conftest import Need
from stoker.catalogue.values import ArchCode, CodeRegions, Host, HostGpu, PublishedWheel
from stoker.model.artifact import CxxAbi
from stoker.model.slimming import SLIM_MEMBER, SlimRecord
from stoker.model.variant import PLAN_MEMBER, Backend
from stoker.plan.grammar import label, parse
from wheel_files import record

MACHINE = platform.machine()


def make_library(need: Need, folder: Path, archs: Sequence[str]) -> bytes:
    """A library that loads, with one region for the architectures, as ``sm_90``, ``compute_90``."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for arch in archs:
        kind, _, number = arch.partition("_")
        entries.append(entry(PTX if kind == "compute" else CUBIN, int(number), arch.encode() * 20))
    return with_device_code(need, folder, region(entries)).read_bytes()


def make_wheel(
    folder: Path,
    *,
    name: str = "mill",
    version: str = "1.0",
    variant: str | None = None,
    library: bytes | None = None,
    requires: Sequence[str] = (),
    slimmed: SlimRecord | None = None,
    more: Mapping[str, bytes] | None = None,
    metadata: str = "",
    said_tag: str | None = None,
) -> Path:
    """A wheel that installs on this machine. ``variant`` becomes its plan and its version label.

    ``said_tag`` is in WHEEL where that differs from the file name, as in some wheels of NVIDIA.
    """
    if variant:
        version = f"{version}+{label(parse(variant))}"
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    tag = f"py3-none-linux_{MACHINE}" if library else "py3-none-any"
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    text += "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = {f"{module}/__init__.py": f"version = {version!r}\n".encode(), **(more or {})}
    if library:
        contents[f"{module}/libmill.so"] = library
    contents[f"{info}/METADATA"] = text.encode()
    about = ["Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: false"]
    contents[f"{info}/WHEEL"] = "\n".join([*about, f"Tag: {said_tag or tag}", ""]).encode()
    if variant:
        contents[f"{info}/{PLAN_MEMBER}"] = msgspec.json.encode({"variant": parse(variant)})
    if slimmed:
        contents[f"{info}/{SLIM_MEMBER}"] = msgspec.json.encode(slimmed)
    contents[f"{info}/RECORD"] = record(contents, info)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in contents.items():
            archive.writestr(member, content)
    return path


def empty_environment(folder: Path) -> str:
    """Make a virtual environment without pip, which stoker brings along; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def published(variant: str, **changes: Any) -> PublishedWheel:
    """An entry as `stoker catalogue publish` makes it of a torch 2.9.1 built for a variant."""
    built = parse(variant)
    version = changes.pop("version", "2.9.1")
    project = changes.pop("project", "torch")
    family = changes.pop("family", "x86_64")
    whole = f"{version}+{label(built)}"
    tag = f"cp312-cp312-manylinux_2_28_{family}"
    archs = [f"sm_{gpu.arch.replace('.', '')}" for gpu in built.gpus]
    archs += [f"compute_{gpu.arch.replace('.', '')}" for gpu in built.gpus if gpu.ptx]
    from stoker.knowledge.cpus import cpu_needs

    whole_entry = PublishedWheel(
        file=f"{project}-{whole}-{tag}.whl",
        sha256=changes.pop("sha256", "0" * 64),
        size_bytes=300_000_000,
        unpacked_bytes=900_000_000,
        metadata_sha256="1" * 64,
        project=project,
        version=whole,
        tags=(tag,),
        variant=label(built).replace(".", "-"),
        backend=built.backend,
        cuda=built.toolkit or ("12.8" if built.backend is Backend.CUDA else None),
        regions=(CodeRegions(archs=tuple(archs), count=100),) if archs else (),
        code=tuple(ArchCode(arch=arch, size_bytes=1000, count=100) for arch in archs),
        cpu=built.cpu,
        cpu_needs=tuple(sorted(cpu_needs(built.cpu))) if built.cpu else (),
        cxx_abi=CxxAbi.CXX11,
        verified=True,
        built="2026-11-15T12:00:00Z",
        published="2026-11-15T13:00:00Z",
    )
    return msgspec.structs.replace(whole_entry, **changes)


def releases(count: int, variant: str = "cu128-sm90") -> list[PublishedWheel]:
    """Entries of one variant that differ in their version only, 25 to each minor release."""
    first = published(variant, version="2.0.0")
    return [
        msgspec.structs.replace(
            first,
            version=first.version.replace("2.0.0", version),
            file=first.file.replace("2.0.0", version),
        )
        for version in (f"2.{number // 25}.{number % 25}" for number in range(count))
    ]


AVX2 = ("avx", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "movbe", "popcnt", "sse4_2", "ssse3")
AVX512 = (*AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")


def host(name: str = "", capability: str = "", **changes: Any) -> Host:
    """A recorded machine: a GPU, or none, in a server with AVX-512."""
    gpus = (HostGpu(name=name, capability=capability),) if name else ()
    machine = Host(
        os="linux",
        cpu_family="x86_64",
        cpu="icelake",
        cpu_features=AVX512,
        python="3.12.7",
        gpus=gpus,
        driver="570.124.06" if gpus else None,
        libc="glibc 2.36",
    )
    return msgspec.structs.replace(machine, **changes)
