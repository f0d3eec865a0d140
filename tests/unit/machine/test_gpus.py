"""NVML through a small library of the same interface, loaded in place of the driver's own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stoker.machine.gpus import nvidia_gpus
from stoker.model.machine import Gpu

# How the driver behaves is in $FAKE_NVML; that it was shut down, it writes to $FAKE_NVML_CLOSED.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int behaves(const char *word) { return strcmp(getenv("FAKE_NVML"), word) == 0; }

int nvmlInitWithFlags(unsigned flags) { return behaves("not loaded") ? 9 : 0; }
int nvmlShutdown(void) {
    FILE *file = fopen(getenv("FAKE_NVML_CLOSED"), "w");
    fputs("closed", file);
    return fclose(file);
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.65.06");
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return behaves("no list") ? 999 : 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(index + 1);
    return index == 1 && behaves("lost") ? 15 : 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = 12;
    *minor = (int)(unsigned long)device - 1;
    return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "Card %lu", (unsigned long)device);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 34359738368ull;
    return behaves("shared memory") ? 3 : 0;
}
"""
READ = """
import msgspec
from stoker.machine.gpus import nvidia_gpus
notes = []
gpus = nvidia_gpus(notes.append)
print(msgspec.json.encode([gpus, notes]).decode())
"""

Behave = Callable[[str], tuple[list[Gpu], list[str]]]


@pytest.fixture
def driver(tmp_path: Path, need: Callable[[str], str]) -> Behave:
    source = tmp_path / "nvml.c"
    source.write_text(DRIVER)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([need("cc"), "-shared", "-fPIC", "-o", library, source], check=True)

    def behave(how: str) -> tuple[list[Gpu], list[str]]:
        closed = tmp_path / "closed"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(tmp_path),
            "FAKE_NVML": how,
            "FAKE_NVML_CLOSED": str(closed),
        }
        command = [sys.executable, "-c", READ]
        printed = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
        assert closed.exists() == (how != "not loaded")
        return msgspec.json.decode(printed, type=tuple[list[Gpu], list[str]])

    return behave


def card(index: int, memory: int = 32 << 30) -> Gpu:
    return Gpu(
        index=index,
        name=f"Card {index + 1}",
        capability=f"12.{index}",
        memory=memory,
        driver="580.65.06",
    )


def test_two_gpus(driver: Behave) -> None:
    assert driver("well") == ([card(0), card(1)], [])


def test_one_that_is_lost_does_not_hide_the_other(driver: Behave) -> None:
    gpus, notes = driver("lost")
    assert gpus == [card(0)]
    assert notes == ["GPU 1 does not answer: GPU is lost"]


def test_one_that_shares_the_machines_memory(driver: Behave) -> None:
    assert driver("shared memory") == ([card(0, memory=0), card(1, memory=0)], [])


def test_a_driver_that_is_not_loaded(driver: Behave) -> None:
    gpus, notes = driver("not loaded")
    assert gpus == []
    assert notes == ["the NVIDIA driver does not answer: Driver Not Loaded"]


def test_a_driver_that_lists_nothing(driver: Behave) -> None:
    gpus, notes = driver("no list")
    assert gpus == []
    assert notes == ["the NVIDIA driver does not list its GPUs: Unknown Error"]


def test_without_a_driver_there_is_nothing_to_say() -> None:
    notes: list[str] = []
    gpus = nvidia_gpus(notes.append)
    if gpus:
        pytest.skip("this machine has a GPU")
    assert notes == []
