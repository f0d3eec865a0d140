"""The environment of a stage: the plan's settings, and what makes builds repeatable."""

import re
from collections.abc import Mapping
from pathlib import Path

from stoker.model.plan import Plan

_FIRST_ZIP_CAN_SAY = 315532800  # 1980-01-01


def surroundings(
    base: Mapping[str, str],
    plan: Plan,
    *,
    maps: Mapping[Path, str],
    epoch: int | None,
) -> dict[str, str]:
    """Return the environment of a build. ``maps``: folders and their names in outputs. ``epoch``:
    the date of the source.
    """
    environment = dict(base) | {setting.name: setting.value for setting in plan.environment}
    environment.setdefault("SOURCE_DATE_EPOCH", str(epoch or _FIRST_ZIP_CAN_SAY))
    flags = " ".join(map_flags(maps))
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = f"{environment.get(name, '')} {flags}".strip()
    of_nvcc = [
        environment.get("NVCC_APPEND_FLAGS", ""),
        *(f"-Xcompiler={f}" for f in flags.split()),
    ]
    environment["NVCC_APPEND_FLAGS"] = " ".join(of_nvcc).strip()
    return environment


def map_flags(maps: Mapping[Path, str]) -> tuple[str, ...]:
    """Return the flags that map folder names; none for a name that a command line would split."""
    return tuple(
        f"-ffile-prefix-map={folder}={name}"
        for folder, name in maps.items()
        if not re.search(r"[\s=,\"'\\]", str(folder))
    )
