"""Reads from a PyTorch tree what differs between its releases.

Each fact is read from the one file that decides it; what is not there in a form that is known stays
unknown.
"""

import re
from collections.abc import Iterator

from stoker.model.source import AddedTarget, ReleaseFacts
from stoker.model.variant import Backend
from stoker.source.files import TreeFiles

_CODEGEN = "cmake/Codegen.cmake"
_LISTS = re.compile(r'_BUILD_FOR_ADDITIONAL_ARCHS\(\s*"[^"]*"\s*"([\w;]+)"\s*\)')
_FROM = re.compile(r"VERSION_GREATER_EQUAL\s+(\d+\.\d+)")
_OF = re.compile(r"ARCH_FLAGS\s+MATCHES\s+\"[^\"]*compute_(\d+[af]?)", re.IGNORECASE)
_ADDED = re.compile(r"code=sm_(\d+[af]?)")
_OLDEST = re.compile(r"python_min_version = \((\d+), (\d+)")
_REQUIRES = re.compile(r'^requires-python = "[^"]*>=\s*(\d+\.\d+)', re.MULTILINE)
_LISTED = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
_NEWEST = re.compile(r"version_range_max = max\(sys\.version_info\[1\], (\d+)\)")
_TURNED_ON = re.compile(r'(\w+)=? ?= not check_negative_env_flag\("(\w+)"\)')
_FETCHES = re.compile(r"\b(?:ExternalProject_Add|FetchContent_Declare)\(")
# What is compiled for a back end beside C++ and CUDA, and where its sources are.
_SOURCES = {
    Backend.XPU: ("SYCL", "third_party/xpu.txt"),
    Backend.MPS: ("Metal", "aten/src/ATen/native/mps/kernels"),
    Backend.VULKAN: ("SPIR-V", "aten/src/ATen/native/vulkan/glsl"),
}


def read_release(files: TreeFiles) -> ReleaseFacts:
    project, setup = files.text("pyproject.toml") or "", files.text("setup.py") or ""
    oldest = _REQUIRES.search(project) or _OLDEST.search(setup)
    minors = [int(minor) for minor in (*_LISTED.findall(project), *_NEWEST.findall(setup))]
    libraries = "tools/build_pytorch_libs.py"
    turned_on = _TURNED_ON.findall(files.text(libraries) or "") if setup else []
    external = {"nccl": "cmake/External/nccl.cmake"}
    return ReleaseFacts(
        python_oldest=".".join(filter(None, oldest.groups())) if oldest else None,
        python_newest=f"3.{max(minors)}" if minors else None,
        added=tuple(_added_targets(files.text(_CODEGEN) or "")),
        turned_on={variable: libraries for _, variable in turned_on if variable == "BUILD_TEST"},
        fetched={
            name: file for name, file in external.items() if _FETCHES.search(files.text(file) or "")
        },
        device_code={
            backend: f"{language}: {place}"
            for backend, (language, place) in _SOURCES.items()
            if files.is_file(place) or files.is_filled(place)
        },
    )


def _added_targets(text: str) -> Iterator[AddedTarget]:
    """Yield the targets that single kernels get besides, as Codegen.cmake lists them."""
    named = {arch for archs in _LISTS.findall(text) for arch in archs.split(";")}
    found: dict[AddedTarget, None] = {}
    cuda: str | None = None
    of: str | None = None
    for line in text.splitlines():
        if re.match(r"\s*(?:(?:else)?if\(|EXISTING_ARCH_FLAGS)", line):
            releases = _FROM.findall(line)
            if "STREQUAL" in line or releases:
                cuda = releases[0] if releases else None
            if match := _OF.search(line):
                of = match[1]
        if (added := _ADDED.search(line)) and of and (not named or added[1] in named):
            target = AddedTarget(arch=_dotted(added[1]), of=_dotted(of), cuda=cuda)
            found.setdefault(target)
    yield from found


def _dotted(digits: str) -> str:
    number = digits.rstrip("af")
    return f"{number[:-1]}.{number[-1]}{digits[len(number) :]}"
