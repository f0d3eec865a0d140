"""Reads files of the user in TOML, and the recipes of projects in them: ``[[project]]``.

Checks keys and types. Whether a tree reads what a recipe sets is checked by ``stoker.plan``.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stoker.model.errors import UsageError, unreadable
from stoker.model.recipe import ProjectRecipe
from stoker.model.value import checked_toml, prepared

RECIPES = "project"  # [[project]], in every file that has recipes
_WRITE = f"write [[{RECIPES}]]"
_DESCRIBED = "docs/reference/recipes.md describes the keys"


def read_recipe_tables(tables: object, where: str) -> tuple[ProjectRecipe, ...]:
    """Return the recipes of a list of tables; raise UsageError for a wrong key or type."""
    if not isinstance(tables, list):
        raise UsageError(f"'{RECIPES}' must be a list of tables", where=where, hints=[_WRITE])
    found: list[ProjectRecipe] = []
    for number, table in enumerate(tables, start=1):
        named = table.get("name") if isinstance(table, dict) else None
        what = f"recipe {named or number}"
        try:
            recipe = msgspec.convert(table, prepared(ProjectRecipe))
        except msgspec.ValidationError as error:
            raise UsageError(f"{what}: {error}", where=where, hints=[_DESCRIBED]) from error
        if not recipe.packages and not recipe.files:
            raise UsageError(
                f"{what} has neither packages nor files, so no tree is recognized by it",
                where=where,
                hints=[_DESCRIBED],
            )
        found.append(recipe)
    names = [recipe.name for recipe in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two recipes are called {name}", where=where)
    return tuple(found)


def read_toml(path: Path, *, hints: Iterable[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file that the user wrote, and its content."""
    import tomllib  # most folders have no such file

    try:
        text = path.read_bytes().decode()
        return text, tomllib.loads(checked_toml(text))
    except OSError as error:
        raise unreadable(path, error, hints=hints) from error
    except UnicodeDecodeError as error:
        raise UsageError("not UTF-8 text", where=path.name) from error
    except (ValueError, RecursionError) as error:  # also for huge numbers and deep nesting
        line = re.search(r"line (\d+)", str(error))
        number = line[1] if line else len(text.splitlines())
        raise UsageError(f"not valid TOML: {error}", where=f"{path.name}:{number}") from error


def read_recipe_file(path: Path) -> tuple[ProjectRecipe, ...]:
    """Return the recipes of a file, which holds nothing else."""
    _, content = read_toml(path, hints=[_DESCRIBED])
    others = [key for key in content if key != RECIPES]
    if others or RECIPES not in content:
        what = f"unknown key '{others[0]}'" if others else "no recipe"
        raise UsageError(what, where=path.name, hints=[_WRITE, _DESCRIBED])
    return read_recipe_tables(content[RECIPES], path.name)
