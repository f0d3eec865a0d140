"""What releases of tools and libraries changed for source that is older than they are.

A change is a row in ``knowledge/changes/*.toml``: since which version, how its messages look, and
what brings the old behaviour back. It is also a cause of failed builds: ``cause_of`` makes it one,
and ``failure_index.py`` writes it into failures.json. docs/how-to/add-a-cause.md explains the
fields.
"""

from enum import StrEnum

from stoker.knowledge import Row
from stoker.knowledge.failures import Example, Failure, FailureStage, Fix, Known, Product, Sign
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
    look: bool = False  # see Fix
    edits: str = ""


class Change(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A row of changes/*.toml: a cause that follows from what a release changed."""

    name: str
    product: str
    since: str
    last: str = ""  # the last release before it, where an older Python is the answer
    is_needed: bool = False  # ``since`` is what the source needs, and the tool is older
    is_general: bool = False  # every release since then may be the one
    released: str  # year and month
    what: str
    headline: str = ""
    stage: FailureStage
    source: str  # a link
    message: tuple[Sign, ...]
    restore: tuple[Restore, ...] = ()
    example: tuple[Example, ...] = ()


class ChangeTable(Row, frozen=True, kw_only=True):
    change: tuple[Change, ...]


class ReleaseTable(Row, frozen=True, kw_only=True):
    """The content of releases.toml."""

    product: tuple[Product, ...]


# Products whose releases only the machine decides about, or whose changes have options.
_TOOLS = ("Xcode", "apple-sdk", "rustc")


def cause_of(change: Change) -> Failure:
    """Return a change as the cause of a failed build. The fixes bring the old behaviour back."""
    fixes = [fix for one in change.restore if (fix := _by_make(one))]
    fixes += [fix for restore in change.restore if (fix := _fix(restore))]
    release = f"{change.product} {change.since}"
    elder = f"Use {change.product} before {change.since}, or a release of the project that supports"
    last = f"Use {release} or later" if change.is_needed else f"{elder} {release}"
    if change.is_general:
        last = f"Use a release of the project for this {change.product}, or the one that it is for"
    newer = f"Take the newest release of the project; if it does not know {release}, "
    newer += f"use {change.product} before {change.since}"
    if change.is_general:
        newer = (
            "Take the newest release of the project; if this is it, use the release of "
            f"{change.product} that it is written for"
        )
    by_project = Fix(text=newer)
    others = () if change.is_needed or change.product in _TOOLS else (by_project,)
    why = "Source and tools are each sound, but of different ages."
    if not change.is_general:
        why += f" {release} is of {change.released}; older source expects the behaviour before it."
    used = {name.partition(".")[2] for fix in fixes for name in fix.placeholders} | {"last"}
    facts = {"since": change.since, "last": change.last}
    stated = {name: value for name, value in facts.items() if value and name in used}
    known = {name: Known(value=value, source=change.source) for name, value in stated.items()}
    return Failure(
        name=change.name,
        title=change.what,
        headline=change.headline,
        stage=change.stage,
        why=why,
        sign=change.message,
        fix=(*fixes, *others, Fix(text=last)),
        threads=(change.source,),
        known=known,
        example=change.example,
        product="" if change.is_needed else change.product,
        since="" if change.is_needed else change.since,
        released="" if change.is_needed or change.is_general else change.released,
    )


def _by_make(restore: Restore) -> Fix | None:
    """Return the fix for a makefile that sets its flags itself, which no exported variable reaches:
    the name of the compiler does, and leaves those flags as they are.
    """
    if not restore.flags or restore.language not in {Language.C, Language.CXX}:
        return None
    name, compiler = ("CC", "cc") if restore.language is Language.C else ("CXX", "c++")
    return Fix(
        text=(
            f"Bring the behaviour before it back with {restore.flags}: "
            f"{{run.makefile}} sets {restore.language.variable} itself, so pass it with {name}"
        ),
        build=Template(f'{{run.command}} {name}="${{{name}:-{compiler}}} {restore.flags}"'),
        when=("run.makefile",),
    )


def _fix(restore: Restore) -> Fix | None:
    again = (Template("? {run.set_aside}"), Template("? {run.configure}"))
    if restore.flags and restore.language:
        name = restore.language.variable
        text = restore.text or f"Bring the behaviour before it back with {restore.flags}"
        added = Template(f'export {name}="${{{name}:-}} {restore.flags}"')
        return Fix(text=text, commands=(added, *again))
    if restore.variables:
        pairs = " ".join(f"{name}={value}" for name, value in restore.variables.items())
        text = restore.text or f"Set {pairs}"
        return Fix(text=text, commands=(Template(f"export {pairs}"), *again))
    if restore.package:
        text = f"Use {restore.package} before {{known.since}}, also in the isolated environment"
        return Fix(text=text, commands=_constrained(restore.package))
    if restore.older:
        text = "Build in an environment with Python {run.python_wanted}, the last supported one"
        build = Template("{run.by_new_python}")
        return Fix(text=text, commands=(Template("{run.python_new}"),), build=build)
    if not restore.text:
        return None
    look, edits = restore.look, restore.edits
    return Fix(text=restore.text, commands=restore.commands, look=look, edits=edits)


def _constrained(package: str) -> tuple[Template, ...]:
    """Return the commands that keep a package below the version of a change. Older releases of pip
    read the first variable for isolated environments, newer ones the second.
    """
    return (
        Template(f"echo '{package}<{{known.since}}' >> build-constraints.txt"),
        Template(
            'export PIP_CONSTRAINT="$PWD/build-constraints.txt" '
            'PIP_BUILD_CONSTRAINT="$PWD/build-constraints.txt" '
            'UV_BUILD_CONSTRAINT="$PWD/build-constraints.txt"'
        ),
        Template(f"? {{run.pip}} '{package}<{{known.since}}'"),
    )
