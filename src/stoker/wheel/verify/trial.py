"""Installs a wheel with its requirements in a new virtual environment and uses it.

Every step yields a finding with the last line of its output as evidence. A step that needs a tool
which this machine lacks yields a note. Steps that depend on a failed one are skipped.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging import tags

from stoker.machine.installers import pip_in
from stoker.model.errors import MissingError, UsageError
from stoker.model.finding import Finding, Severity, error, note, ok
from stoker.outside import process
from stoker.outside.process import Argument, CommandResult
from stoker.wheel.inspect.origins import installed_path
from stoker.wheel.verify.tested import WheelUnderTest

_INSTALL_TIMEOUT_S, _BUILD_TIMEOUT_S, _STEP_TIMEOUT_S = 1800.0, 900.0, 300.0
_TAIL = 15  # lines of output in the evidence of an error
_LONGEST = 80  # characters of the evidence if the step succeeds

_CPYTHON = re.compile(r"cp(\d)(\d+)")
_MODULE = re.compile(r"([A-Za-z]\w*)(?:/__init__)?(?:\.py|\.(?:cpython-|abi3|so)\S*)")
# These could give the trial access to files outside its environment.
_OUTSIDE = ("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CMAKE_PREFIX_PATH")


class TrialProgram(NamedTuple):
    """A small program that prints what it found, and raises an exception if something is wrong."""

    name: str
    title: str
    code: str


IMPORT_TORCH = TrialProgram("trial-import", "torch can be imported", "import torch")

# Packaging may change the local version label, so torch.__version__ may have another one or none.
TORCH = (
    TrialProgram(
        "trial-version",
        "torch.__version__ matches the wheel",
        """
from importlib.metadata import version
import torch
told, installed = torch.__version__, version("torch")
print(told)
assert told.partition("+")[0] == installed.partition("+")[0], f"installed as {installed}"
""",
    ),
    TrialProgram(
        "trial-configuration",
        "torch.__config__ describes the build",
        """
import torch
shown = torch.__config__.show()
print(shown)
assert "built with" in shown
""",
    ),
    TrialProgram(
        "trial-matmul",
        "a matrix product is correct",
        """
import torch
torch.manual_seed(0)
a, b = torch.rand(65, 129), torch.rand(129, 33)
exact = (a.double()[:, :, None] * b.double()[None]).sum(1)
error = ((a @ b).double() - exact).abs().max().item()
print(f"largest error {error:.1e}")
assert error < 1e-3
""",
    ),
    TrialProgram(
        "trial-autograd",
        "a gradient is correct",
        """
import torch
x = torch.linspace(-2, 2, 101, dtype=torch.float64, requires_grad=True)
(x**3 + torch.sin(x)).sum().backward()
error = (x.grad - (3 * x**2 + torch.cos(x))).abs().max().item()
print(f"largest error {error:.1e}")
assert error < 1e-12
""",
    ),
)

# Read from the library itself, because torch.cuda.get_arch_list() is empty without a GPU.
ARCHITECTURES = TrialProgram(
    "trial-architectures",
    "the wheel holds all architectures that torch lists",
    """
import sys, torch
listed = torch._C._cuda_getArchFlags().split()
print(*listed)
absent = sorted(set(listed) - set(sys.argv[1:]))
assert not absent, f"not in the wheel: {' '.join(absent)}"
""",
)

GPU = TrialProgram(
    "trial-gpu",
    "torch computes on this machine's GPU",
    """
import torch
print(torch.cuda.get_device_name(), "has capability", *torch.cuda.get_device_capability())
x = torch.arange(1000.0, device="cuda")
assert (x * 2).sum().item() == 999000.0
a = torch.rand(64, 64, device="cuda")
assert torch.allclose((a @ a).cpu(), a.cpu() @ a.cpu(), atol=1e-2)
print("computes")
""",
)

NO_KERNEL_IMAGE = "no kernel image is available"  # the driver's message if code for a GPU is absent

EXTENSION = TrialProgram(
    "trial-extension",
    "a C++ extension compiles and runs",
    """
import torch
from torch.utils.cpp_extension import load_inline
source = "torch::Tensor twice(const torch::Tensor& x) { return x + x; }"
built = load_inline(name="stoker_trial", cpp_sources=[source], functions=["twice"])
assert built.twice(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
print("compiled, loaded and called")
""",
)

NO_CUDA_TOOLKIT = "uses CUDA but I cannot find the CUDA"  # printed by PyTorch's CMake package

CMAKE_PREFIX = "import torch; print(torch.utils.cmake_prefix_path)"

CMAKE_PROJECT = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.18)
project(trial CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Torch REQUIRED)
add_executable(trial trial.cpp)
target_link_libraries(trial ${TORCH_LIBRARIES})
""",
    "trial.cpp": """\
#include <iostream>
#include <torch/torch.h>
int main() {
  auto x = torch::ones({3}, torch::requires_grad());
  (x * x).sum().backward();
  std::cout << "gradient " << x.grad().sum().item<float>() << std::endl;
  return x.grad().sum().item<float>() == 6.0f ? 0 : 1;
}
""",
}


def fitting_python(tested: WheelUnderTest) -> str:
    """Return the path of an interpreter on this machine that can install the wheel."""
    told = tested.tags
    if told & frozenset(tags.sys_tags()):
        return sys.executable
    platforms = {tag.platform for tag in told}
    if platforms.isdisjoint((*tags.platform_tags(), "any")):
        raise UsageError(
            f"{tested.file_name} cannot run here: it is for {' '.join(sorted(platforms))}, "
            f"this machine is {next(iter(tags.platform_tags()))}",
            hints=["leave out --run: the other checks work on any machine"],
        )
    matches = (_CPYTHON.fullmatch(tag.interpreter) for tag in told)
    for version in sorted({(int(one[1]), int(one[2])) for one in matches if one}, reverse=True):
        found = shutil.which(f"python{version[0]}.{version[1]}")
        supported = (*tags.cpython_tags(version), *tags.compatible_tags(version))
        if found and not told.isdisjoint(supported):
            return found
    wanted = " ".join(sorted({tag.interpreter for tag in told}))
    raise MissingError(
        f"no Python for {wanted} is on the PATH, so {tested.file_name} cannot be installed",
        hints=["install that Python, or leave out --run"],
    )


def try_wheel(
    wheel: Path,
    tested: WheelUnderTest,
    *,
    python: str,
    gpus: Sequence[str],
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Yield a finding for each step. ``gpus`` are the capabilities of this machine's GPUs."""
    with tempfile.TemporaryDirectory(prefix="stoker-trial-") as folder:
        trial = _Trial(Path(folder), tested, environment)
        installed = trial.install(wheel, python)
        yield installed
        if installed.severity is Severity.ERROR:
            return
        steps = trial.torch(gpus) if tested.project == "torch" else trial.imports()
        yield from steps


class _Trial:
    def __init__(self, folder: Path, tested: WheelUnderTest, environment: Mapping[str, str]):
        self._folder = folder
        self._tested = tested
        self._python = folder / "environment" / "bin" / "python"
        kept = {
            name: value
            for name, value in environment.items()
            if name not in _OUTSIDE and not name.startswith("PYTHON")
        }
        path = f"{self._python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        # pip and compilers that are killed leave their temporary files.
        temporary = folder / "tmp"
        temporary.mkdir()
        self._environment = {
            **kept,
            "PATH": path,
            "TORCH_EXTENSIONS_DIR": str(folder / "built"),
            "TMPDIR": str(temporary),
        }

    def install(self, wheel: Path, python: str) -> Finding:
        made = self._run([python, "-m", "venv", self._folder / "environment"], _STEP_TIMEOUT_S)
        if not made.ok:
            return _finding("trial-install", "a virtual environment can be created", made)
        done = self._pip("install", str(wheel.absolute()))
        if done.ok:
            done = self._pip("check")
        return _finding("trial-install", "the wheel installs with its requirements", done)

    def imports(self) -> Iterator[Finding]:
        names = top_modules([member.name for member in self._tested.members])
        if not names:
            yield _not_tried("trial-import", "it can be imported", "it contains no module")
        for name in names:
            yield self._program(
                TrialProgram(f"trial-import-{name}", f"{name} can be imported", f"import {name}")
            )

    def torch(self, gpus: Sequence[str]) -> Iterator[Finding]:
        imported = self._program(IMPORT_TORCH)
        yield imported
        if imported.severity is Severity.ERROR:
            return
        for program in TORCH:
            yield self._program(program)
        yield from self._device_code(gpus)
        yield self._extension()
        yield self._cmake()

    def _device_code(self, gpus: Sequence[str]) -> Iterator[Finding]:
        present = {code.arch for one in self._tested.libraries for code in one.device_code}
        if not present:
            return
        yield self._program(ARCHITECTURES, *sorted(present))
        if gpus:
            yield judged_gpu(self._run_program(GPU), gpus, present)
        else:
            yield _not_tried(GPU.name, GPU.title, "this machine has no GPU")

    def _extension(self) -> Finding:
        name, title, _ = EXTENSION
        if not self._which("c++"):
            return _not_tried(name, title, "this machine has no C++ compiler")
        ninja = self._which("ninja") or self._which("ninja-build")
        if ninja:  # under the name that PyTorch looks for
            (self._python.parent / "ninja").symlink_to(ninja)
        imported = self._run([self._python, "-I", "-c", "import setuptools"], _STEP_TIMEOUT_S)
        for package, is_here in (("ninja", bool(ninja)), ("setuptools", imported.ok)):
            if not is_here and not (done := self._pip("install", package)).ok:
                said = "".join(done.stderr.strip().splitlines()[-1:])
                return _not_tried(name, title, f"{package} cannot be installed: {said}")
        return self._program(EXTENSION, timeout=_BUILD_TIMEOUT_S)

    def _cmake(self) -> Finding:
        name, title = "trial-cmake", "a CMake project finds and uses torch"
        cmake, project = self._which("cmake"), self._folder / "project"
        if not cmake or not self._which("c++"):
            return _not_tried(name, title, "this machine has no CMake or no C++ compiler")
        if any(one.device_code for one in self._tested.libraries) and not self._which("nvcc"):
            return _not_tried(name, title, "find_package(Torch) needs nvcc, which was not found")
        prefix = self._run([self._python, "-I", "-c", CMAKE_PREFIX], _STEP_TIMEOUT_S).stdout.strip()
        project.mkdir()
        for file, content in CMAKE_PROJECT.items():
            (project / file).write_text(content)
        build = project / "build"
        options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPython_EXECUTABLE={self._python}"]
        commands: tuple[Sequence[Argument], ...] = (
            [cmake, "-S", project, "-B", build, *options],
            [cmake, "--build", build],
            [build / "trial"],
        )
        for command in commands:
            done = self._run(command, _BUILD_TIMEOUT_S)
            if not done.ok:
                break
        if NO_CUDA_TOOLKIT in done.stderr:
            return _not_tried(name, title, "find_package(Torch) needs a complete CUDA toolkit")
        return _finding(name, title, done)

    def _program(
        self, program: TrialProgram, *arguments: str, timeout: float = _STEP_TIMEOUT_S
    ) -> Finding:
        done = self._run_program(program, *arguments, timeout=timeout)
        return _finding(program.name, program.title, done)

    def _run_program(
        self, program: TrialProgram, *arguments: str, timeout: float = _STEP_TIMEOUT_S
    ) -> CommandResult:
        return self._run([self._python, "-I", "-c", program.code, *arguments], timeout)

    def _pip(self, *arguments: str) -> CommandResult:
        return self._run([*pip_in(str(self._python)), *arguments, "--quiet"], _INSTALL_TIMEOUT_S)

    def _run(self, command: Sequence[Argument], timeout: float) -> CommandResult:
        return process.run(command, timeout=timeout, env=self._environment, cwd=self._folder)

    def _which(self, tool: str) -> str | None:
        """Find a tool on the PATH or next to our interpreter, where stoker[tools] installs it."""
        beside = str(Path(sys.executable).parent)
        return shutil.which(tool, path=f"{self._environment['PATH']}{os.pathsep}{beside}")


def top_modules(members: Sequence[str]) -> list[str]:
    """Return the modules that users import: top-level and not private."""
    found = (_MODULE.fullmatch(installed_path(member)) for member in members)
    return sorted({match[1] for match in found if match and match[1] not in ("test", "tests")})


def judged_gpu(outcome: CommandResult, gpus: Sequence[str], present: Collection[str]) -> Finding:
    """Return the finding for the GPU program, which explains missing device code."""
    name, title, _ = GPU
    if outcome.ok or NO_KERNEL_IMAGE not in outcome.stdout + outcome.stderr:
        return _finding(name, title, outcome)
    said = next(
        line for line in (outcome.stdout + outcome.stderr).splitlines() if NO_KERNEL_IMAGE in line
    )
    here = ", ".join(f"sm_{gpu.replace('.', '')}" for gpu in sorted(set(gpus)))
    return error(
        name,
        f"it holds no device code for this machine's GPU, {here}",
        evidence=f"it holds {' '.join(sorted(present))}\n{said.strip()}",
        fix=("stoker slim ORIGINAL_WHEEL --for native",),
    )


def _finding(name: str, title: str, outcome: CommandResult) -> Finding:
    if outcome.ok:
        last = "".join(outcome.stdout.splitlines()[-1:]).strip()
        return ok(name, title, evidence=last[:_LONGEST])
    printed = (outcome.stdout + outcome.stderr).strip().splitlines()
    lines = [outcome.problem or "", *printed[-_TAIL:]]
    return error(name, f"failed: {title}", evidence="\n".join(lines))


def _not_tried(name: str, title: str, why: str) -> Finding:
    return note(name, f"skipped: {title}", evidence=why)
