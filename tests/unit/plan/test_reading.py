"""Settings that nothing reads, and choices that are not made, are reported with their places."""

from pathlib import Path

import pytest

from conftest import PROJECTS
from stoker.model.errors import UsageError
from stoker.model.finding import Severity
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import CompiledCode, NamedTarget, ReadVariable
from stoker.plan.recipes.checking import check_recipe
from stoker.settings.recipe_files import read_recipe_file
from stoker.source.tree import read_tree
from subjects import cmake_of, environment_of, named, names, plan, pytorch_tree, targets_of


def test_an_unset_choice_of_gpus_is_named_with_its_place() -> None:
    planned = plan("cu130-sm90", tree=read_tree(PROJECTS / "mini-gpu"))
    finding = named(planned.findings, "gpu-choice-unset")
    assert finding.severity is Severity.WARNING
    assert "MYLIB_GPU_ARCH: CMakeLists.txt:7" in finding.evidence
    assert "MYLIB_GPU_ARCH (CMakeLists.txt:7)" in targets_of(planned).choices


def test_a_choice_that_is_made_is_not_named() -> None:
    tree = read_tree(PROJECTS / "mini-gpu")
    planned = plan("cu130-sm90", tree=tree, defines={"MYLIB_GPU_ARCH": "90"})
    assert "gpu-choice-unset" not in names(planned.findings)


def test_no_choice_of_gpus_is_missing_for_the_cpu() -> None:
    planned = plan("cpu", tree=read_tree(PROJECTS / "mini-gpu"))
    assert "gpu-choice-unset" not in names(planned.findings)


def test_choices_of_a_package_that_knows_neither_torch_nor_cmake() -> None:
    planned = plan("cu130-sm90", tree=read_tree(PROJECTS / "mini-kernels"))
    assert (
        "MINI_GPU_ARCHS: tools/choices.py:13"
        in named(planned.findings, "gpu-choice-unset").evidence
    )
    assert "MINI_BUILD_KERNELS" in named(planned.findings, "kernel-choice-unset").evidence


def test_a_setting_that_nothing_reads_is_reported() -> None:
    tree = read_tree(PROJECTS / "mini-kernels")
    planned = plan("cu130-sm90", tree=tree, defines={"MINI_GPU_ARCH": "90", "MINI_GPU_ARCHS": "90"})
    unread = [f.title for f in planned.findings if f.name == "setting-unread"]
    assert "nothing in mini-kernels is known to read MINI_GPU_ARCH" in unread
    assert not [title for title in unread if title.endswith("MINI_GPU_ARCHS")]


def _computed(where: str) -> NamedTarget:
    return NamedTarget(where=where)


def test_pytorch_adds_flags_to_the_targets_that_it_is_given() -> None:
    """Its build names 9.0a for single kernels, and its package has flags that no build uses."""
    places = tuple(map(_computed, ("cmake/Codegen.cmake:89", "torch/cuda/__init__.py:227")))
    for variant in ("cu130-sm90", "rocm6.4-gfx942"):
        read = (ReadVariable(name="USE_CUDA", where="CMakeLists.txt:240"),)
        planned = plan(variant, tree=pytorch_tree(code=CompiledCode(targets=places), asks=read))
        assert "targets-in-the-tree" not in names(planned.findings)


OWN = """
[[project]]
name = "mylib"
packages = ["mylib"]

[project.backends.cuda]
cmake = { MYLIB_WITH_GPU = "ON", MYLIB_GPU_ARCH = "{digits}" }
suffixes = false
"""


def own_recipe(folder: Path, text: str = OWN) -> tuple[ProjectRecipe, ...]:
    path = folder / "mylib.toml"
    path.write_text(text)
    return read_recipe_file(path)


def test_a_recipe_of_the_user_makes_the_choice(tmp_path: Path) -> None:
    recipes = own_recipe(tmp_path)
    tree = read_tree(PROJECTS / "mini-gpu", recipes)
    planned = plan("cu130-sm90+sm120", tree=tree, own_recipes=recipes)
    assert cmake_of(planned)["MYLIB_GPU_ARCH"] == "90;120"
    assert "CMAKE_CUDA_ARCHITECTURES" not in cmake_of(planned)
    assert not names(planned.findings, Severity.WARNING)


def test_a_recipe_of_the_user_comes_before_the_shipped_one(tmp_path: Path) -> None:
    text = """[[project]]
name = "mine"
packages = ["flash-attn"]
[project.backends.cuda]
environment = { MY_ARCHS = "{digits}" }
"""
    recipes = own_recipe(tmp_path, text)
    (tmp_path / "setup.py").write_text(
        "import os\nfrom setuptools import setup\nfrom torch.utils import cpp_extension\n"
        "x = os.getenv('MY_ARCHS')\nsetup(name='flash-attn', version='1')\n"
    )
    tree = read_tree(tmp_path, recipes)
    environment = environment_of(plan("cu130-sm89", tree=tree, own_recipes=recipes))
    assert environment["MY_ARCHS"] == "89"
    assert "FLASH_ATTN_CUDA_ARCHS" not in environment


def test_checking_a_recipe_says_where_each_variable_is_read(tmp_path: Path) -> None:
    (recipe,) = own_recipe(tmp_path)
    found = check_recipe(recipe, read_tree(PROJECTS / "mini-gpu", (recipe,)))
    assert named(found, "recipe-fits").severity is Severity.OK
    read = {finding.title: finding.evidence for finding in found if finding.name == "variable-read"}
    assert read == {"MYLIB_WITH_GPU": "CMakeLists.txt:6", "MYLIB_GPU_ARCH": "CMakeLists.txt:7"}
    assert not names(found, Severity.ERROR) | names(found, Severity.WARNING)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("{digits}", "{sms}", "recipe-placeholder"),
        ("{digits}", "90", "recipe-no-targets"),
        ("MYLIB_WITH_GPU", "MYLIB_WITH_CUDA", "variable-unread"),
        ('packages = ["mylib"]', 'packages = ["yourlib"]', "recipe-not-recognized"),
        ("suffixes = false", 'archs = ["9.1"]', "recipe-target"),
    ],
)
def test_what_is_wrong_with_a_recipe(tmp_path: Path, before: str, after: str, name: str) -> None:
    (recipe,) = own_recipe(tmp_path, OWN.replace(before, after))
    found = check_recipe(recipe, read_tree(PROJECTS / "mini-gpu", (recipe,)))
    assert name in names(found, Severity.ERROR) | names(found, Severity.WARNING)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("suffixes", "sufixes"), "recipe mylib: .*sufixes"),
        (OWN.replace('packages = ["mylib"]\n', ""), "neither packages nor files"),
        (OWN + OWN, "two recipes are called mylib"),
        ("project = 1\n", "must be a list of tables"),
        ("[defaults]\nblas = 'mkl'\n", "unknown key 'defaults'"),
        ("[[project\n", "not valid TOML"),
    ],
)
def test_a_file_that_holds_no_recipes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        own_recipe(tmp_path, text)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_recipe_file(tmp_path / "none.toml")
