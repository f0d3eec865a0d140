"""Why CMake refuses a package that it found, and functions of a system that are in no C library."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import FoundCause
from stoker.diagnose.verdict import diagnose
from stoker.knowledge.owners import library_of_system

FOUND = "/src/mill/WheelConfig.cmake"
REFUSED = (  # and what its last lines add
    "CMake Error at CMakeLists.txt:212 (find_package):",
    "  Found package configuration file:",
    "",
    f"    {FOUND}",
    "",
    '  but it set Wheel_FOUND to FALSE so package "Wheel" is considered to be NOT',
    "  FOUND.{added}",
    "",
    "{reason}",
    "",
    "",
    "-- Configuring incomplete, errors occurred!",
)
DECLINED = (
    "CMake Warning at FindWheel.cmake:31 (find_package):",
    '  Could not find a configuration file for package "Wheel" that is compatible',
    '  with requested version "3.3.9".',
    "",
    "  The following configuration files were considered but not accepted:",
    "",
    "    /usr/share/cmake/WheelConfig.cmake, version: 5.0.1",
    "",
    "",
)


def refused(reason: str = "") -> list[str]:
    added = "  Reason given by package:" if reason else ""
    return [line.format(added=added, reason=f"  {reason}" if reason else "") for line in REFUSED]


def first(*lines: str) -> FoundCause | None:
    findings = diagnose(read_log(BytesIO("\n".join(lines).encode()))).findings
    return findings[0] if findings else None


def test_a_package_that_refuses_gives_its_reason() -> None:
    found = first(*refused("Wheel needs water."))
    assert found is not None
    assert (found.cause, found.title) == (
        "cmake-package-refuses",
        "Wheel is there and refuses: Wheel needs water",
    )


def test_the_reason_of_a_package_is_in_its_warning_above() -> None:
    warning = (
        f"CMake Warning at {FOUND}:190 (message):",
        "  Found Wheel, but it has no binaries compatible with your",
        "  configuration.",
        "",
    )
    found = first(*warning, *refused())
    assert found is not None
    reason = "Found Wheel, but it has no binaries compatible with your configuration"
    assert found.title.endswith(reason)
    assert first(*refused()) is None


def test_what_a_package_lacks_is_named_in_the_fix() -> None:
    reason = "Wheel could not be found because dependency Eigen3 could not be found."
    found = first(*refused(reason))
    assert found is not None
    assert "Eigen3" in found.advice[0].text


@pytest.mark.parametrize(("named", "cause"), [("Wheel", "version-not-accepted"), ("Mill", "")])
def test_a_version_that_a_warning_declines_is_the_cause_of_the_error_below(
    named: str, cause: str
) -> None:
    error = (
        "CMake Error at FindWheel.cmake:35 (message):",
        f"  WATER_DIR is not provided, and {named} is not there as a package.",
        "",
        "",
        "-- Configuring incomplete, errors occurred!",
    )
    found = first(*DECLINED, *error)
    assert found is not None
    assert (found.cause == "version-not-accepted") is bool(cause)


LD = "D:/msys64/ucrt64/bin/ld.exe: a.o:a.c:(.text+0x1): undefined reference to `{}'"
LINK = "a.obj : error LNK2019: unresolved external symbol {} referenced in function grind"


@pytest.mark.parametrize(
    ("line", "symbol", "library"),
    [
        (LD, "__imp_WSAStartup", "ws2_32"),
        (LD, "WSAStartup", "ws2_32"),
        (LINK, "__imp_BCryptGenRandom", "bcrypt"),
        (LINK, "__imp__timeGetTime@0", "winmm"),
        ("/usr/bin/ld: a.o: undefined reference to `{}'", "connect", None),
        (LD, "__imp_mill_grind", None),
        ('  "_{}", referenced from:', "libintl_gettext", "intl"),
        ("/usr/bin/ld: a.o: undefined reference to `{}'", "libintl_gettext", None),
    ],
)
def test_a_function_of_a_system_is_in_a_library_of_it(
    line: str, symbol: str, library: str | None
) -> None:
    assert library_of_system(symbol, line.format(symbol)) == library


def test_a_link_without_a_library_of_windows_is_told_which() -> None:
    found = first(LINK.format("__imp_BCryptGenRandom"), "a.exe : fatal error LNK1120: 1")
    assert found is not None
    assert (found.cause, "bcrypt" in found.title) == ("library-not-linked", True)
