"""Writes a recipe as TOML: the file that `stoker plan --recipe` reads. Pure."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.model.recipe import BackendRecipe, ProjectRecipe


def recipe_text(recipe: ProjectRecipe) -> str:
    """Return a file with this recipe; values that are the default are left out."""
    default = msgspec.to_builtins(ProjectRecipe(name=recipe.name))
    whole = msgspec.to_builtins(recipe)
    backends = whole.pop("backends")
    lines = ["[[project]]"]
    lines += [f"{k} = {_value(v)}" for k, v in whole.items() if k == "name" or v != default.get(k)]
    for backend, table in backends.items():
        lines += ["", f"[project.backends.{backend}]", *_changed(table)]
    return "\n".join(lines) + "\n"


def _changed(table: dict[str, Any]) -> Iterator[str]:
    default = msgspec.to_builtins(BackendRecipe())
    for name, value in table.items():
        if value != default[name]:
            yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    match value:
        case dict():
            inner = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
            return "{ " + ", ".join(inner) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case bool():
            return str(value).lower()
        case _:
            # A JSON string is a TOML string, except for characters that TOML does not escape.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else json.dumps(name)
