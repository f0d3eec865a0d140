"""Reads recipes of projects: ``[[project]]`` of stoker.toml, or a file of its own.

Checks keys and types. Whether a tree reads what a recipe sets is checked by ``stoker.plan``.
"""

from pathlib import Path

import msgspec

from stoker.model.errors import UsageError, unreadable
from stoker.model.recipe import ProjectRecipe
from stoker.model.value import checked_toml

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
            recipe = msgspec.convert(table, ProjectRecipe)
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


def read_recipe_file(path: Path) -> tuple[ProjectRecipe, ...]:
    """Return the recipes of a file, which holds nothing else."""
    import tomllib

    try:
        content = tomllib.loads(checked_toml(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", hints=[_DESCRIBED]) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError("not UTF-8 text", where=path.name) from error
    except (ValueError, RecursionError) as error:  # also for huge numbers and deep nesting
        raise UsageError(f"not valid TOML: {error}", where=path.name) from error
    others = [key for key in content if key != RECIPES]
    if others or RECIPES not in content:
        what = f"unknown key '{others[0]}'" if others else "no recipe"
        raise UsageError(what, where=path.name, hints=[_WRITE, _DESCRIBED])
    return read_recipe_tables(content[RECIPES], path.name)
