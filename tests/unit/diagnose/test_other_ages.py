"""Source and library of different ages, told by arguments, types and copies in the tree."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, Status
from stoker.diagnose.verdict import diagnose


def diagnosis(*lines: str) -> Diagnosis:
    return diagnose(read_log(BytesIO("\n".join(lines).encode())))


def test_shifted_arguments_of_an_installed_function_are_no_strictness() -> None:
    found = diagnosis(
        "mill.c:20:5: error: incompatible type for argument 3 of 'slgrind'",
        (
            "/usr/include/sluice-2.0/sluice/grind.h:31:6: note: expected 'slpace' {aka 'double'} "
            "but argument is of type 'List *'"
        ),
        (
            "mill.c:20:9: error: passing argument 4 of 'slgrind' from incompatible pointer type"
            " [-Wincompatible-pointer-types]"
        ),
        "make: *** [Makefile:3: mill.o] Error 1",
    )
    assert found.findings[0].cause == "dependency-api-changed"
    assert "sluice 2.0" in found.findings[0].title


def test_one_pointer_of_another_type_is_strictness() -> None:
    found = diagnosis(
        (
            "mill.c:20:9: error: passing argument 1 of 'slgrind' from incompatible pointer type"
            " [-Wincompatible-pointer-types]"
        ),
        (
            "/usr/include/sluice-2.0/sluice/grind.h:31:6: note: expected 'SlWheel *' "
            "but argument is of type 'SlGate *'"
        ),
        "make: *** [Makefile:3: mill.o] Error 1",
    )
    assert found.findings[0].cause == "gcc-strict-c"


def test_a_function_that_a_library_lacks_whose_types_are_there_was_removed() -> None:
    found = diagnosis(
        (
            ":info:build /opt/local/work/mill-2.8/src/mill.c:13:6: error: "
            "call to undeclared function 'zend_mill_default'; ISO C99 and later "
            "do not support implicit function declarations [-Wimplicit-function-declaration]"
        ),
        (
            ":info:build /opt/local/work/mill-2.8/src/mill.c:13:6: error: incompatible integer to"
            " pointer conversion passing 'int' to parameter of type 'zend_class_entry *'"
            " [-Wint-conversion]"
        ),
    )
    assert found.findings[0].cause == "dependency-api-changed"
    assert found.findings[0].title.startswith("PHP has no zend_mill_default")


COPY = (
    r"C:\mill\wheel.hpp(133,1): error C2660: 'ggml_grind': function does not take 3 arguments",
    r"C:\mill\{}\include\{}.h(1771,35): message : see declaration of 'ggml_grind'",
)


def test_a_copy_of_a_known_library_in_the_tree_is_of_another_release() -> None:
    found = diagnosis(*(line.replace("{}", "ggml") for line in COPY)).findings[0]
    assert found.cause == "dependency-api-changed"
    assert "git submodule update --init --recursive --force" in found.fix[0].commands


def test_a_part_of_the_project_is_no_copy() -> None:
    own = [line.replace("{}", "spoke").replace("ggml_", "spoke_") for line in COPY]
    assert not diagnosis(*own).findings


def test_a_message_of_cmake_that_lost_its_indentation_is_read() -> None:
    found = diagnosis(
        "CMake Error at cmake/configure.cmake:120 (message):",
        "The mill needs water to grind",
        "Call Stack (most recent call first):",
        "CMakeLists.txt:624 (include)",
    )
    assert found.findings[0].title.endswith("The mill needs water to grind")


@pytest.mark.parametrize(
    "line",
    [
        "go: downloading example.com/mill v1.2.3",
        "go: added example.com/mill v1.2.3",
        "go: upgraded go 1.21 => 1.23",
        "go: module example.com/mill is deprecated: use example.com/wheel",
    ],
)
def test_what_go_says_of_modules_is_no_failure(line: str) -> None:
    assert diagnosis(line).status is Status.NOTHING_FAILED


def test_any_other_line_of_go_is() -> None:
    assert diagnosis("go: the mill stands still").status is Status.UNKNOWN


def test_the_report_of_make_is_one_in_any_language() -> None:
    found = diagnosis(
        "gmake[1]: *** [CMakeFiles/Makefile2:846: mill.dir/rule] Fehler 2",
        "gmake: *** [Makefile:208: mill] Fehler 2",
    )
    assert found.kind is not None
    assert found.kind.cause == "excerpt-without-cause"
