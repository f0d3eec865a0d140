"""The causes of failed builds: how each is recognised, and the fixes that evidence fills in.

Each cause is a file in ``failures/``, or a row in ``changes/`` if a release changed something;
docs/how-to/add-a-cause.md explains the fields. What is read here is ``failures.json``, which the
build of stoker makes of those files with ``release/failure_index.py``: it checks them and finds the
literals of every pattern. Its first line tells which causes a log may show, and each cause is a
line that is decoded when it is needed. What a log looks like is not known here.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from functools import cache, cached_property
from itertools import accumulate, pairwise

import msgspec

from stoker.knowledge import Row, generated_content
from stoker.model.shell import PLACEHOLDER, Template
from stoker.model.value import prepared, version_numbers

_OPTIONAL = "? "
# Between the groups of literals in the index, and the literals of a group: JSON writes it as it is.
GROUPS, WORDS = "\x7f\x7f", "\x7f"
_BEFORE_CAUSES = 2  # lines after the first one that have no cause
_GOVERNED = re.compile(r"\bstoker run((?: \S+)*?) -- (\{run\.command\})")


class FailureStage(StrEnum):
    FETCH = "fetch"
    CONFIGURE = "configure"
    CODEGEN = "codegen"
    COMPILE = "compile"
    LINK = "link"
    PACKAGE = "package"
    INSTALL = "install"
    IMPORT = "import"
    RUN = "run"


class Depth(IntEnum):
    """What a cause is about, the most fundamental first: of several failures it is named first."""

    RESOURCE = 0  # memory, disks, limits, the network
    TOOL = 1  # compilers, libraries and packages, and their versions
    PROJECT = 2  # the source and its settings
    SYMPTOM = 3  # any error of a kind; a cause that says why is named instead


class ValueSource(StrEnum):
    """Where the value of a placeholder comes from."""

    LOG = "log"  # a named group of the signs of the cause
    MACHINE = "machine"  # a fact of this machine
    RUN = "run"  # a fact of the run that failed
    INSTALL = "install"  # the command that installs what a group of the log names
    SEARCH = "search"  # the command that tells which package has it
    KNOWN = "known"  # a fact that the entry states, with a link


class Shell(StrEnum):
    SH = "sh"
    CMD = "cmd"  # Windows


class Sign(Row, frozen=True, kw_only=True, omit_defaults=True):
    """One way to recognise a cause. Patterns are searched for in single lines."""

    match: str
    strength: float  # how sure it is alone, up to 1
    needs: tuple[str, ...] = ()  # each near it, in the same failing block
    anywhere: tuple[str, ...] = ()  # each somewhere in the log
    excludes: tuple[str, ...] = ()  # none of them anywhere in the log
    given: tuple[str, ...] = ()  # facts, such as machine.address_space, that must have a value
    project: str | None = None  # which the log must name
    quiet: bool = False  # successful builds print it too: counts only where something failed

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.match, *self.needs, *self.anywhere, *self.excludes)


class Fix(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A fix with placeholders. It is offered if each of them has a value, and all of ``when``.
    Without commands, and without a file that it ``edits``, it only says where to look.
    """

    text: str
    commands: tuple[Template, ...] = ()
    look: bool = False  # its commands change nothing
    edits: str = ""  # the file that the text says how to change
    build: Template = Template("")  # how to start the build again, if not as before
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    shell: Shell = Shell.SH

    @property
    def placeholders(self) -> frozenset[str]:
        texts = (self.text, self.build, self.edits, *self.commands)
        return frozenset(name for text in texts for name in placeholders(text))

    @property
    def only_shows(self) -> bool:
        """Whether its commands change nothing: they list, or search for a package."""
        searched = f"{ValueSource.SEARCH}."
        return self.look or any(name.startswith(searched) for name in self.placeholders)


class Known(Row, frozen=True, kw_only=True):
    """A fact that fixes state, such as the first version with a function."""

    value: str
    source: str  # a link


class Example(Row, frozen=True, kw_only=True):
    log: str
    source: str


class Failure(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A named cause of failed builds."""

    name: str
    title: str
    headline: str = ""  # the title with what the log names, if all placeholders have a value
    stage: FailureStage
    depth: Depth = Depth.TOOL
    why: str
    sign: tuple[Sign, ...] = ()  # empty if ``groups`` are found by diagnose/symptoms.py
    groups: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()  # with one of them anywhere in the log, it is not this cause
    fix: tuple[Fix, ...]
    misled_by: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    known: dict[str, Known] = {}
    example: tuple[Example, ...] = ()
    product: str = ""  # whose release changed something, and since which version
    since: str = ""
    released: str = ""  # year and month of that release


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
        """Return when a version was released: the last one of the table that is not newer; ``None``
        for a feature release after those of the table.
        """
        numbers = version_numbers(version)
        in_order = sorted(self.releases, key=version_numbers)
        known = [one for one in in_order if version_numbers(one) <= numbers]
        if not known:
            return None
        last = version_numbers(known[-1])
        is_later = known[-1] == in_order[-1] and numbers[: len(last)] != last
        return None if is_later else self.releases[known[-1]]


class ConfidenceTable(Row, frozen=True, kw_only=True):
    """The content of confidence.toml: strengths of signs, and how sure their answers are; and of
    causes that were named on unseen logs, how often they were right and how often named.
    """

    points: tuple[tuple[float, float], ...]
    weight: int  # answers that the points count as, beside those of the cause itself
    record: dict[str, tuple[int, int]]


class VariableReader(Row, frozen=True, kw_only=True):
    """A tool that reads variables: how their names begin, and what shows it in a log."""

    variables: tuple[str, ...]
    shown: tuple[str, ...]


class UnfitCommand(Row, frozen=True, kw_only=True):
    """What a command has, and what shows in a log that it is for other tools or systems."""

    command: str
    shown: tuple[str, ...]


class ShownTools(Row, frozen=True, kw_only=True):
    """The content of shown_tools.toml: texts in small letters that show which tools a log is of."""

    others: tuple[str, ...]
    ecosystems: tuple[str, ...]
    reader: tuple[VariableReader, ...]
    systems: dict[str, tuple[str, ...]]
    unfit: tuple[UnfitCommand, ...]


class OwnerTable(Row, frozen=True, kw_only=True):
    """The content of owners.toml."""

    paths: tuple[str, ...]
    releases: tuple[str, ...]
    no_release: str
    no_owner: str
    trees: dict[str, str]
    names: dict[str, str]  # words
    platforms: dict[str, str]
    not_of_windows: dict[str, str]
    system_libraries: dict[str, dict[str, str]]  # words
    inline_versions: dict[str, str]
    android_levels: dict[str, str]  # words, by the level, or `none`


# The literals of patterns: as one text, which is read in parts, because most logs need few of them.
Literals = dict[str, str]


class FailureIndex(Row, frozen=True, kw_only=True):
    """The first line of failures.json: the sizes in bytes of the lines after it, of products,
    owners and causes, the names of the causes, the content of confidence.toml and shown_tools.toml,
    and the literals of patterns of diagnose itself.

    ``anchors`` are literals, and by their numbers the causes of which a log without any of their
    anchors has no sign.
    """

    sizes: tuple[int, ...]
    causes: tuple[str, ...]
    anchors: dict[str, tuple[int, ...]]
    confidence: ConfidenceTable
    tools: ShownTools
    literals: Literals


class IndexedProducts(Row, frozen=True, kw_only=True):
    """The second line of failures.json: all products with the literals of their patterns."""

    products: tuple[Product, ...]
    literals: Literals


class IndexedOwners(Row, frozen=True, kw_only=True):
    """The third line of failures.json: what most logs with an error of a compiler need."""

    owners: OwnerTable


class IndexedCause(Row, frozen=True, kw_only=True):
    """Any other line of failures.json: a cause, without its examples, with those of its signs."""

    cause: Failure
    literals: Literals


class _FailureFile:
    """The content of failures.json, of which each line is decoded at its first use."""

    def __init__(self, content: bytes):
        begin = content.index(b"\n") + 1
        self.index = msgspec.json.decode(content[:begin], type=prepared(FailureIndex))
        self._content = content
        self._begins = tuple(accumulate(self.index.sizes, initial=begin))
        self.literals = self.index.literals
        self._numbers = {name: number for number, name in enumerate(self.index.causes)}
        self._known: dict[int, Failure] = {}

    @cached_property
    def products(self) -> tuple[Product, ...]:
        line = msgspec.json.decode(self._line(0), type=prepared(IndexedProducts))
        self.literals |= line.literals
        return line.products

    @cached_property
    def owners(self) -> OwnerTable:
        return msgspec.json.decode(self._line(1), type=prepared(IndexedOwners)).owners

    def _line(self, number: int) -> bytes:
        return self._content[self._begins[number] : self._begins[number + 1]]

    def named(self, name: str) -> Failure:
        return self.numbered(self._numbers[name])

    def numbered(self, number: int) -> Failure:
        if number not in self._known:
            line = msgspec.json.decode(
                self._line(number + _BEFORE_CAUSES), type=prepared(IndexedCause)
            )
            self.literals |= line.literals
            self._known[number] = line.cause
        return self._known[number]


def placeholders(template: str) -> frozenset[str]:
    """Return the placeholders of a template, such as ``log.header``: see ``ValueSource``."""
    return frozenset(PLACEHOLDER.findall(template))


def filled(template: str, values: dict[str, str]) -> str:
    """Return a text for people with the values of its placeholders. All must be known."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], template)


def is_optional(template: Template) -> bool:
    """Return whether a command is left out if it cannot be filled in."""
    return template.startswith(_OPTIONAL)


def without_mark(template: Template) -> Template:
    """Return the template of a command without the mark of an optional one."""
    return Template(template.removeprefix(_OPTIONAL))


def governed_once(build: Template) -> Template:
    """Return the template for a command that governs its steps itself: without `stoker run`, whose
    options are also those of a build.
    """
    return Template(_GOVERNED.sub(r"\2\1", build))


def failure(name: str) -> Failure:
    """Return a cause without its examples."""
    return _file().named(name)


def failures() -> dict[str, Failure]:
    """Return the causes by name, in alphabetical order, without their examples."""
    return {name: failure(name) for name in _file().index.causes}


def possible_failures(
    occurring: Callable[[Collection[str]], Iterable[str]],
) -> Iterator[Failure]:
    """Yield the causes of which a log may have a sign, in alphabetical order. ``occurring`` returns
    those of some literals that the log may have.
    """
    anchors = _file().index.anchors
    found = {number for literal in occurring(anchors.keys()) for number in anchors[literal]}
    yield from map(_file().numbered, sorted(found))


def stated(name: str, strength: float) -> float:
    """Return how sure an answer says it is, by the strength of its sign and by how often its cause
    was right: see confidence.toml.
    """
    table = _file().index.confidence
    right, named = table.record.get(name, (0, 0))
    return (right + table.weight * _by_strength(table.points, strength)) / (named + table.weight)


def _by_strength(points: Sequence[tuple[float, float]], strength: float) -> float:
    for (low, least), (high, most) in pairwise(points):
        if strength <= high:
            return least + (most - least) * max(strength - low, 0) / (high - low)
    return points[-1][1]


def products() -> tuple[Product, ...]:
    """Return the tools and libraries whose versions logs show."""
    return _file().products


def owner_table() -> OwnerTable:
    """Return whose files and names those of logs are."""
    return _file().owners


def shows_reader(variable: str) -> tuple[str, ...] | None:
    """Return texts that show in a log that the tool that reads a variable was there; ``None`` for
    a variable that no single tool reads.
    """
    readers = (one for one in _file().index.tools.reader if variable.startswith(one.variables))
    return next((one.shown for one in readers), None)


def shows_build_tool() -> tuple[str, ...]:
    """Return texts that show in a log by which tool the build ran."""
    return _file().index.tools.others


def shows_other_ecosystem() -> tuple[str, ...]:
    """Return texts that show in a log that an ecosystem built whose causes are not known."""
    return _file().index.tools.ecosystems


def shows_unfit(command: str) -> tuple[str, ...]:
    """Return texts that show in a log that a command is for other tools or systems than its."""
    rows = (row for row in _file().index.tools.unfit if row.command in command)
    return tuple(text for row in rows for text in row.shown)


def shown_manager(log: str) -> str | None:
    """Return the package manager of the system that a log, in small letters, names first; ``none``
    for a system that installs otherwise, and ``None`` if the log names no system.
    """
    places = {
        place: name
        for name, texts in _file().index.tools.systems.items()
        for text in texts
        if (place := log.find(text)) >= 0
    }
    return places[min(places)] if places else None


@cache
def literals(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Return groups of literals; every match of a pattern contains one of each group. The patterns
    of a cause are known from when it is read.
    """
    groups = _file().literals.get(pattern)
    return tuple(tuple(one.split(WORDS)) for one in groups.split(GROUPS)) if groups else ()


@cache
def _file() -> _FailureFile:
    return _FailureFile(generated_content("failures.json"))
