"""Which back ends the files of a tree show: by options, languages, comparisons and extensions.

What they do not show is not denied: a variable whose name speaks of a back end is a hint.
"""

import re
from collections.abc import Iterator

from stoker.model.recipe import ProjectRecipe
from stoker.model.source import CMakeOption, CompiledCode, ReadVariable
from stoker.model.variant import BACKEND_WORDS, Backend, are_backends
from stoker.source.asks import PythonAsks
from stoker.source.files import TreeFiles
from stoker.source.options import CMakeFacts

# What setup.py uses of torch if it also builds with HIP, in place of CUDA.
_OF_ROCM = {"ROCM_HOME", "HIP_HOME", "IS_HIP_EXTENSION", "hip", "is_rocm_pytorch"}
_GPU_CHOICES = {"CUDA", "HIP", "ROCM", "SYCL", "XPU", "VULKAN", "METAL", "MPS"}
_SUFFIXES = {Backend.CUDA: (".cu",), Backend.ROCM: (".hip",), Backend.XPU: (".sycl",)}
_BUILD_FILE = re.compile(
    r"CMakeLists\.txt|.*\.(?:cmake|mk)|(?:GNUm|m|M)akefile|meson\.build|meson[._]options(?:\.txt)?"
    r"|setup\.(?:py|cfg)|build\.rs|Cargo\.toml"
)
# What is no part of a build, or of another one.
_BESIDE = re.compile(r"(?:^|/)(?:tests?|examples?|benchmarks?|docs?|docker|ci)/", re.IGNORECASE)
_GPU_SWITCH = re.compile(r"(?:\w+_)?(?:GPU|CUDA|HIP|ROCM|SYCL)", re.IGNORECASE)


def back_ends(
    files: TreeFiles,
    code: CompiledCode,
    cmake: CMakeFacts,
    asks: tuple[ReadVariable, ...],
    python: PythonAsks,
    recipe: ProjectRecipe | None,
    *,
    by_cmake: bool,
) -> tuple[str, ...]:
    """Return the back ends of the recipe, or else those that the tree's files speak of."""
    if recipe and recipe.backends:
        return tuple(backend.value for backend in Backend if backend in recipe.backends)
    if not code.compiles:
        return tuple(backend.value for backend in Backend)  # the same files for all of them
    options = {option.name for option in cmake.options}
    chosen = {choice.upper() for option in cmake.options for choice in option.choices}
    chosen |= {word.upper() for ask in asks if are_backends(ask.compared) for word in ask.compared}
    used = python.names
    # An extension that only knows CUDAExtension, and never leaves it out, needs nvcc.
    only_cuda = "CUDAExtension" in used and not used & {"CppExtension", "Extension"}
    only_cuda &= code.without_cuda is None
    optional = "CUDA" in chosen or _switchable(options, "CUDA")
    # A project below the root may be a part that setup.py leaves out without CUDA.
    part = cmake.project is None and bool(used & {"CppExtension", "Extension"})
    only_cuda |= by_cmake and cmake.requires_cuda and not optional and not part
    only_gpus = by_cmake and not any(_GPU_SWITCH.fullmatch(name) for name in options)
    only_gpus &= any(map(_chooses_a_gpu, cmake.options))
    device = code.device_source is not None
    possible = {
        Backend.CPU: not only_cuda and not only_gpus,
        Backend.CUDA: "USE_CUDA" in options
        or "CUDA" in cmake.gpu_languages | chosen
        or "CUDAExtension" in used
        or device
        or any("CUDA_ARCH" in ask.name for ask in python.asks)
        or _switchable(options, *BACKEND_WORDS[Backend.CUDA]),
        Backend.ROCM: "USE_ROCM" in options
        or bool({"HIP", "ROCM"} & (cmake.gpu_languages | chosen))
        or (device and bool(used & _OF_ROCM))
        or _switchable(options, *BACKEND_WORDS[Backend.ROCM]),
        Backend.XPU: "SyclExtension" in used or _shown(Backend.XPU, options, chosen),
        Backend.MPS: files.is_filled("aten/src/ATen/mps") or _shown(Backend.MPS, options, chosen),
        Backend.VULKAN: _shown(Backend.VULKAN, options, chosen),
    }
    return tuple(backend.value for backend, built in possible.items() if built)


def _shown(backend: Backend, options: set[str], chosen: set[str]) -> bool:
    words = BACKEND_WORDS[backend]
    return bool(chosen & set(words)) or _switchable(options, *words)


def hinted_back_ends(
    files: TreeFiles, asks: tuple[ReadVariable, ...], shown: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the back ends of which only a name or a file speaks: the variable ``CUDA_PATH``, a word
    of a Makefile, a source for GPUs.
    """
    own = [file for file in files.walk() if not _BESIDE.search(file)]
    texts = {file: files.text(file) or "" for file in own if _describes_build(file)}
    for backend, words in BACKEND_WORDS.items():
        if backend not in shown and (hint := _hint(backend, words, asks, own, texts)):
            yield backend.value, hint


def _hint(
    backend: Backend,
    words: tuple[str, ...],
    asks: tuple[ReadVariable, ...],
    own: list[str],
    texts: dict[str, str],
) -> str | None:
    named = re.compile(rf"(?:^|_)(?:{'|'.join(words)})(?:_|$)")
    for ask in asks:
        if ask.certain and named.search(ask.name):
            return f"{ask.where} reads {ask.name}"
    if backend not in _SUFFIXES:
        return None  # words such as Metal and Vulkan have other meanings
    for file in own:
        if file.endswith(_SUFFIXES[backend]):
            return f"{file} is a source for it"
    spoken = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(words)})(?![A-Za-z])", re.IGNORECASE)
    for file, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if found := spoken.search(line.partition("#")[0]):
                return f"{file}:{number} speaks of {found[0]}"
    return None


def _describes_build(file: str) -> bool:
    """Tell whether a file near the root says how the tree is built."""
    return file.count("/") <= 1 and bool(_BUILD_FILE.fullmatch(file.rpartition("/")[2]))


def _chooses_a_gpu(option: CMakeOption) -> bool:
    """Tell whether an option is always a choice among GPUs."""
    choices = {choice.upper() for choice in option.choices}
    return option.within is None and len(choices) > 1 and choices <= _GPU_CHOICES


def _switchable(options: set[str], *words: str) -> bool:
    """Tell whether an option switches a back end on, by its name: ``GGML_CUDA``."""
    return any(name.upper().endswith(tuple(f"_{word}" for word in words)) for name in options)
