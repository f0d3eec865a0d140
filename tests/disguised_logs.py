"""Variations of a log, as other terminals, CI systems and parallel builds print it."""

import html
import random
import re
from collections.abc import Callable

Disguise = Callable[[list[str], random.Random], list[str]]

_NOISE = (
    "[ 37%] Building CXX object caffe2/CMakeFiles/torch_cpu.dir/__/aten/ATen/Sorting.cpp.o",
    "[412/6896] Linking CXX static library lib/libgtest.a",
    "/home/ci/pytorch/c10/Exception.h:471:9: warning: unused variable 'error' [-Wunused]",
    "  471 |   auto error = what();",
    "      |        ^~~~~",
    "-- Performing Test HAVE_POSIX_REGEX - Failed to compile",
    "copying torch/errors.py -> build/lib/torch",
    "In file included from /home/ci/pytorch/aten/src/ATen/core/Tensor.h:3,",
    "ptxas info    : Used 40 registers, 400 bytes cmem[0]",
    "Scanning dependencies of target error_handling",
    "",
)


def time_stamps(lines: list[str], _: random.Random) -> list[str]:
    return [
        f"2025-03-14T09:{i // 60 % 60:02}:{i % 60:02}.1234567Z {x}" for i, x in enumerate(lines)
    ]


def clock(lines: list[str], _: random.Random) -> list[str]:
    return [f"[09:{i // 60 % 60:02}:{i % 60:02}] {line}" for i, line in enumerate(lines)]


def job_and_step(lines: list[str], _: random.Random) -> list[str]:
    return [f"build (12.4)\tRun make\t2025-03-14T09:26:53.1234567Z {line}" for line in lines]


def docker(lines: list[str], _: random.Random) -> list[str]:
    return [f"#14 {i * 0.37:.3f} {line}" for i, line in enumerate(lines)]


def team_city(lines: list[str], _: random.Random) -> list[str]:
    return [f"[09:26:{i % 60:02}] :\t [Step 2/3] {line}" for i, line in enumerate(lines)]


def kubernetes(lines: list[str], _: random.Random) -> list[str]:
    return [f"2025-03-14T09:26:53.{i:09}Z stdout F {line}" for i, line in enumerate(lines)]


def journal(lines: list[str], _: random.Random) -> list[str]:
    return [f"Mar 14 09:26:{i % 60:02} mill make[123]: {line}" for i, line in enumerate(lines)]


def elapsed(lines: list[str], _: random.Random) -> list[str]:
    return [f"[{i * 0.37:9.3f}] {line}" for i, line in enumerate(lines)]


def source_of_a_page(lines: list[str], _: random.Random) -> list[str]:
    return [html.escape(line) for line in lines]


def pip(lines: list[str], _: random.Random) -> list[str]:
    return [f"      {line}" for line in lines]


def percent(lines: list[str], _: random.Random) -> list[str]:
    return [f"[ 12%] {line}" for line in lines]


def colours(lines: list[str], _: random.Random) -> list[str]:
    """Add the colour codes of gcc and clang, and those for terminals."""
    found = [re.sub(r"(error|warning|fatal|Error)", "\x1b[1;31m\\1\x1b[0m", line) for line in lines]
    return [f"\x1b[K{line}\x1b[m\x1b[K" for line in found]


def carriage_returns(lines: list[str], _: random.Random) -> list[str]:
    return [f"{line}\r" for line in lines]


def other_places(lines: list[str], _: random.Random) -> list[str]:
    places = {"/src/": "/mnt/d/work/", "/usr/local/cuda": "/opt/nvidia/cuda", "/env/": "/home/a b/"}
    for old, new in places.items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def interleaved(lines: list[str], chance: random.Random) -> list[str]:
    mixed = []
    for line in lines:
        mixed += chance.choices(_NOISE, k=chance.choice((0, 0, 1, 2)))
        mixed.append(line)
    return mixed


def buried(lines: list[str], chance: random.Random) -> list[str]:
    """Add thousands of build lines before the failure and hundreds of other jobs after it."""
    return [*chance.choices(_NOISE, k=3000), *lines, *chance.choices(_NOISE, k=200)]


DISGUISES: tuple[Disguise, ...] = (
    time_stamps,
    clock,
    job_and_step,
    docker,
    pip,
    percent,
    colours,
    carriage_returns,
    other_places,
    interleaved,
    buried,
)
# What other CI systems and pages add; apart, so that the draws among the others stay as they are.
OF_OTHERS: tuple[Disguise, ...] = (team_city, kubernetes, journal, elapsed, source_of_a_page)
