"""What releases of tools and libraries changed for source that is older than they are.

A change is a row in ``changes/*.toml``: since which version, how its messages look, and what brings
the old behaviour back. It is also a cause of failed builds: ``cause_of`` makes it one, and
``tests/failure_index.py`` writes both into failures.json. docs/how-to/add-a-cause.md explains the
fields.
"""

from enum import StrEnum

from stoker.knowledge import Row
from stoker.model.shell import Template


class Language(StrEnum):
    """What flags are for; the value is the variable that build tools read them from."""

    C = "c"
    CXX = "cxx"
    LINK = "link"

    @property
    def variable(self) -> str:
        return {"c": "CFLAGS", "cxx": "CXXFLAGS", "link": "LDFLAGS"}[self.value]


class Restore(Row, frozen=True, kw_only=True, omit_defaults=True):
    """What brings the behaviour before a change back: flags, variables, an older release of a
    Python package or of the product itself, or other commands.
    """

    text: str = ""
    language: Language | None = None
    flags: str = ""
    variables: dict[str, str] = {}
    package: str = ""  # of the package index, below the version of the change
    older: bool = False  # an older Python, the last before the change
    commands: tuple[Template, ...] = ()


class Product(Row, frozen=True, kw_only=True):
    """A tool or library whose version logs show. ``found`` are patterns with the group
    ``version``, or ``minor`` for Python 3; ``means`` are patterns that tell a version without
    naming it. ``releases`` are years and months of versions. ``ask`` is the command by which the
    installed one tells its version.
    """

    name: str
    found: tuple[str, ...]
    means: dict[str, str] = {}
    ask: tuple[str, ...] = ()
    releases: dict[str, str]

    def released(self, version: str) -> str | None:
        """Return when a version was released: the last one of the table that is not newer."""
        known = [one for one in self.releases if as_numbers(one) <= as_numbers(version)]
        return self.releases[max(known, key=as_numbers)] if known else None


class ReleaseTable(Row, frozen=True, kw_only=True):
    """The content of releases.toml."""

    product: tuple[Product, ...]


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version for comparison: its numbers, up to the first part without one."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
