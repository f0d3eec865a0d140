"""A small extension: on the CPU always, on the GPU where torch and a compiler can."""

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

VERSION = "0.3.1"

extension = (
    CUDAExtension(
        "mini_extension._C",
        ["csrc/scale.cpp", "csrc/scale_kernel.cu"],
        define_macros=[("WITH_CUDA", None)],
    )
    if CUDA_HOME and torch.version.cuda
    else CppExtension("mini_extension._C", ["csrc/scale.cpp"])
)

setup(
    name="mini-extension",
    version=VERSION,
    packages=["mini_extension"],
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)
