"""The small programs that a trial runs with the installed wheel.

Each prints what it found, and raises an exception if something is wrong.
"""

from typing import NamedTuple


class TrialProgram(NamedTuple):
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
