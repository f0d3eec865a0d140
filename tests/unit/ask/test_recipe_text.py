"""Recipes as TOML: what is written is what is read."""

from pathlib import Path

from stoker.ask.recipe_text import recipe_text
from stoker.model.recipe import BackendRecipe, FixedTargets, ProjectRecipe, Switch
from stoker.model.variant import Backend
from stoker.settings.recipe_files import read_recipe_file


def test_a_recipe_is_read_as_it_was_written(tmp_path: Path) -> None:
    known = BackendRecipe(
        environment={"A": 'quo"te', "B": "{digits}"},
        backend_settings={"--build-option": "--force_cuda"},
        fixed=(FixedTargets(archs=("9.0a", "8.0+PTX")),),
        switches=(Switch(name="NO_SM90", archs=("9.0",), on="0", off="1"),),
        adds={"9.0": ("9.0a",)},
        compiles=False,
    )
    recipe = ProjectRecipe(name="mini", packages=("mini",), backends={Backend.CUDA: known})
    file = tmp_path / "mini.toml"
    file.write_text(recipe_text(recipe))
    assert read_recipe_file(file) == (recipe,)
