"""Build tools, Python, requirements and submodules."""

import shlex

import pytest

from stoker.model.finding import Severity
from stoker.model.source import Submodule
from subjects import (
    cmake_option,
    cmake_tree,
    debian,
    doctor,
    extension_tree,
    linux,
    named,
    names,
    python,
    pytorch_tree,
    tool,
    toolbox,
    tools,
)


@pytest.mark.parametrize(("name", "package"), [("cmake", "cmake"), ("ninja", "ninja-build")])
def test_a_missing_tool(name: str, package: str) -> None:
    finding = named(doctor("cpu", toolbox=toolbox(tools=tools(**{name: None}))), f"{name}-missing")
    assert finding.severity is Severity.ERROR
    assert finding.title == f"no {name} found"
    assert finding.fix == (f"apt-get install -y {package}", f"python3 -m pip install {name}")


def test_a_cmake_that_is_older_than_the_tree_requires() -> None:
    tree = cmake_tree(cmake_minimum="3.27")
    old, new = tool("cmake", "3.25.1"), tool("cmake", "3.31.6", path="/env/bin/cmake")
    finding = named(doctor("cpu", tree=tree, toolbox=toolbox(tools=(old,))), "cmake-too-old")
    assert finding.severity is Severity.ERROR
    assert finding.title == "/usr/bin/cmake is version 3.25.1, the source requires 3.27"
    assert "python3 -m pip install cmake" in finding.fix
    findings = doctor("cpu", tree=tree, toolbox=toolbox(tools=(old, new)))
    assert named(findings, "cmake").evidence == "/env/bin/cmake"


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_a_broken_tool(name: str) -> None:
    crashed = tool(name, problem="was killed by signal 6")
    finding = named(
        doctor("cpu", toolbox=toolbox(tools=tools(**{name: crashed}))), f"{name}-missing"
    )
    assert finding.title == f"/usr/bin/{name} was killed by signal 6"


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_a_tool_that_does_not_say_its_version(name: str) -> None:
    finding = named(
        doctor("cpu", toolbox=toolbox(tools=tools(**{name: tool(name)}))), f"{name}-missing"
    )
    assert "None" not in finding.title
    assert f"/usr/bin/{name}" in finding.title


def test_an_extension_needs_no_cmake() -> None:
    box = toolbox(tools=tools(cmake=None))
    assert not {"cmake", "cmake-missing"} & names(
        doctor("cu130-sm90", tree=extension_tree(), toolbox=box)
    )


@pytest.mark.parametrize(
    ("cmake", "torch", "refused"),
    [
        ("4.0.0", "2.6.0", True),
        ("4.1.2", "2.5.1", True),
        ("3.31.6", "2.6.0", False),
        ("4.0.0", "2.8.0", False),
    ],
)
def test_a_cmake_that_third_party_projects_are_too_old_for(
    cmake: str, torch: str, refused: bool
) -> None:
    box = toolbox(tools=tools(cmake=tool("cmake", cmake)))
    findings = doctor("cpu", tree=pytorch_tree(version=torch), toolbox=box)
    assert ("cmake-too-new" in names(findings, Severity.WARNING)) == refused
    if refused:
        assert named(findings, "cmake-too-new").fix == ("export CMAKE_POLICY_VERSION_MINIMUM=3.5",)


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("1.11.1", "no job server"),
        ("1.12.1", "no job server"),
        ("1.13.0", "takes part"),
        ("1.13.0.git.kitware", "takes part"),
        ("1.9", "no job server"),
    ],
)
def test_what_a_ninja_can_do(version: str, says: str) -> None:
    box = toolbox(tools=tools(ninja=tool("ninja", version)))
    assert says in named(doctor("cpu", toolbox=box), "ninja").evidence


def test_another_python_than_asked_for() -> None:
    finding = named(doctor("cpu-py312"), "python-missing")
    assert finding.severity is Severity.ERROR
    assert finding.evidence == "/usr/bin/python3 is 3.11.7"
    assert finding.fix == ("uv python install 3.12",)
    assert named(doctor("cpu-py311"), "python").severity is Severity.OK
    # A CMake project may have bindings, too.
    assert "python-missing" in names(doctor("cpu-py312", tree=cmake_tree()))
    assert "python-missing" not in names(doctor("cpu", tree=cmake_tree()))
    assert "python-missing" not in names(doctor("cpu-py312-nobindings"))


def test_a_prefix_of_a_version_is_another_version() -> None:
    box = toolbox(python=python(version="3.120.1"))
    assert "python-missing" in names(doctor("cpu-py312", toolbox=box))


def test_headers_of_python_are_a_package_of_most_distributions() -> None:
    box = toolbox(python=python(headers=None))
    finding = named(doctor("cpu", toolbox=box), "python-headers-missing")
    assert finding.severity is Severity.ERROR
    assert finding.fix == ("apt-get install -y python3-dev",)
    arch = linux(os=debian(id="arch"))  # they come with Python there
    assert named(doctor("cpu", toolbox=box, machine=arch), "python-headers-missing").fix == ()


def test_projects_without_python_do_not_need_it() -> None:
    box = toolbox(python=python(headers=None))
    assert "python-headers-missing" not in names(doctor("cpu", tree=cmake_tree(), toolbox=box))
    without = doctor("cpu-nobindings", tree=pytorch_tree(), toolbox=box)
    assert "python-headers-missing" not in names(without)


@pytest.mark.parametrize(
    ("version", "tested"),
    [("3.9.0", True), ("3.13.5", True), ("3.8.20", False), ("3.14.0rc2", False)],
)
def test_a_python_that_the_release_was_not_made_for(version: str, tested: bool) -> None:
    box = toolbox(python=python(version=version))
    findings = doctor("cpu", tree=pytorch_tree(), toolbox=box)
    assert ("python-untested" not in names(findings, Severity.WARNING)) == tested


def needs(*lines: str, **changes: object) -> set[str]:
    """The names of what is found missing."""
    box = toolbox(python=python(**changes))
    findings = doctor("cpu", tree=pytorch_tree(requirements=lines), toolbox=box)
    if "requirements-missing" not in names(findings):
        return set()
    (fix,) = named(findings, "requirements-missing").fix
    executable, *pip, first = shlex.split(fix)[:5]
    assert [executable, *pip] == ["/usr/bin/python3", "-m", "pip", "install"]
    return {first, *shlex.split(fix)[5:]}


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("numpy", set()),
        ("NumPy>=2", set()),
        ("numpy<2", {"numpy<2"}),
        ("numpy>=1.20,<2", {"numpy<2,>=1.20"}),
        ("typing-extensions>=4.10", {"typing-extensions>=4.10"}),
        ("cmake", set()),  # as a program, it is checked by itself
        ('pywin32; sys_platform == "win32"', set()),
        ("meson[ninja]>=1", {"meson[ninja]>=1"}),
    ],
)
def test_build_requirements(line: str, missing: set[str]) -> None:
    assert needs(line) == missing


@pytest.mark.parametrize(
    ("marker", "version", "applies"),
    [
        ('python_version < "3.11"', "3.9.18", True),
        ('python_version < "3.11"', "3.12.1", False),
        ('python_version >= "3.14"', "3.14.0", True),
        ('python_full_version < "3.11.4"', "3.11.2", True),
    ],
)
def test_markers_speak_of_the_python_that_builds(marker: str, version: str, applies: bool) -> None:
    """It is the toolbox's interpreter, not the one that stoker itself runs on."""
    assert needs(f"tomli; {marker}", version=version) == ({"tomli"} if applies else set())


def test_a_prerelease_counts_as_installed() -> None:
    assert needs("numpy>=2", packages={"numpy": "2.3.0.dev0"}) == set()


def test_an_installed_version_that_is_none_does_not_stop_the_doctor() -> None:
    assert needs("numpy>=2", packages={"numpy": "unknown-build"}) == {"numpy>=2"}


@pytest.mark.parametrize(
    ("packages", "missing"),
    [
        ({"setuptools": "65.5.0"}, {"wheel"}),
        ({"setuptools": "65.5.0", "wheel": "0.40"}, set()),
        ({"setuptools": "70.1.0"}, set()),
        ({}, {"setuptools>=42"}),
    ],
)
def test_an_old_setuptools_makes_no_wheel_alone(
    packages: dict[str, str], missing: set[str]
) -> None:
    assert needs("setuptools>=42", packages=packages) == missing


def test_a_package_is_missing_once() -> None:
    box = toolbox(python=python(packages={"setuptools": "65.5.0"}))
    tree = pytorch_tree(requirements=("setuptools", "wheel", "setuptools>=40"))
    missing = named(doctor("cpu", tree=tree, toolbox=box), "requirements-missing")
    assert missing.evidence == "wheel"


def test_the_count_of_requirements_is_good_news() -> None:
    finding = named(doctor("cpu", tree=pytorch_tree()), "requirements")
    assert finding.severity is Severity.OK
    assert "requirements" not in names(doctor("cpu", tree=cmake_tree(requirements=("x",))))
    assert "requirements" not in names(doctor("cpu"))


def test_a_path_with_a_space_can_still_be_pasted() -> None:
    executable = "/home/my user/venv/bin/python"
    tree = pytorch_tree(requirements=("meson",))
    box = toolbox(python=python(executable=executable))
    (fix,) = named(doctor("cpu", tree=tree, toolbox=box), "requirements-missing").fix
    assert shlex.split(fix)[0] == executable


def test_empty_submodules() -> None:
    modules = tuple(Submodule(path=f"third_party/{n}", present=n == 0) for n in range(8))
    finding = named(doctor("cpu", tree=pytorch_tree(submodules=modules)), "submodules-missing")
    assert finding.severity is Severity.ERROR
    assert finding.title == "7 of 8 submodules are empty"
    assert finding.evidence.endswith("and 2 more")
    assert finding.fix[0].startswith("git -C /src/pytorch submodule update --init --recursive")


def test_all_submodules_are_there() -> None:
    modules = (Submodule(path="third_party/fmt", present=True),)
    assert named(doctor("cpu", tree=pytorch_tree(submodules=modules)), "submodules")
    assert "submodules" not in names(doctor("cpu", tree=pytorch_tree()))


def test_a_tree_in_a_folder_with_a_space() -> None:
    modules = (Submodule(path="third_party/fmt", present=False),)
    tree = pytorch_tree(path="/home/my user/pytorch", submodules=modules)
    (fix,) = named(doctor("cpu", tree=tree), "submodules-missing").fix
    assert shlex.split(fix)[:3] == ["git", "-C", "/home/my user/pytorch"]


def test_a_file_that_the_wheel_needs_and_the_tree_lacks() -> None:
    tree = pytorch_tree(lacks=("third_party/cutlass/examples/grouped_gemm.py",))
    finding = named(doctor("cu130-sm90", tree=tree), "copied-file-missing")
    assert finding.severity is Severity.ERROR
    assert finding.evidence == "third_party/cutlass/examples/grouped_gemm.py"
    assert "copied-file-missing" not in names(doctor("cpu", tree=tree))


def test_a_protobuf_that_is_neither_in_the_tree_nor_asked_from_the_system() -> None:
    options = (*pytorch_tree().options, cmake_option("BUILD_CUSTOM_PROTOBUF"))
    tree = pytorch_tree(own_protobuf=False, options=options)
    finding = named(doctor("cpu", tree=tree), "protobuf-missing")
    assert finding.severity is Severity.ERROR
    assert "apt-get install -y libprotobuf-dev protobuf-compiler" in finding.fix
    for value, missing in (("OFF", False), ("0", False), ("ON", True)):
        told = doctor("cpu", tree=tree, defines={"BUILD_CUSTOM_PROTOBUF": value})
        assert ("protobuf-missing" in names(told)) == missing
    assert "protobuf-missing" not in names(doctor("cpu", tree=pytorch_tree(own_protobuf=True)))
    assert "protobuf-missing" not in names(doctor("cpu", tree=cmake_tree()))
