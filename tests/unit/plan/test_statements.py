"""What a plan states about a build, and how each fact is known."""

import sys
from typing import Any

import pytest

from stoker.model.evidence import AskedBuild, Evidence, EvidenceKind
from stoker.model.source import CompiledCode, SourceTree, Submodule
from stoker.plan.records import lasting_json, plan_json
from stoker.plan.subject import Subject
from stoker.plan.tree_recipe import TreeRecipe
from subjects import (
    changed,
    extension_tree,
    named,
    names,
    plan_of,
    subject,
    targets_of,
    toolbox,
)

ASKED = AskedBuild(
    cubins=("9.0a",),
    some=("8.0",),
    device_compiles=24,
    host_compiles=3,
    unused=("TORCH_CUDA_ARCH_LIST",),
    when="today, 12 s",
)


def mla(**changes: Any) -> Subject:
    tree = extension_tree("flash_mla", recipe=None)
    return changed(subject("h100", tree=tree), **changes)


def test_what_the_build_answered_replaces_what_was_read() -> None:
    planned = plan_of(mla(asked=ASKED))
    assert (targets_of(planned).cubins, targets_of(planned).accepted) == (("9.0a",), ("8.0",))
    asked = Evidence(kind=EvidenceKind.ASKED, where="today, 12 s")
    assert {(s.about, s.text, s.evidence) for s in planned.statements} == {
        ("targets", "9.0a", asked),
        ("compiles", "24 of device code, 3 others", asked),
    }
    assert "TORCH_CUDA_ARCH_LIST" in named(planned.findings, "setting-unused").title


def test_the_refusal_of_a_build_is_an_error_of_the_plan() -> None:
    refusal = "RuntimeError: GPUs with compute capability less than 7.5 are not supported."
    planned = plan_of(mla(asked=AskedBuild(refusal=refusal)))
    assert named(planned.findings, "build-refuses").evidence == refusal


def test_a_refusal_is_no_evidence_about_device_code_and_targets() -> None:
    read = plan_of(mla()).targets
    refused = plan_of(mla(asked=AskedBuild(refusal="CMake Error: no CUDA libraries"))).targets
    assert read
    assert read.compiles
    assert refused == read


def test_an_answer_without_device_code_is_none_where_the_files_show_some() -> None:
    """The build may lack a setting with which it would compile it."""
    answer = AskedBuild(host_compiles=3, when="today, 12 s")
    (targets, _) = plan_of(mla(asked=answer)).statements
    assert (targets.about, targets.text) == ("targets", "not known")
    assert targets.evidence.kind is EvidenceKind.ASSUMED
    assert "lists a source for GPUs" in targets.evidence.where
    plain = extension_tree("flash_mla", recipe=None, code=CompiledCode())
    (none, _) = plan_of(mla(tree=plain, asked=answer)).statements
    assert (none.about, none.text) == ("device code", "none is compiled")


def test_a_build_for_an_older_setuptools_names_it() -> None:
    """setuptools 81 took a parameter from the classes of its compilers."""
    takes = "takes from 1 to 3 positional arguments but 4 were given"
    refusal = f"TypeError: Compiler.__init__() {takes}"
    older = named(
        plan_of(mla(asked=AskedBuild(refusal=refusal))).findings, "build-requirement-missing"
    )
    assert "needs an older package" in older.title
    assert older.fix[0].endswith("-m pip install 'setuptools<81'")


def test_a_build_that_lacks_a_python_module_names_what_to_install() -> None:
    refusal = "ModuleNotFoundError: No module named 'pkg_resources'"
    found = plan_of(mla(asked=AskedBuild(refusal=refusal))).findings
    missing = named(found, "build-requirement-missing")
    assert missing.evidence == refusal
    assert missing.title.endswith("lacks: install setuptools<82")
    assert missing.fix[0].endswith("-m pip install 'setuptools<82'")
    other = plan_of(mla(asked=AskedBuild(refusal=refusal.replace("pkg_resources", "my.tool"))))
    assert "my.tool" in named(other.findings, "build-requirement-missing").title


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("No CMAKE_Fortran_COMPILER could be found.", "a compiler for Fortran"),
        ("Could NOT find Boost (missing: Boost_INCLUDE_DIR)", "Boost"),
        ('a package configuration file provided by\n  "Eigen3" with any name', "Eigen3"),
    ],
)
def test_what_the_machine_lacks_is_no_refusal_of_the_variant(said: str, what: str) -> None:
    refusal = f"CMake Error at CMakeLists.txt:16 (project):\n  {said}"
    found = plan_of(mla(asked=AskedBuild(refusal=refusal))).findings
    missing = named(found, "build-requirement-missing")
    assert missing.title == f"the build needs {what}, which it does not find on this machine"
    assert "build-refuses" not in names(found)


def test_a_record_of_a_plan_does_not_depend_on_the_moment_of_asking() -> None:
    one, other = plan_of(mla(asked=ASKED)), plan_of(mla(asked=changed(ASKED, when="tomorrow")))
    assert lasting_json(one) == lasting_json(other)
    assert plan_json(one)["statements"] != plan_json(other)["statements"]


@pytest.mark.parametrize(
    ("refusal", "name", "said"),
    [
        ("ValueError: only 8.0 and newer", "build-refuses", "itself refuses"),
        ("CMake Error at CMakeLists.txt:9 (message):\n  too old", "build-refuses", "refuses"),
        ("error: invalid command 'bdist_wheel'", "build-requirement-missing", "install wheel"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/t/lib/version.txt'",
            "build-file-missing",
            "/t/lib/version.txt",
        ),
        (
            (
                "CMake Error at CMakeLists.txt:3 (add_subdirectory):\n  The source directory\n\n"
                "    /t/third_party/cutlass\n\n  does not contain a CMakeLists.txt file."
            ),
            "submodules-missing",
            "third_party/cutlass",
        ),
        ("make: *** [all] Error 2", "build-ended", "why is not known"),
    ],
)
def test_only_the_words_of_the_project_are_a_refusal(refusal: str, name: str, said: str) -> None:
    modules = (Submodule(path="third_party/cutlass", present=False),)
    tree = extension_tree("flash_mla", recipe=None, submodules=modules)
    found = plan_of(mla(tree=tree, asked=AskedBuild(refusal=refusal))).findings
    finding = next(each for each in found if each.evidence == refusal)
    assert finding.name == name
    assert said in finding.title
    assert ("build-refuses" in names(found)) == (name == "build-refuses")


def test_the_files_of_a_tree_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Subject] = []
    module = sys.modules["stoker.plan.tree_recipe"]
    by_setup = module._by_setup

    def counted(given: Subject, tree: SourceTree) -> TreeRecipe:
        judged.append(given)
        found: TreeRecipe = by_setup(given, tree)
        return found

    monkeypatch.setattr(module, "_by_setup", counted)
    plan_of(mla())
    assert len(judged) == 1


def test_a_torch_for_the_cpu_builds_no_kernels() -> None:
    torch = {"torch": "2.9.1+cpu"}
    packages = changed(toolbox().python, packages={**toolbox().python.packages, **torch})
    found = plan_of(mla(toolbox=toolbox(python=packages))).findings
    assert "2.9.1+cpu" in named(found, "torch-of-cpu").title
    assert "torch-of-cpu" not in names(plan_of(mla()).findings)
