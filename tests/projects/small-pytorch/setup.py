"""The front end of releases up to 2.13, reduced to what matters: CMake before setuptools."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup

ROOT = Path(__file__).parent.absolute()
BUILD = ROOT / "build"
CMAKE_ONLY = "--cmake-only" in sys.argv
sys.argv = [word for word in sys.argv if word != "--cmake-only"]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


def build_libraries():
    if not (BUILD / "CMakeCache.txt").exists() or not (BUILD / "build.ninja").exists():
        options = [
            f"-D{name}={value}"
            for name, value in os.environ.items()
            if name.startswith(("BUILD_", "USE_", "CMAKE_")) or name == "BLAS"
        ]
        prefix = f"-DCMAKE_INSTALL_PREFIX={ROOT / 'torch'}"
        BUILD.mkdir(exist_ok=True)
        subprocess.check_call(["cmake", "-GNinja", prefix, *options, str(ROOT)], cwd=BUILD)
    if CMAKE_ONLY:
        sys.exit()
    subprocess.check_call(["cmake", "--build", ".", "--target", "install"], cwd=BUILD)


if "egg_info" not in sys.argv and "dist_info" not in sys.argv:
    build_libraries()
setup(
    name="torch",
    version=os.environ.get("PYTORCH_BUILD_VERSION", "2.6.0"),
    packages=["torch", "torch.utils"],
    package_data={"torch": ["lib/*.so"]},
    distclass=Binary,
)
