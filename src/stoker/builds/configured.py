"""Compares CMake's final settings with the requested ones, and finds the reason for a difference.

Pure but for ``probe_files``: texts go in.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from stoker.model.setting import is_on
from stoker.model.source import SourceTree
from stoker.model.value import Value
from stoker.outside.files import write_whole

_ANSWER = "stoker-settings.txt"
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_PREFIXES = ("USE_", "WITH_", "ENABLE_", "BUILD_")
_TELLING = re.compile(
    r"could not|not found|cannot find|missing|turning|disabl|switch|\boff\b|unavailable|without",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(r"Could NOT find (\w+)")
_MOST_LINES = 6


class SwitchedOff(Value, frozen=True, kw_only=True):
    """A setting that was requested but is off. ``lines`` are CMake's messages about it."""

    name: str
    lines: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()  # that CMake did not find, in small letters


def probe_files(folder: Path, names: Iterable[str]) -> Path:
    """Return a file for CMAKE_PROJECT_INCLUDE, which makes CMake write the final value of each
    name. A plain variable hides the cache entry, which keeps the requested value.
    """
    wanted = " ".join(name for name in names if _NAME.match(name))
    last, first = folder / "stoker-last.cmake", folder / "stoker-first.cmake"
    write_whole(
        last,
        f"""\
set(_stoker_text "")
foreach(_stoker_name IN ITEMS {wanted})
  string(APPEND _stoker_text "${{_stoker_name}}=${{${{_stoker_name}}}}\\n")
endforeach()
file(WRITE "${{CMAKE_BINARY_DIR}}/{_ANSWER}" "${{_stoker_text}}")
""",
    )
    write_whole(
        first,
        f"""\
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR AND NOT CMAKE_VERSION VERSION_LESS 3.19)
  cmake_language(DEFER CALL include "{last}")
endif()
""",
    )
    return first


def answer_file(build: Path) -> Path:
    return build / _ANSWER


def read_answer(text: str) -> dict[str, str]:
    lines = (line.partition("=") for line in text.splitlines())
    return {name: value for name, equals, value in lines if equals}


def switched_off(
    asked: Iterable[str], found: dict[str, str], log: str, tree: SourceTree
) -> tuple[SwitchedOff, ...]:
    """Return the names of ``asked`` that are off. A name without a known value is skipped."""
    return tuple(
        _judged(name, log, tree) for name in asked if name in found and not is_on(found[name])
    )


def _judged(name: str, log: str, tree: SourceTree) -> SwitchedOff:
    telling = [line.strip() for line in log.splitlines() if _TELLING.search(line)]
    about = [line for line in telling if _stem(name) in line.upper()]
    lines = list(dict.fromkeys(about or filter(_NOT_FOUND.search, telling)))[:_MOST_LINES]
    missing = [found.lower() for found in _NOT_FOUND.findall("\n".join(lines))]
    option = tree.option(name)
    if option and option.condition:
        lines.append(f"{name} needs {option.condition}")
    return SwitchedOff(
        name=name,
        lines=tuple(lines),
        libraries=tuple(dict.fromkeys([_stem(name).lower(), *missing])),
    )


def _stem(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.upper()
