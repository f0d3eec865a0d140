"""Facts of the CUDA toolkits of this machine, of the log and of torch.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import os
import re
from pathlib import Path

from stoker.diagnose.about import About, Facts
from stoker.model.value import major

FACTS = Facts()

_FIRST_TOOLCHAIN = 13  # the first CUDA that `stoker toolchain` installs
_SCRIPT = 4096  # bytes of a script that starts nvcc


@FACTS.text("machine.cuda_home", "the folder of the CUDA toolkit that a build would take")
def _cuda_home(about: About) -> str | None:
    nvcc = _nvcc(about)
    return str(nvcc.parent.parent) if nvcc else None


def used_cuda(about: About) -> str | None:
    """Return the version of the toolkit that the log names, else of that of this machine."""
    return first_named(_USED_CUDA, about) or _cuda(about)


def _cuda(about: About) -> str | None:
    home = _cuda_home(about)
    return _toolkit_version(Path(home)) if home else None


@FACTS.text("run.cuda_of_path", "the one folder in what CUDA_HOME was set to")
def _cuda_of_path(about: About) -> str | None:
    named = next(iter(about.groups.get("path", ())), "")
    folders = [word for word in re.split(r"[:;'\" ]+", named) if re.match(r"/[\w./+-]+$", word)]
    return folders[0] if len({*folders}) == 1 else None


@FACTS.text(
    "machine.cuda_found",
    "the folder of a CUDA toolkit, not that of CUDA_HOME, that torch and the log allow",
)
def _cuda_found(about: About) -> str | None:
    nvcc = _nvcc(about, with_variables=False)
    home = nvcc.parent.parent if nvcc else None
    return str(home) if home and _allowed(_toolkit_version(home), about) else None


def _allowed(cuda: str | None, about: About) -> bool:
    """Return whether a CUDA version has the major version of torch, or of the toolkit that the log
    names, and is not older than what the log asks for.
    """
    used = _torch_cuda(about) or first_named(_USED_CUDA, about)
    if cuda is None or (used and major(used) != major(cuda)):
        return cuda is None
    return all(float(cuda) >= float(word) for word in about.words("least") if _is_version(word))


_is_version = re.compile(r"\d{1,2}(?:\.\d{1,2})?").fullmatch


@FACTS.text(
    "machine.cuda_wanted",
    "the CUDA version of torch, else the newest with the major version that the log names, if it "
    "can be installed",
)
def _cuda_wanted(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases

    named = first_named(_USED_CUDA, about)
    if not (named or about.is_here or _torch_cuda(about)):
        return None
    fitting = [one for one in cuda_releases() if not named or major(one) == major(named)]
    return _installable(_torch_cuda(about) or (fitting[-1] if fitting else None))


@FACTS.text(
    "machine.cuda_same",
    "the CUDA version of torch, else of the toolkit that the build has used, if it can be "
    "installed: it replaces a toolkit that lacks a part",
)
def _cuda_same(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases

    version = _torch_cuda(about) or used_cuda(about)
    return _installable(version) if version in cuda_releases() else _cuda_wanted(about)


def _installable(version: str | None) -> str | None:
    return version if version and major(version) >= _FIRST_TOOLCHAIN else None


@FACTS.text(
    "machine.cuda_include",
    "the folder of the headers of the CUDA toolkit, if it has what is missing",
)
def _cuda_include(about: About) -> str | None:
    folder = _below_toolkit(about, "include/cuda_runtime.h", "targets/*/include/cuda_runtime.h")
    # Since CUDA 13, nvcc alone finds Thrust, CUB and libcu++ by itself: they are in cccl.
    folders = [Path(folder), Path(folder, "cccl")] if folder else []
    headers = about.words("header")
    return next((str(one) for one in folders if all((one / h).exists() for h in headers)), None)


@FACTS.text("machine.cuda_libraries", "the folder of the libraries of the CUDA toolkit")
def _cuda_libraries(about: About) -> str | None:
    return _below_toolkit(
        about, "lib64/libcudart.so", "targets/*/lib/libcudart.so", "lib/libcudart.so"
    )


@FACTS.text("machine.cuda_stubs", "the folder with the stub of the driver library")
def _cuda_stubs(about: About) -> str | None:
    return _below_toolkit(about, "lib64/stubs/libcuda.so", "targets/*/lib/stubs/libcuda.so")


def _below_toolkit(about: About, *patterns: str) -> str | None:
    home = _cuda_home(about) if _allowed(_cuda(about), about) else None
    found = (path for pattern in patterns for path in Path(home or "/-").glob(pattern))
    return next((str(path.parent) for path in found), None)


@FACTS.text("machine.torch_cuda", "the CUDA version of the torch that the interpreter has")
def _torch_cuda(about: About) -> str | None:
    if named := first_named(_TORCH_CUDA, about):
        return named if "." in named else f"{named[:-1]}.{named[-1]}"
    if about.own_python is None:
        return None
    prefix = Path(about.own_python).parent.parent
    for file in prefix.glob("lib/python3*/site-packages/torch/version.py"):
        if match := re.search(r"^cuda[^=]*= '([\d.]+)'", file.read_text(), re.MULTILINE):
            return match[1]
    return None


def first_named(pattern: str, about: About) -> str | None:
    """Return the first group that a pattern finds in the log."""
    found = about.first(pattern)
    return next(filter(None, found.groups()), None) if found else None


@FACTS.text(
    "machine.cudnn_package", "the package of cuDNN 9 for the CUDA of torch or of this machine"
)
def _cudnn_package(about: About) -> str | None:
    cuda = _torch_cuda(about) or used_cuda(about)
    return f"nvidia-cudnn-cu{major(cuda)}" if cuda and major(cuda) >= 12 else None


_TORCH_CUDA = (
    r"used to compile PyTorch \((\d+\.\d+)\)|torch\.version\.cuda\D{1,12}(\d+\.\d+)"
    r"|\btorch\b[^\n]{0,40}\d\+cu(\d{2,3})\b"
)
_USED_CUDA = (
    r"[/\\]cuda-(\d{1,2}\.\d)[/\\]|[/\\]CUDA[/\\]v(\d{1,2}\.\d)"
    r"|Cuda compilation tools, release (\d+\.\d+)|\bNVIDIA (\d{1,2}\.\d{1,2})\.\d"
)


def _nvcc(about: About, *, with_variables: bool = True) -> Path | None:
    from stoker.machine.cuda import find_nvccs
    from stoker.machine.file_tree import FileTree

    if not about.is_here:
        return None
    environment = about.here.environment
    if not with_variables:
        environment = {"PATH": environment.get("PATH", "")}
    nvccs = find_nvccs(FileTree(), environment)
    return next((found for path in nvccs if (found := _real_nvcc(path))), None)


def _real_nvcc(path: Path) -> Path | None:
    """Return the nvcc inside its toolkit: what is on the PATH may be a script that starts it."""
    real = path.resolve()
    try:
        with real.open("rb") as stream:
            begin = stream.read(_SCRIPT)
    except OSError:
        return None
    if begin.startswith(b"#!"):
        started = re.search(rb"(/[\w./+-]{1,200}/bin/nvcc)\b", begin)
        real = Path(started[1].decode()).resolve() if started else real
    return real if os.access(real, os.X_OK) else None


def _toolkit_version(home: Path) -> str | None:
    """Return the version that a toolkit states in a file, which is quicker than asking nvcc."""
    for name in ("version.json", "include/cuda_runtime_api.h"):
        try:
            text = (home / name).read_text(errors="replace")
        except OSError:
            continue
        if match := re.search(r'"cuda" : \{[^}]*"version" : "(\d+\.\d+)', text):
            return match[1]
        if match := re.search(r"#define CUDART_VERSION\s+(\d+)", text):
            number = int(match[1])
            return f"{number // 1000}.{number % 1000 // 10}"
    return None
