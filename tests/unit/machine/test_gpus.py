"""NVML through a small library of the same interface, loaded in place of the driver's own."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from conftest import find_tool
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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(DRIVER)
    words = [find_tool("cc"), "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "nvml.c"]
    subprocess.run(words, cwd=folder, check=True)
    return folder


def card(index: int, memory: int = 32 << 30) -> Gpu:
    return Gpu(
        index=index,
        name=f"Card {index + 1}",
        capability=f"12.{index}",
        memory=memory,
        driver="580.65.06",
    )


@pytest.mark.parametrize(
    ("how", "gpus", "notes"),
    [
        ("well", [card(0), card(1)], []),
        ("lost", [card(0)], ["GPU 1 does not answer: GPU is lost"]),
        ("shared memory", [card(0, memory=0), card(1, memory=0)], []),
        ("not loaded", [], ["the NVIDIA driver does not answer: Driver Not Loaded"]),
        ("no list", [], ["the NVIDIA driver does not list its GPUs: Unknown Error"]),
    ],
)
def test_a_driver(
    library: Path, tmp_path: Path, how: str, gpus: list[Gpu], notes: list[str]
) -> None:
    closed = tmp_path / "closed"
    driver = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": how, "FAKE_NVML_CLOSED": str(closed)}
    command = [sys.executable, "-c", READ]
    printed = subprocess.check_output(command, env={**os.environ, **driver})
    assert closed.exists() == (how != "not loaded")
    assert msgspec.json.decode(printed, type=tuple[list[Gpu], list[str]]) == (gpus, notes)


def test_without_a_driver_there_is_nothing_to_say() -> None:
    notes: list[str] = []
    gpus = nvidia_gpus(notes.append)
    if gpus:
        pytest.skip("this machine has a GPU")
    assert notes == []
