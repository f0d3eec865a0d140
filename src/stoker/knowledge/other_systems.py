"""What installs programs and libraries in a sandbox and on Windows, of which only logs tell."""

from stoker.knowledge import Row, rows, table


class Recipe(Row, frozen=True, kw_only=True):
    """What a log of a build in a sandbox shows, one of ``words`` in small letters among it, the
    recipe's file and where that names what the build needs.
    """

    words: tuple[str, ...]
    shown: str
    file: str
    field: str


class WindowsPrograms(Row, frozen=True, kw_only=True):
    """The packages by which winget installs programs of builds."""

    package: dict[str, str]


recipes = rows("recipes", Recipe)
windows_programs = table("windows_programs", WindowsPrograms)
