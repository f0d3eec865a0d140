"""Properties of every plan: any variant, any kind of tree, any machine."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from stoker.model.errors import StokerError
from stoker.model.plan import Plan
from stoker.model.variant import Variant
from stoker.plan.doctor import can_run, examine
from stoker.plan.records import plan_json
from stoker.plan.shown import dotenv_lines, shell_lines
from stoker.plan.subject import Subject
from subjects import (
    COMMAND_LINE,
    GIB,
    VARIANTS,
    arm_linux,
    cmake_of,
    cmake_tree,
    environment_of,
    extension_tree,
    gpu,
    linux,
    mac,
    memory,
    plan_of,
    pytorch_tree,
    subject,
    toolbox,
    toolkit,
)

NEW = pytorch_tree(version="2.15.0", cuda_archs=())
TREES = [None, pytorch_tree(), NEW, extension_tree(), extension_tree("mine"), cmake_tree()]
MACHINES = [
    linux(),
    linux(gpus=(gpu("9.0"), gpu("12.0")), memory=memory(2 * GIB)),
    arm_linux(gpus=(gpu("99.0"),)),
    mac(),
]
BOXES = [
    toolbox(),
    toolbox(tools=(), cuda=(), libraries=()),
    toolbox(cuda=(toolkit("12.8"), toolkit("12.4", problem="crashed"))),
]


@st.composite
def subjects(draw: st.DrawFn) -> Subject:
    variant: Variant = draw(VARIANTS)
    choices: dict[str, Any] = {
        "machine": draw(st.sampled_from(MACHINES)),
        "tree": draw(st.sampled_from(TREES)),
        "toolbox": draw(st.sampled_from(BOXES)),
    }
    about = subject("cpu", **choices)
    parts = [*variant.__struct_fields__, *(feature.name for feature in variant.features)]
    return Subject(
        variant=variant,
        name=variant.name,
        origins=dict.fromkeys(parts, COMMAND_LINE),
        machine=about.machine,
        toolbox=about.toolbox,
        tree=about.tree,
        cmake_variables=about.cmake_variables,
    )


def _planned(about: Subject) -> Plan | None:
    try:
        return plan_of(about)
    except StokerError:
        return None


@given(subjects())
def test_any_subject_is_planned_and_examined_or_refused(about: Subject) -> None:
    planned = _planned(about)
    if planned is None:
        return
    findings = examine(about, planned)
    if planned.platform != about.machine.platform:
        assert not can_run(findings)
    for finding in findings:
        assert finding.title
        assert "None" not in finding.title
    _hold(about, planned)


def _hold(about: Subject, planned: Plan) -> None:
    environment, cmake = environment_of(planned), cmake_of(planned)
    assert all(environment[both] == cmake[both] for both in environment.keys() & cmake.keys())
    if about.is_pytorch and about.tree:
        strange = [n for n in cmake if not about.tree.option(n) and not n.startswith("CMAKE_")]
        assert strange == [], "every -D exists in the tree"
    if "PYTORCH_BUILD_VERSION" in environment:
        assert (
            str(Version(environment["PYTORCH_BUILD_VERSION"]))
            == (environment["PYTORCH_BUILD_VERSION"])
        )
    assert set(plan_json(planned)["origin"]) >= {*environment, *cmake}
    assert shell_lines(planned).count("export ") >= len(environment)
    assert len(dotenv_lines(planned).splitlines()) == len(environment)
