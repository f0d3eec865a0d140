"""The route of a source tree through CMake or its backend, and what CMake configured."""

import re
from collections.abc import Iterable
from pathlib import Path

from stoker.model.build import BuildRequest, BuildStage
from stoker.model.plan import Plan, is_on
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.model.value import Value
from stoker.outside.files import write_whole

# -- configured ------------------------------------------------------------------------------------
# Compares CMake's final settings with the requested ones, and finds the reason for a difference.
#
# Pure but for ``probe_files``: texts go in.


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


# -- route -----------------------------------------------------------------------------------------
# How a tree is built: what configures it, where, what the back end is told, where it ends.


_BY_BACK_END = (ProjectKind.EXTENSION, ProjectKind.PACKAGE)


class Route(Value, frozen=True, kw_only=True):
    """``build`` is the folder of the build tool; ``configure`` the command, where we give it.

    Without that the back end configures, and also compiles unless it can stop before.
    """

    tree: Path
    build: Path
    configure: tuple[str, ...] = ()
    by_back_end: bool = False  # scikit-build-core configures, and we compile
    in_tree: bool = False  # the front end builds where the source is
    settings: dict[str, str] = {}  # of the back end
    last: BuildStage


def choose_route(
    plan: Plan, tree: SourceTree, request: BuildRequest, *, build: Path, python: str
) -> Route:
    """Return how the tree is built. ``python`` is the interpreter that runs the back end."""
    root = Path(tree.path)
    last = last_stage(plan, tree, request)
    given = dict(plan.backend_settings)
    by_cmake = tree.kind not in _BY_BACK_END and _calls_cmake(tree, last)
    if tree.kind is ProjectKind.PYTORCH and by_cmake and _by_setup(plan, tree, last):
        by_setup = (python, "setup.py", "build", "--cmake-only")
        return Route(tree=root, build=root / "build", configure=by_setup, in_tree=True, last=last)
    if not by_cmake:
        in_tree = tree.front_end is not FrontEnd.SETUPTOOLS
        return Route(tree=root, build=build, in_tree=in_tree, settings=given, last=BuildStage.WHEEL)
    options = {setting.name: setting.value for setting in plan.cmake}
    # Search paths of the build tree must not tell where it is: their length stays in the library.
    defines = {"CMAKE_BUILD_RPATH_USE_ORIGIN": "ON"} | options
    if tree.front_end is FrontEnd.SCIKIT_BUILD_CORE and last is not BuildStage.INSTALL:
        # It has a default for the type, where CMake has none.
        defines.setdefault("CMAKE_BUILD_TYPE", plan.variant.build_type.value)
        settings = given | _of_scikit_build(defines, build, request)
        return Route(tree=root, build=build, by_back_end=True, settings=settings, last=last)
    configure = (
        *("cmake", "-S", str(root / tree.folder), "-B", str(build), "-G", "Ninja"),
        *(f"-D{name}={value}" for name, value in defines.items()),
    )
    return Route(tree=root, build=build, configure=configure, settings=given, last=last)


def last_stage(plan: Plan, tree: SourceTree, request: BuildRequest) -> BuildStage:
    if request.target:
        return BuildStage.COMPILE
    # A plan without Python bindings calls CMake itself.
    bare = plan.recipe is ProjectKind.PYTORCH and plan.commands[-1].stage != "wheel"
    if request.install_tree or bare or tree.front_end is FrontEnd.CMAKE:
        return BuildStage.COMPILE if request.editable else BuildStage.INSTALL
    return BuildStage.WHEEL


def _calls_cmake(tree: SourceTree, last: BuildStage) -> bool:
    """Return whether CMake can be called before, or instead of, the back end."""
    if tree.kind is ProjectKind.PYTORCH or last is not BuildStage.WHEEL:
        return True
    return tree.front_end is FrontEnd.SCIKIT_BUILD_CORE


def _by_setup(plan: Plan, tree: SourceTree, last: BuildStage) -> bool:
    bare = plan.commands[-1].stage != "wheel"
    return tree.front_end is FrontEnd.SETUPTOOLS and last is not BuildStage.INSTALL and not bare


def _of_scikit_build(options: dict[str, str], build: Path, request: BuildRequest) -> dict[str, str]:
    settings = {"build-dir": str(build)}
    for name, value in options.items():
        if name == "CMAKE_BUILD_TYPE":
            settings["cmake.build-type"] = value
        else:
            settings[f"cmake.define.{name}"] = value
    if request.verbose:
        settings |= {"build.verbose": "true", "logging.level": "INFO"}
    return settings
