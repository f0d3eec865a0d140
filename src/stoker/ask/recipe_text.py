"""Writes a recipe as TOML: the file that `stoker plan --recipe` reads. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.model.recipe import BackendRecipe, ProjectRecipe
from stoker.model.value import toml_value


def recipe_text(recipe: ProjectRecipe) -> str:
    """Return a file with this recipe; values that are the default are left out."""
    default = msgspec.to_builtins(ProjectRecipe(name=recipe.name))
    whole = msgspec.to_builtins(recipe)
    backends = whole.pop("backends")
    lines = ["[[project]]"]
    lines += [
        f"{k} = {toml_value(v)}" for k, v in whole.items() if k == "name" or v != default.get(k)
    ]
    for backend, table in backends.items():
        lines += ["", f"[project.backends.{backend}]", *_changed(table)]
    return "\n".join(lines) + "\n"


def _changed(table: dict[str, Any]) -> Iterator[str]:
    default = msgspec.to_builtins(BackendRecipe())
    for name, value in table.items():
        if value != default[name]:
            yield f"{name} = {toml_value(value)}"
