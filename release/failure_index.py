"""Checks the causes in knowledge/failures and knowledge/changes, and writes the index of them that
stoker reads.

    python release/failure_index.py FILE

The build of the wheel, and that of an editable installation, does so (CMakeLists.txt).

A fix that could contradict its evidence is refused: each value in it has a source.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from log_patterns import literals, problem
from release_changes import Change, ChangeTable, ReleaseTable, cause_of

from stoker.diagnose import (
    interfaces,
    missing_headers,
    split_paths,
    steps,
    unlinked,
)
from stoker.diagnose.answers import NAMES
from stoker.knowledge import load
from stoker.knowledge.failures import (
    GROUPS,
    WORDS,
    ConfidenceTable,
    Failure,
    FailureIndex,
    Fix,
    IndexedCause,
    IndexedOwners,
    IndexedProducts,
    OwnerTable,
    ShownTools,
    ValueSource,
    placeholders,
)
from stoker.knowledge.providers import ProvidedKind

KNOWLEDGE = Path(__file__).parents[1] / "src" / "stoker" / "knowledge"
FILES = sorted((KNOWLEDGE / "failures").glob("*.toml"))
CHANGES = sorted((KNOWLEDGE / "changes").glob("*.toml"))

# A version, or a number that could be one: it belongs into a placeholder. Part of a name, such as
# python3, libz3 or c++, it is allowed.
_VERSION = re.compile(
    r"(?<![\w.-])\d+(?:\.\d+)*(?![\w.])|\d+\.\d+|[<>=]=\s?\d"
    r"|(?:gcc|g\+\+|clang|clang\+\+|cuda|sm|compute|gxx)[-_=]\d"
)
_PLAIN_NUMBERS = re.compile(r"[012]?>&?[012]|-[0-9]\b(?= )|--jobs \d+|\$\{?\d|\b[01]\b")
_OF_WINDOWS = re.compile(r"\b[A-Z]:\\")


def checked(content: bytes, name: str) -> Failure:
    """Return the entry ``<name>.toml``; raise a ``ValueError`` that says what is wrong and
    where.
    """
    try:
        failure = msgspec.toml.decode(content, type=Failure)
    except msgspec.DecodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if wrong := [*_problems(failure, name)]:
        raise ValueError("\n".join(f"{name}: {text}" for text in wrong))
    return failure


def checked_change(change: Change) -> Failure:
    """Return a row of changes/*.toml as a cause; raise a ``ValueError`` that says what is wrong."""
    cause = cause_of(change)
    wrong = [*_problems(cause, change.name, of_change=True)]
    if not re.fullmatch(r"20\d\d-\d\d", change.released):
        wrong.append("released is a year and a month, such as 2025-04")
    if any(restore.older for restore in change.restore) != bool(change.last):
        wrong.append("last is the last Python before the change, if an older one is the answer")
    if wrong:
        raise ValueError("\n".join(f"{change.name}: {text}" for text in wrong))
    return cause


def rows(file: Path) -> tuple[Change, ...]:
    """Return the changes of a file."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=ChangeTable).change
    except msgspec.DecodeError as error:
        raise ValueError(f"{file.stem}: {error}") from None


def _problems(failure: Failure, name: str, *, of_change: bool = False) -> Iterator[str]:
    if failure.name != name:
        yield f"calls itself '{failure.name}'"
    yield from _problems_of_texts(failure)
    yield from _problems_of_fixes(failure, of_change)
    yield from (f"{text}: {why}" for text in failure.excludes if (why := problem(text)))
    for sign in failure.sign:
        if not 0 < sign.strength <= 1:
            yield f"strength {sign.strength} is not in 0 to 1"
        faults = [f"{text}: {why}" for text in sign.patterns if (why := problem(text))]
        if not faults and not literals(sign.match):
            faults.append(f"{sign.match}: no three letters that every match has")
        yield from faults
        yield from (f"{fact} is no fact" for fact in sign.given if fact not in NAMES)


def _problems_of_texts(failure: Failure) -> Iterator[str]:
    if "\n" in failure.title or not failure.title or failure.title.endswith("."):
        yield "the title is one line without a full stop"
    if not failure.why.strip():
        yield "why is empty"
    if not (failure.sign or failure.groups) or not failure.fix:
        yield "without a sign, or without a fix"
    if any(fix.text.startswith("Or ") for fix in failure.fix):
        yield "a fix does not begin with 'Or': the report adds it"
    links = [*failure.threads, *(example.source for example in failure.example)]
    links += [fact.source for fact in failure.known.values()]
    yield from (f"not a link: {link}" for link in links if not link.startswith("https://"))


def _problems_of_fixes(failure: Failure, of_change: bool) -> Iterator[str]:
    groups = {*failure.groups, *(name for sign in failure.sign for name in groups_of(sign.match))}
    used: set[str] = set(placeholders(failure.headline))
    for fix in failure.fix:
        used |= fix.placeholders | {*fix.when, *fix.unless}
        if not of_change:  # the row of a change is the source of its versions
            yield from _problems_of_commands(fix.commands)
    yield from (wrong for name in sorted(used) if (wrong := without_source(name, failure, groups)))
    by_facts = {"last"} if "run.python_wanted" in used else set()
    unused = failure.known.keys() - {name.partition(".")[2] for name in used} - by_facts
    yield from (f"known.{name} is not used" for name in sorted(unused))
    # A message in the words of a project or a tool is itself the advice: nothing to add is better
    # than to say that one should follow it.
    quotes = "message" in failure.groups
    if not quotes and not any(is_certain(fix) for fix in failure.fix):
        yield "no fix is left where nothing is known of the machine and the log names nothing"


def is_certain(fix: Fix) -> bool:
    """Return whether a fix is offered whatever is known."""
    needed = (fix.text, *(text for text in fix.commands if not text.startswith("? ")))
    names = [name for text in needed for name in placeholders(text)]
    return not fix.when and not fix.unless and all(name.startswith("known.") for name in names)


def without_source(name: str, failure: Failure, groups: set[str]) -> str | None:
    source, _, rest = name.partition(".")
    known: dict[str, bool] = {
        ValueSource.LOG: rest in groups,
        ValueSource.KNOWN: rest in failure.known,
        ValueSource.INSTALL: rest in list(ProvidedKind)
        and (rest in groups or rest in failure.known),
        ValueSource.SEARCH: rest in list(ProvidedKind) and rest in groups,
        ValueSource.MACHINE: name in NAMES,
        ValueSource.RUN: name in NAMES,
    }
    return None if known.get(source) else f"{{{name}}} has no source"


def _problems_of_commands(commands: Iterable[str]) -> Iterator[str]:
    for command in commands:
        text = _PLAIN_NUMBERS.sub("", re.sub(r"\{[a-z]+\.[a-z_]+\}", "", command))
        if (found := _VERSION.search(text)) and not _OF_WINDOWS.search(command):
            yield f"{command}: '{found[0]}' is written down; give it a source"
        if re.search(r"\brm -\w*r", command):
            yield f"{command}: a fix deletes no folder; rename it"


def groups_of(pattern: str) -> set[str]:
    return set(re.compile(pattern).groupindex)


def all_causes() -> list[Failure]:
    """Return all causes in alphabetical order; raise a ``ValueError`` that says what is wrong."""
    causes, wrong = [], []
    for file in FILES:
        try:
            causes.append(checked(file.read_bytes(), file.stem))
        except ValueError as error:
            wrong.append(str(error))
    for file in CHANGES:
        for row in rows(file):
            try:
                causes.append(checked_change(row))
            except ValueError as error:
                wrong.append(str(error))
    names = [cause.name for cause in causes]
    wrong += [f"{name}: is there twice" for name in sorted({*names}) if names.count(name) > 1]
    if wrong:
        raise ValueError("\n".join(wrong))
    return sorted(causes, key=lambda cause: cause.name)


def header(causes: Sequence[Failure], sizes: Iterable[int]) -> FailureIndex:
    """Return the first line of the index."""
    anchors: dict[str, list[int]] = {}
    for number, cause in enumerate(causes):
        for literal in sorted({one for sign in cause.sign for one in literals(sign.match)[0]}):
            anchors.setdefault(literal, []).append(number)
    return FailureIndex(
        sizes=tuple(sizes),
        causes=tuple(cause.name for cause in causes),
        anchors={literal: tuple(numbers) for literal, numbers in sorted(anchors.items())},
        confidence=load("confidence", ConfidenceTable),
        tools=load("shown_tools", ShownTools),
        literals=literals_of(
            [
                *steps.PATTERNS,
                *missing_headers.PATTERNS,
                *unlinked.PATTERNS,
                *interfaces.PATTERNS,
                *split_paths.PATTERNS,
            ]
        ),
    )


def literals_of(patterns: Iterable[str]) -> dict[str, str]:
    return {
        pattern: GROUPS.join(WORDS.join(sorted(words)) for words in found)
        for pattern in sorted({*patterns})
        if (found := literals(pattern))
    }


def index_text() -> str:
    """Return the index, which has a line for each cause."""
    causes = all_causes()
    products = load("releases", ReleaseTable).product
    patterns = [text for one in products for text in (*one.found, *one.means)]
    lines = [
        _json(IndexedProducts(products=products, literals=literals_of(patterns))),
        _json(IndexedOwners(owners=load("owners", OwnerTable))),
    ]
    for cause in causes:
        patterns = [*cause.excludes, *(text for sign in cause.sign for text in sign.patterns)]
        indexed = msgspec.structs.replace(cause, example=())
        lines.append(_json(IndexedCause(cause=indexed, literals=literals_of(patterns))))
    return b"".join([_json(header(causes, map(len, lines))), *lines]).decode()


def _json(line: FailureIndex | IndexedProducts | IndexedOwners | IndexedCause) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def examples() -> Iterator[tuple[str, str]]:
    """Yield the name of a cause and a log for each example of the entries.

    The entries are not checked: tests take their parameters from here, and each of their processes
    would check all entries.
    """
    for file in FILES:
        try:
            entry = msgspec.toml.decode(file.read_bytes(), type=Failure)
        except msgspec.DecodeError:
            continue  # said by the test of that file
        for example in entry.example:
            yield entry.name, example.log
    for file in CHANGES:
        try:
            found = rows(file)
        except ValueError:
            continue
        for change in found:
            for example in change.example:
                yield change.name, example.log


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(index_text())
