"""Checks the build tools, Python, and whether the source tree is complete. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from stoker.knowledge.torch_releases import torch_release
from stoker.model.finding import Finding, error, ok, warning
from stoker.model.machine import PythonInstallation, Tool
from stoker.model.setting import is_on
from stoker.model.source import ProjectKind, SourceTree
from stoker.model.value import counted, first_of, major, minor_release, version_numbers
from stoker.model.variant import Backend
from stoker.plan.checks import supported_pythons
from stoker.plan.planning import PlannedBuild
from stoker.plan.present import still_needed

_TOOL = re.compile(r"(cmake|ninja)\b")
_WHEELS_ALONE = (70, 1)  # the first setuptools that makes wheels without the package wheel


def check_cmake(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.kind is ProjectKind.EXTENSION:
        return
    tool = planned.subject.build_tool("cmake")
    if tool is None or tool.problem or tool.version is None:
        yield _tool_missing(planned, "cmake", tool)
        return
    if planned.subject.tree and planned.subject.is_too_old(tool):
        minimum = planned.subject.tree.cmake_minimum
        title = f"{tool.path} is version {tool.version}, the source requires {minimum}"
        yield error("cmake-too-old", title, fix=(_from_index("cmake"),))
        return
    release = planned.subject.release
    limit = release.cmake_below if release else None
    if release and limit and major(tool.version) >= major(limit):
        yield warning(
            "cmake-too-new",
            f"CMake {tool.version} refuses third-party projects of PyTorch {release.version}",
            evidence="CMake 4 dropped compatibility with policies before 3.5",
            fix=("export CMAKE_POLICY_VERSION_MINIMUM=3.5",),
        )
    else:
        yield ok("cmake", f"CMake {tool.version}", tool.path)


def check_ninja(planned: PlannedBuild) -> Iterator[Finding]:
    tool = planned.subject.build_tool("ninja")
    if tool is None or tool.problem or tool.version is None:
        yield _tool_missing(planned, "ninja", tool)
        return
    new = version_numbers(tool.version) >= (1, 13)
    says = "takes part in make's job server" if new else "no job server"
    yield ok("ninja", f"ninja {tool.version}", f"{tool.path}; {says}")


def _tool_missing(planned: PlannedBuild, name: str, tool: Tool | None) -> Finding:
    commands = tuple(dict.fromkeys((*planned.install(name), _from_index(name))))
    problem = f"no {name} found"
    if tool:
        problem = f"{tool.path} {tool.problem or 'does not print its version'}"
    either = "either command installs one" if len(commands) > 1 else ""
    return error(f"{name}-missing", problem, evidence=either, fix=commands)


def _from_index(name: str) -> str:
    """Return the command that installs a package of the index."""
    return f"python3 -m pip install {shlex.quote(name)}"


def check_python(planned: PlannedBuild) -> Iterator[Finding]:
    python = planned.subject.toolbox.python
    if planned.subject.feature("bindings") is False:
        return
    wanted = planned.subject.variant.python
    free = "t" if python.free_threaded else ""
    if wanted and python.release != wanted:
        yield error(
            "python-missing",
            f"no Python {wanted} found",
            evidence=f"{python.executable} is {python.version}{free}",
            fix=(f"uv python install {wanted}",),
        )
    elif planned.subject.kind is ProjectKind.CMAKE:
        return  # it may have no bindings
    elif python.headers is None:
        yield error(
            "python-headers-missing",
            f"Python.h of {python.executable} is missing",
            fix=planned.install("python-headers"),
        )
    else:
        yield ok("python", f"Python {python.version} with headers", python.executable)
    tree = planned.subject.tree
    if tree is None or not planned.subject.is_pytorch:
        return
    oldest, newest = supported_pythons(planned.subject)
    version = version_numbers(minor_release(python.version))
    if not version_numbers(oldest) <= version <= version_numbers(newest):
        yield warning(
            "python-untested",
            f"PyTorch {tree.version} lists Python {oldest} to {newest}, not {python.version}",
        )


def check_requirements(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the build requirements. `stoker build` checks those of CMake projects, which may be
    built in an environment of their own.
    """
    if planned.subject.tree is None or planned.subject.kind is ProjectKind.CMAKE:
        return
    python = planned.subject.toolbox.python
    # CMake and ninja are checked as programs: a build without isolation takes those on the PATH.
    lines = [
        line
        for line in planned.subject.tree.requirements
        if not (tool := _TOOL.match(line)) or planned.subject.build_tool(tool[1]) is None
    ]
    if missing := unmet_requirements(lines, python):
        yield requirements_missing(missing, python)
    elif lines:
        yield ok("requirements", f"{len(lines)} build requirements installed")


def requirements_missing(missing: Sequence[str], python: PythonInstallation) -> Finding:
    return error(
        "requirements-missing",
        f"{counted(len(missing), 'Python package')} that the build imports "
        f"{'is' if len(missing) == 1 else 'are'} missing",
        evidence=", ".join(missing),
        fix=(shlex.join([python.executable, "-m", "pip", "install", *missing]),),
    )


def unmet_requirements(lines: Iterable[str], python: PythonInstallation) -> list[str]:
    """Return the requirements that are not installed, without their markers, and the wheel that an
    old setuptools needs.
    """
    from packaging.utils import canonicalize_name

    from stoker.model.distribution import read_requirement

    of_python = {
        "python_version": minor_release(python.version),
        "python_full_version": python.version,
    }
    missing = []
    for line in lines:
        requirement = read_requirement(line)
        if requirement.marker and not requirement.marker.evaluate(of_python):
            continue
        version = python.packages.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            requirement.marker = None
            missing.append(str(requirement))
        elif requirement.name == "setuptools" and version_numbers(version) < _WHEELS_ALONE:
            missing += [] if "wheel" in python.packages else ["wheel"]
    return list(dict.fromkeys(missing))


def check_needs(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the programs and packages that the recipe of the project names."""
    project, toolbox = planned.subject.project, planned.subject.toolbox
    backend = planned.subject.variant.backend
    tree = planned.subject.tree
    needs = project.needs if project else ()
    for need in still_needed(needs, tree.presence if tree else None):
        if need.backends and backend not in need.backends:
            continue
        name = need.tool or need.python or ""
        tool = toolbox.tool(need.tool) if need.tool else None
        here = toolbox.python.packages.get(need.python) if need.python else None
        if (tool and not tool.problem) or here:
            yield ok("need", f"{name} {tool.version if tool else here}", need.why)
            continue
        fix = planned.install(need.tool) if need.tool else ()
        fix = fix or (_from_index(name),) if need.python else fix
        left_out = "; without it that part is left out" if need.optional else ""
        make = warning if need.optional else error
        yield make(f"{name}-missing", f"no {name} found", f"{need.why}{left_out}", fix)


def check_standard(planned: PlannedBuild) -> Iterator[Finding]:
    """Warn if setup.py asks for an older C++ than the headers of the installed torch need."""
    tree, torch = planned.subject.tree, planned.subject.toolbox.python.packages.get("torch")
    release = torch_release(torch)
    if tree is None or release is None or planned.subject.kind is not ProjectKind.EXTENSION:
        return
    for standard in tree.standards:
        if standard.version < release.cxx:
            older, newer = f"-std=c++{standard.version}", f"-std=c++{release.cxx}"
            file = shlex.quote(standard.where.rpartition(":")[0])
            yield warning(
                "standard-too-old",
                f"{tree.name} compiles with {older}, but the headers of torch {torch} need "
                f"C++{release.cxx}",
                evidence=standard.where,
                fix=(f"sed -i s/{older}/{newer}/ {file}",),
            )


def check_submodules(planned: PlannedBuild) -> Iterator[Finding]:
    tree = planned.subject.tree
    if tree is None or not tree.submodules:
        return
    if absent := tree.missing_submodules:
        yield error(
            "submodules-missing",
            f"{len(absent)} of {len(tree.submodules)} submodules are empty",
            evidence=first_of(absent, 5),
            fix=(_update_submodules(tree),),
        )
    else:
        yield ok("submodules", f"all {len(tree.submodules)} submodules are present")


def _update_submodules(tree: SourceTree) -> str:
    return f"git -C {shlex.quote(tree.path)} submodule update --init --recursive --depth 1"


def check_copied_files(planned: PlannedBuild) -> Iterator[Finding]:
    """Check what PyTorch's setup.py copies after the last compile, an hour too late to learn it."""
    tree = planned.subject.tree
    if tree and tree.lacks and planned.subject.variant.backend is Backend.CUDA:
        yield error(
            "copied-file-missing",
            "setup.py copies files into the wheel that the tree does not have",
            evidence="\n".join(tree.lacks),
            fix=(_update_submodules(tree),),
        )


def check_protobuf(planned: PlannedBuild) -> Iterator[Finding]:
    """Check the bundled protobuf, which PyTorch builds unless it is told to use the system's."""
    tree = planned.subject.tree
    if tree is None or tree.own_protobuf is not False:
        return
    value = planned.plan.value("BUILD_CUSTOM_PROTOBUF")
    if value is None or is_on(value):
        yield error(
            "protobuf-missing",
            "the plan builds the bundled protobuf, but the tree does not have it",
            evidence="third_party/protobuf is missing or empty",
            fix=("stoker plan ... -D BUILD_CUSTOM_PROTOBUF=OFF", *planned.install("protobuf")),
        )
