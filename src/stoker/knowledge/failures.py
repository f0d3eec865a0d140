"""The causes of failed builds: one file each in ``failures/``, with its signs, fixes and examples.

``docs/how-to/add-a-cause.md`` explains the fields. What a log looks like is not known here.
"""

from enum import StrEnum
from functools import cache
from importlib import resources
from string import Formatter

import msgspec

from stoker.knowledge import Row
from stoker.knowledge.patterns import literals, problem


class Stage(StrEnum):
    FETCH = "fetch"
    CONFIGURE = "configure"
    CODEGEN = "codegen"
    COMPILE = "compile"
    LINK = "link"
    PACKAGE = "package"
    INSTALL = "install"
    IMPORT = "import"
    RUN = "run"


class Sign(Row, frozen=True, kw_only=True):
    """One way to recognise a cause. Patterns are searched for in single lines."""

    match: str
    strength: float  # how sure it is alone, up to 1
    needs: tuple[str, ...] = ()  # each near it, in the same failing block
    anywhere: tuple[str, ...] = ()  # each somewhere in the log
    excludes: tuple[str, ...] = ()  # none of them anywhere in the log
    project: str | None = None  # which the log must name
    quiet: bool = False  # successful builds print it too: counts only where something failed

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.match, *self.needs, *self.anywhere, *self.excludes)


class Fix(Row, frozen=True, kw_only=True):
    """``{name}`` in either is a group of the match, a fact of the machine, or the default."""

    text: str
    commands: tuple[str, ...] = ()


class Example(Row, frozen=True, kw_only=True):
    log: str
    source: str


class Failure(Row, frozen=True, kw_only=True):
    """A named cause of failed builds."""

    name: str
    title: str
    stage: Stage
    why: str
    sign: tuple[Sign, ...]
    fix: tuple[Fix, ...]
    misled_by: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    defaults: dict[str, str] = {}
    example: tuple[Example, ...] = ()


@cache
def failures() -> dict[str, Failure]:
    """Return the causes by name, in alphabetical order. The tests check each entry."""
    folder = resources.files(__package__).joinpath("failures")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    found = [_decoded(file.read_bytes()) for file in files if file.name.endswith(".toml")]
    return {failure.name: failure for failure in found}


def checked(content: bytes, name: str) -> Failure:
    """Return the entry ``<name>.toml``; raise a ``ValueError`` that says what is wrong and
    where.
    """
    try:
        failure = _decoded(content)
    except msgspec.DecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if wrong := _problems(failure, name):
        raise ValueError("\n".join(f"{name}: {text}" for text in wrong))
    return failure


def _decoded(content: bytes) -> Failure:
    return msgspec.toml.decode(content, type=Failure)


def _problems(failure: Failure, name: str) -> list[str]:
    wrong = [] if failure.name == name else [f"calls itself '{failure.name}'"]
    wrong += _problems_of_texts(failure)
    wrong += _problems_of_parameters(failure)
    for sign in failure.sign:
        if not 0 < sign.strength <= 1:
            wrong.append(f"strength {sign.strength} is not in 0 to 1")
        faults = [f"{text}: {why}" for text in sign.patterns if (why := problem(text))]
        if not faults and not literals(sign.match):
            faults.append(f"{sign.match}: no three letters that every match has")
        wrong += faults
    return wrong


def _problems_of_texts(failure: Failure) -> list[str]:
    wrong = []
    if "\n" in failure.title or not failure.title or failure.title.endswith("."):
        wrong.append("the title is one line without a full stop")
    if not failure.why.strip():
        wrong.append("why is empty")
    if not failure.sign or not failure.fix:
        wrong.append("without a sign, or without a fix")
    if any(fix.text.startswith("Or ") for fix in failure.fix):
        wrong.append("a fix does not begin with 'Or': the report adds it")
    links = [*failure.threads, *(example.source for example in failure.example)]
    wrong += [f"not a link: {link}" for link in links if not link.startswith("https://")]
    return wrong


def _problems_of_parameters(failure: Failure) -> list[str]:
    used: set[str] = set()
    for fix in failure.fix:
        for text in (fix.text, *fix.commands):
            try:
                used |= parameters(text)
            except ValueError as error:
                return [f"{text}: {error}; a brace of its own is doubled"]
    missing = [f"{{{name}}} has no default" for name in sorted(used - failure.defaults.keys())]
    return missing + [f"default '{name}' unused" for name in sorted(failure.defaults.keys() - used)]


def parameters(template: str) -> frozenset[str]:
    """Return the names in braces."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)
