"""Where a PyTorch tree says which architectures it accepts."""


def _get_cuda_arch_flags():
    supported_arches = ["5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0"]
    return supported_arches + [arch + "+PTX" for arch in supported_arches]
