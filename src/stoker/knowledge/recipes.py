"""Tools that build in a sandbox, and the recipe that names what such a build has."""

from stoker.knowledge import Row, rows


class Recipe(Row, frozen=True, kw_only=True):
    """What a log of such a build shows, one of ``words`` in small letters among it, the recipe's
    file and where that names what it needs.
    """

    words: tuple[str, ...]
    shown: str
    file: str
    field: str


recipes = rows("recipes", Recipe)
