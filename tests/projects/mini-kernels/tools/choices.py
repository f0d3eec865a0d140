import os


def flag(name, default):
    return os.environ.get(name, default) == "1"


def with_kernels():
    return flag("MINI_BUILD_KERNELS", "1")


def archs():
    return (os.environ.get("MINI_GPU_ARCHS") or "75;80").split(";")
