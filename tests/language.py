"""Checks the words of every text file in the repository against tests/language.toml.

    python tests/language.py

Prints FILE:LINE, the banned phrase and what to write instead, and exits with status 1. `make lint`
runs it.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RULES = Path(__file__).with_suffix(".toml")
WORDS = "(?<![a-zA-Z])(?:{})(?![a-zA-Z])"


class Rule(NamedTuple):
    """A banned phrase and the advice for the author."""

    pattern: re.Pattern[str]
    instead: str


class Offence(NamedTuple):
    """A banned phrase found in a text, with its line number."""

    line: int
    phrase: str
    instead: str


def read_rules(path: Path = RULES) -> list[Rule]:
    """Return the rules of language.toml. A space also matches a line break or an underscore."""
    phrases = tomllib.loads(path.read_text())["phrases"]
    return [
        Rule(re.compile(WORDS.format(phrase.replace(" ", r"[\s_]+")), re.IGNORECASE), advice)
        for phrase, advice in phrases.items()
    ]


def offences(text: str, rules: list[Rule]) -> Iterator[Offence]:
    """Yield every match of a rule, rule by rule."""
    for rule in rules:
        for match in rule.pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Offence(line, " ".join(match.group().split()), rule.instead)


def text_files() -> list[str]:
    """Return the files to check, relative to the repository."""
    settings = tomllib.loads(RULES.read_text())
    paths = [path for folder in settings["folders"] for path in (ROOT / folder).rglob("*")]
    names = [path.relative_to(ROOT).as_posix() for path in (*ROOT.iterdir(), *paths)]
    suffixes, foreign = tuple(settings["suffixes"]), tuple(settings["foreign"])
    return sorted(n for n in names if n.endswith(suffixes) and not n.startswith(foreign))


def main() -> int:
    """Print all offences; return 1 if there are any."""
    rules = read_rules()
    count = 0
    for name in text_files():
        text = (ROOT / name).read_text(errors="replace")
        for offence in sorted(offences(text, rules)):
            count += 1
            sys.stdout.write(f"{name}:{offence.line}: {offence.phrase!r}: {offence.instead}\n")
    if count:
        sys.stdout.write(f"{count} banned phrases; the rules are in {RULES.relative_to(ROOT)}\n")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
