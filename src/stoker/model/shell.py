"""Shell commands, made of templates and of text from outside.

Text of a log, a source tree, a wheel, an index or a machine is never a command. ``fill`` alone
makes it part of one, as a database does with the parameters of a statement: each of its words is
quoted as one word, or the command is not made. mypy enforces it: nothing else returns a
`ShellScript`.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Literal, NewType

from stoker.model.secrets import HIDDEN
from stoker.model.value import Value

ShellScript = NewType("ShellScript", str)  # commands for sh, or a part of one, that are safe to run
Template = NewType("Template", str)  # a script of ours, with placeholders such as {log.header}

NOTHING = ShellScript("")
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z][a-z_.]*)\}")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)  # means the same in quotes and without them
_MARKS = re.compile(r"\\.|\$\(|\$\{|[)}'\"`]", re.DOTALL)
_ENDS = {"'": "'", '"': '"', "`": "`", "$(": ")", "${": "}"}
_SPLITS = ("", "$(")  # where a quoted word is one word


class Outside(Value, frozen=True, kw_only=True):
    """Text from outside: words that may become words of a command, and nothing else."""

    words: tuple[str, ...]

    @property
    def listed(self) -> str:
        """The words as people list them."""
        *others, last = self.words or ("",)
        return f"{', '.join(others)} and {last}" if others else last


def outside(*words: str) -> Outside:
    return Outside(words=words)


def fill(template: Template, values: Mapping[str, Outside | ShellScript]) -> ShellScript | None:
    """Return a template with the values of its placeholders. ``None`` if one of them is missing or
    cannot be there as words: if it has invisible characters, if it looks like an option,
    or if it is not plain where the template has quotes.
    """
    made, end = "", 0
    for found in PLACEHOLDER.finditer(template):
        value = values.get(found[1])
        text = None if value is None else _inserted(value, template[: found.start()])
        if text is None:
            return None
        made += template[end : found.start()] + text
        end = found.end()
    return ShellScript(made + template[end:])


def quoted(words: Iterable[str]) -> ShellScript | None:
    """Return the command with these words, which the user gave; options are allowed."""
    words = tuple(words)
    return ShellScript(shlex.join(words)) if words and all(map(str.isprintable, words)) else None


def recorded(command: str) -> ShellScript | None:
    """Return a command that stoker has recorded as words, quoted for a shell; ``None`` if it is
    none, or if a secret was removed from it.
    """
    try:
        return None if HIDDEN in command else quoted(shlex.split(command))
    except ValueError:
        return None


def joined(scripts: Iterable[ShellScript], by: Literal[" ", "\n"] = "\n") -> ShellScript | None:
    """Return commands one below the other, or parts of one command; ``None`` without any."""
    return ShellScript(by.join(scripts)) or None


def lines(script: ShellScript) -> tuple[ShellScript, ...]:
    """Return the commands of a script."""
    return tuple(map(ShellScript, script.split("\n")))


def with_arguments(script: ShellScript, command: ShellScript) -> ShellScript:
    """Return a script with the arguments of its shell in the place of a command in it."""
    before, _, after = script.rpartition(command) if command else ("", "", "")
    return ShellScript(f'{before}"$@"{after}')


def is_plain(word: str) -> bool:
    """Return whether a word is the same with and without quotes, also for other shells."""
    return bool(_PLAIN.fullmatch(word))


def _inserted(value: Outside | ShellScript, before: str) -> str | None:
    splits = _enclosing(before) in _SPLITS
    if not isinstance(value, Outside):
        return value if splits or all(map(is_plain, value.split(" "))) else None
    if not value.words:
        return None
    begins = not before or before[-1] in " \t\n(\"'"
    for word in value.words:
        if not (is_plain(word) or (splits and word and word.isprintable())):
            return None
        if begins and word.startswith("-"):
            return None
        begins = True
    return shlex.join(value.words)


def _enclosing(before: str) -> str:
    """Return what encloses the end of a piece of a script: a quote, ``$(``, ``${`` or nothing."""
    open_marks = [""]
    for mark in _MARKS.findall(before):
        inside = open_marks[-1]
        if mark[-1] == _ENDS.get(inside) and (mark[0] != "\\" or inside == "'"):
            open_marks.pop()
        elif mark in _ENDS and inside != "'" and not (mark == "'" and inside == '"'):
            open_marks.append(mark)
    return open_marks[-1]
