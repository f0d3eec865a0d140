"""Finds in a tree what a recipe says about it.

A recipe was read in one commit of a project. In another one a fact may be gone, so plans state only
what the files of the build still show.
"""

import re

from stoker.model.recipe import ProjectRecipe
from stoker.model.source import Presence
from stoker.source.files import TreeFiles

# 9.0a, sm_90a, compute_90, "90", 90-real, gfx942; also versions of CUDA, such as 12.8.
_NUMBER = re.compile(
    r"(?<![\w.])(?:(?:sm|compute)_?)?(?:(\d{1,2}\.\d)([af]?)|(\d{2,3})([af]?))"
    r"(?:-real|-virtual|\+PTX)?(?![\w.]|\.\d)"
)
_AMD = re.compile(r"gfx[0-9a-f]{3,4}")


def read_presence(
    files: TreeFiles, recipe: ProjectRecipe | None, build_files: tuple[str, ...]
) -> Presence | None:
    """Return the numbers that the files of a build name, and where they show what the recipe says.

    ``None`` if no file of the build could be read.
    """
    texts = {file: text for file in build_files if (text := files.text(file)) is not None}
    if recipe is None or not texts:
        return None
    numbers: dict[str, str] = {}
    for file, text in texts.items():
        for at, line in enumerate(text.splitlines(), 1):
            for word in _numbers(line):
                numbers.setdefault(word, f"{file}:{at}")
    shown: dict[str, str] = {}
    listed: dict[str, tuple[tuple[str, ...], ...]] = {}
    for pattern in _patterns(recipe):
        if place := _place(files, texts, pattern):
            shown[pattern], listed[pattern] = place
    return Presence(numbers=numbers, shown=shown, listed=listed)


def _numbers(line: str) -> list[str]:
    found = [
        dotted + suffix if dotted else f"{digits[:-1]}.{digits[-1]}{other}"
        for dotted, suffix, digits, other in _NUMBER.findall(line)
    ]
    return found + _AMD.findall(line)


def _patterns(recipe: ProjectRecipe) -> list[str]:
    of_needs = [need.shown for need in recipe.needs if need.shown]
    return of_needs + [text for known in recipe.backends.values() for text in known.shown.values()]


def _place(
    files: TreeFiles, texts: dict[str, str], pattern: str
) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
    """Return the first place of ``FILE: REGEX``, and the words of each list that it captures."""
    file, _, regex = pattern.partition(": ")
    text = texts.get(file) or files.text(file)
    try:
        found = list(re.finditer(regex, text or ""))
    except re.error:
        return None  # `plan --check-recipe` says so
    if not found:
        return None
    line = (text or "").count("\n", 0, found[0].start()) + 1
    texts_of_lists = dict.fromkeys(each[1] for each in found if each.lastindex)
    lists = [tuple(filter(None, re.split(r"[;,\s]+", each))) for each in texts_of_lists]
    return f"{file}:{line}", tuple(lists)
