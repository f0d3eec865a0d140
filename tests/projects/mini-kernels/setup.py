"""A package with kernels that calls nvcc itself, as some do that know neither torch nor CMake."""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from tools.choices import archs, with_kernels

SOURCES = ("csrc/first.cu", "csrc/second.cu")


def targets():
    return [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs()]


class BuildKernels(build_ext):
    def build_extension(self, ext):
        Path(self.build_temp).mkdir(parents=True, exist_ok=True)
        objects = []
        for source in ext.sources:
            target = str(Path(self.build_temp) / f"{Path(source).name}.o")
            self.spawn(["nvcc", *targets(), "-Xcompiler", "-fPIC", "-c", source, "-o", target])
            objects.append(target)
        library = self.get_ext_fullpath(ext.name)
        Path(library).parent.mkdir(parents=True, exist_ok=True)
        self.spawn(["nvcc", *targets(), "-shared", *objects, "-o", library])


setup(
    name="mini-kernels",
    version="1.0",
    packages=["mini_kernels"],
    ext_modules=[Extension("mini_kernels._c", list(SOURCES))] if with_kernels() else [],
    cmdclass={"build_ext": BuildKernels},
)
