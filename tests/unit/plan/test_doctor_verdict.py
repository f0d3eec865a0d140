"""Doctor as a whole: a healthy machine, the order of findings, whether the plan can run."""

import shlex
from typing import Any

from stoker.model.finding import Finding, Severity
from stoker.model.source import Submodule
from stoker.plan.doctor import can_run
from subjects import (
    GIB,
    disk,
    doctor,
    gpu,
    library,
    linux,
    memory,
    named,
    names,
    plan,
    python,
    pytorch_tree,
    tool,
    toolbox,
    toolkit,
    tools,
)

HEALTHY: dict[str, Any] = {"tree": pytorch_tree(), "toolbox": toolbox(cuda=(toolkit("12.4"),))}


def test_a_machine_with_everything_hears_only_good_news() -> None:
    findings = doctor("cu124-sm90", machine=linux(gpus=(gpu("9.0"),)), **HEALTHY)
    assert names(findings) - names(findings, Severity.OK) == set()
    assert {"compiler", "nvcc", "cmake", "ninja", "python", "blas", "memory", "disk"} <= names(
        findings, Severity.OK
    )
    assert can_run(findings)


def test_the_worst_comes_first() -> None:
    box = toolbox(cuda=(toolkit("12.4"),), tools=tools(ninja=None), libraries=())
    findings = doctor("cu124-sm90-avx2", tree=pytorch_tree(), toolbox=box)
    ranks = [list(Severity).index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 4
    assert not can_run(findings)


def test_warnings_do_not_stop_a_plan() -> None:
    box = toolbox(cuda=(toolkit("12.4"),), libraries=())
    findings = doctor("cu124-sm90", tree=pytorch_tree(), toolbox=box)
    assert names(findings, Severity.WARNING)
    assert not names(findings, Severity.ERROR)
    assert can_run(findings)
    assert can_run(())


def test_another_platform_is_a_warning_in_a_plan_and_an_error_here() -> None:
    planned = plan("cpu-linux_aarch64", tree=pytorch_tree())
    assert named(planned.findings, "other-platform").severity is Severity.WARNING
    findings = doctor("cpu-linux_aarch64", tree=pytorch_tree())
    assert named(findings, "other-platform").severity is Severity.ERROR
    assert not can_run(findings)


def test_what_is_installed_here_says_nothing_of_another_platform() -> None:
    """nvcc 12.4 is here and works: it must not be called missing because the plan is for Arm."""
    findings = doctor("cu124-sm90-linux_aarch64", **HEALTHY)
    assert names(findings, Severity.ERROR) == {"other-platform"}


def test_the_remarks_of_the_plan_are_among_the_findings() -> None:
    assert {"arch-list-unset", "no-source"} <= names(doctor("cu130"))
    assert not can_run(doctor("cu130"))


def _troubles() -> list[Finding]:
    """Findings of every kind, on a machine where all is wrong."""
    poor = toolbox(
        tools=(),
        cuda=(),
        libraries=(library("cudnn", header=None),),
        python=python(headers=None, packages={}),
        notes=("nvidia-smi did not answer in time",),
    )
    machine = linux(
        memory=memory(2 * GIB, kills_group=True),
        disks=(disk(free=1),),
        gpus=(gpu("9.0", driver="470.1"),),
        oomd=True,
    )
    tree = pytorch_tree(submodules=(Submodule(path="third_party/fmt", present=False),))
    old = toolbox(
        tools=tools(cxx=tool("cxx", "15.1.0"), cmake=tool("cmake", "4.1.0"), ninja=None),
        cuda=(toolkit("12.4"), toolkit("12.8", problem="crashed")),
    )
    ancient = toolbox(tools=tools(cxx=tool("cxx", "7.5.0")))
    return [
        *doctor("cu124-sm90-openblas-py313", machine=machine, toolbox=poor, tree=tree),
        *doctor("cu130-sm90", machine=machine, toolbox=poor, tree=tree),
        *doctor("cu124-sm90", toolbox=old, tree=tree),
        *doctor("cpu", toolbox=ancient, tree=tree),
        *doctor("cu130", toolbox=poor),
    ]


PROGRAMS = {
    *("apt-get", "cmake", "echo", "export", "fallocate", "git", "mkswap", "python3", "stoker"),
    *("/usr/bin/python3", "swapon", "systemd-run", "uv"),
}


def test_every_fix_is_a_command_that_can_be_pasted() -> None:
    fixes = {(finding.name, fix) for finding in _troubles() for fix in finding.fix}
    assert len(fixes) > 20
    prose = {(name, fix) for name, fix in fixes if shlex.split(fix)[0] not in PROGRAMS}
    assert prose == set()


def test_errors_have_a_title_and_names_in_kebab_case() -> None:
    for finding in _troubles():
        assert finding.title
        assert "None" not in finding.title + finding.evidence
        assert finding.name == finding.name.lower().replace("_", "-")
