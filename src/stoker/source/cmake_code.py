"""Reads from CMake commands which code a build compiles, and for which targets."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from stoker.model.source import CudaCode, Minimum, NamedTarget, NativeCode
from stoker.model.value import version_numbers
from stoker.source.cmake import CMakeCommand
from stoker.source.conditions import Enclosed, enclosed

# A literal that names a GPU target: a flag of a compiler, not the name of a file.
_FLAG = re.compile(r"arch=compute_|code=sm_|-arch=sm_|--offload-arch=gfx")
_CODE = re.compile(r"(?<![\w])(sm|compute)_(\d+)(\d)([af]?)(?![\w$])")
_KEPT = re.compile(r"(?<![a-z])code=")
_AMD = re.compile(r"gfx[0-9a-f]{3,4}")
_ARCHITECTURE = re.compile(r"(\d+)(\d)([af]?)(-real|-virtual)?")
_CUDA_VERSION = re.compile(r"\$?\{?\w*CUDA\w*VERSION\w*\}?", re.IGNORECASE)
# Libraries of tests and the like are not those that are built for.
_BESIDE = re.compile(r"(?:^|/)(?:tests?|examples?|benchmarks?|docs?)/", re.IGNORECASE)
# Around a comparison of versions nothing but switches, such as USE_CUDA.
_SWITCHES = re.compile(r"(?:(?:NOT )?\w+ AND )*\S+ VERSION_LESS ")
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}")
_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_CALLS_NVCC = re.compile(r"nvcc(?!_flags)", re.IGNORECASE)
_WITH_A_VALUE = ("VERSION", "COMPAT_VERSION", "DESCRIPTION", "HOMEPAGE_URL")  # of project()
_FIND_CUDA = re.compile(r"cuda_(?:add|compile|wrap)\w*")
_DEVICE_SOURCE = re.compile(r"\.(?:cu|hip)(?![\w.])")
_LISTS_SOURCES = re.compile(
    r"set|list|file|source|(?!add_custom_)(?:\w+_)?(?:add|target|define)_\w+"
    r"|\w*(?:library|executable|module)"
)
_UNLESS_GIVEN = re.compile(
    r"\bNOT (?:DEFINED )?(?:\(DEFINED )?\"?(?:\$\{)?CMAKE_CUDA_ARCHITECTURES\b"
)


def named_targets(enclosed: Enclosed, where: str) -> Iterator[NamedTarget]:
    """Yield the targets that a command names, for CUDA or for ROCm."""
    command, conditional = enclosed.command, enclosed.conditional
    words = command.words
    match command.name, words:
        case "set", ["CMAKE_CUDA_ARCHITECTURES", *values] if not {"CACHE"} & set(values):
            replaces = not _UNLESS_GIVEN.search(enclosed.within or "")
            for arch, ptx in _architectures(";".join(values)):
                yield NamedTarget(
                    where=where, arch=arch, ptx=ptx, conditional=conditional, replaces=replaces
                )
            if replaces and any("$" in value for value in values):
                yield from _computed(words, where, conditional=conditional)
            return
        case ("set", ["CMAKE_HIP_ARCHITECTURES", *_]) | (
            "list",
            ["APPEND", "CMAKE_CUDA_ARCHITECTURES" | "CMAKE_HIP_ARCHITECTURES", *_],
        ):
            yield from _computed(words, where, conditional=conditional)
            return
        case (("set_property" | "set_target_properties"), [*_]):
            if not _BESIDE.search(where):
                yield from _of_property(words, where)
            return
        case "message", _:
            return
    for word in words:
        if not _FLAG.search(word):
            continue
        found = list(flag_targets(word, where, conditional=conditional))
        yield from found or [NamedTarget(where=where, amd="gfx" in word, conditional=conditional)]


def _of_property(words: list[str], where: str) -> Iterator[NamedTarget]:
    """Yield the targets that a property of a library names in place of CMake's list: how many other
    libraries there are is not known.
    """
    for name in ("CUDA_ARCHITECTURES", "HIP_ARCHITECTURES"):
        values = words[words.index(name) + 1 :] if name in words else []
        text = ";".join(values)
        if not values or f"CMAKE_{name}" in text:
            continue
        amd = name == "HIP_ARCHITECTURES"
        found = [NamedTarget(where=where, arch=arch, amd=True) for arch in _AMD.findall(text)]
        if not amd:
            found = [
                NamedTarget(where=where, arch=arch, ptx=ptx) for arch, ptx in _architectures(text)
            ]
        for target in found or [NamedTarget(where=where, amd=amd)]:
            yield replace(target, conditional=True, replaces=True)


def _computed(words: list[str], where: str, *, conditional: bool) -> Iterator[NamedTarget]:
    """Yield one unknown target if CMake's own list becomes that of another variable."""
    name, *values = [word for word in words if word != "APPEND"]
    text = ";".join(values)
    if "$" in text and name not in text and "CACHE" not in values:
        amd = name == "CMAKE_HIP_ARCHITECTURES"
        yield NamedTarget(where=where, amd=amd, conditional=conditional, replaces=True)


def _architectures(text: str) -> Iterator[tuple[str, bool]]:
    """Yield targets of a literal list such as ``80-real;90``; the second of a pair means PTX."""
    for word in text.split(";"):
        if found := _ARCHITECTURE.fullmatch(word):
            arch = f"{found[1]}.{found[2]}{found[3]}"
            if found[4] != "-virtual":
                yield arch, False
            if found[4] != "-real":
                yield arch, True


def flag_targets(text: str, where: str, *, conditional: bool) -> Iterator[NamedTarget]:
    """Yield the targets of a flag of a compiler; those with a computed part are left out."""
    for arch in _AMD.findall(text):
        yield NamedTarget(where=where, arch=arch, amd=True, conditional=conditional)
    # Of `arch=compute_90,code=sm_90` only the code is kept in the object.
    kept = _KEPT.search(text)
    code = text[kept.end() :] if kept else text
    for kind, major, minor, suffix in _CODE.findall(code):
        arch = f"{major}.{minor}{suffix}"
        ptx = kind == "compute"
        yield NamedTarget(where=where, arch=arch, ptx=ptx, conditional=conditional)


def native_code(enclosed: Enclosed, where: str) -> NativeCode | None:
    """Return the place if a command uses the instructions of the machine that compiles."""
    words = enclosed.command.words
    if "CACHE" in words:
        return None  # the help text of an option
    text = " ".join(words)
    checks = enclosed.command.name.startswith(("check_", "if", "elseif", "message", "option"))
    if checks or not _NATIVE.search(text):
        return None
    return NativeCode(where=where, within=enclosed.within)


def compiles_device_code(command: CMakeCommand) -> bool:
    """Tell whether a command lists sources for GPUs."""
    if not _LISTS_SOURCES.fullmatch(command.name):
        return False
    return any(map(_DEVICE_SOURCE.search, command.words))


def cuda_code(command: CMakeCommand) -> CudaCode | None:
    """Return how a command has CMake compile CUDA code, if it may do so."""
    words = command.words
    match command.name, words:
        case ("project", [_, *others]) | ("enable_language", others):
            named = any(word == "CUDA" or "$" in word for word in _languages(others))
            return CudaCode.LANGUAGE if named else None
        case "set_source_files_properties" | "set_property", [*_, "LANGUAGE", language]:
            return CudaCode.LANGUAGE if language == "CUDA" or "$" in language else None
        case "message", _:
            return None
    if _FIND_CUDA.fullmatch(command.name):
        return CudaCode.FIND_CUDA
    listed = command.name not in ("set", "list", "file") and compiles_device_code(command)
    text = command.name == "option" or "CACHE" in words  # of an option, for people
    nvcc = not text and any(map(_CALLS_NVCC.search, words))
    return CudaCode.UNKNOWN if listed or nvcc else None


def requires_cuda(enclosed: Enclosed) -> bool:
    """Tell whether no configuration gets past a command without CUDA."""
    words = enclosed.command.words
    match enclosed.command.name, words:
        case _ if enclosed.conditional:
            return False
        case ("project", [_, *others]) | ("enable_language", others):
            return "CUDA" in _languages(others)
        case "find_package", ["CUDA" | "CUDAToolkit", *others]:
            return "REQUIRED" in others
    return False


def _languages(words: list[str]) -> Iterator[str]:
    """Yield the words of project() or enable_language() that may name languages."""
    left = iter(words)
    for word in left:
        if word in _WITH_A_VALUE:
            next(left, None)
        elif word != "LANGUAGES":
            yield word


def refused_below(file: str, commands: Sequence[CMakeCommand]) -> Minimum | None:
    """Return the version of ``if(CUDA_VERSION VERSION_LESS 12.6) message(FATAL_ERROR ...)``."""
    within = {id(each.command): each.within or "" for each in enclosed(commands)}
    for command, following in pairwise(commands):
        if not _SWITCHES.match(within.get(id(following), "")):
            continue  # it may be about another compiler or system
        refuses = following.name == "message" and following.words[:1] in (
            ["FATAL_ERROR"],
            ["SEND_ERROR"],
        )
        match command.words:
            case [subject, "VERSION_LESS", version] if command.name in ("if", "elseif") and refuses:
                if _CUDA_VERSION.fullmatch(subject) and _VERSION.fullmatch(version):
                    return Minimum(version=version, where=f"{file}:{command.line}")
    return None


def required_cuda(
    commands: Iterable[tuple[str, CMakeCommand]], values: Mapping[str, str]
) -> Minimum | None:
    """Return the lowest version of all ``find_package(CUDAToolkit VERSION REQUIRED)``.

    The lowest, because conditions are not evaluated. ``values`` are variables set to a literal.
    """
    found = []
    for file, command in commands:
        match command.name, command.words:
            case "find_package", ["CUDAToolkit" | "CUDA", version, *words] if "REQUIRED" in words:
                version = values.get(version.removeprefix("${").removesuffix("}"), version)
                if _VERSION.fullmatch(version):
                    found.append(Minimum(version=version, where=f"{file}:{command.line}"))
    return min(found, key=lambda minimum: version_numbers(minimum.version), default=None)
