"""NVIDIA GPUs, read from the driver's own library. Without a driver there are no GPUs."""

from collections.abc import Callable

from stoker.model.machine import Gpu


def read_gpus(note: Callable[[str], None]) -> tuple[Gpu, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return ()
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not answer: {error}")
        return ()
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        gpus = [_read_gpu(index, driver, note) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        note(f"the NVIDIA driver does not list its GPUs: {error}")
        return ()
    finally:
        pynvml.nvmlShutdown()
    return tuple(gpu for gpu in gpus if gpu is not None)


def _read_gpu(index: int, driver: str, note: Callable[[str], None]) -> Gpu | None:
    """Return a GPU, or ``None`` if it has dropped off the bus: the other GPUs still work."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        note(f"GPU {index} does not answer: {error}")
        return None
    return Gpu(
        index=index,
        name=name,
        capability=f"{major}.{minor}",
        memory=_read_memory(handle),
        driver=driver,
    )


def _read_memory(handle: object) -> int:
    """Return the memory of a GPU; 0 if it shares the machine's memory and reports no size."""
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return 0
