"""Fills the fixes of a cause in: each placeholder from its source, or the fix is not offered."""

import re
from collections.abc import Iterable, Mapping, Sequence

from stoker.diagnose import machine_facts, run_facts
from stoker.diagnose.about import About
from stoker.diagnose.installing import install_commands, search_command
from stoker.diagnose.values import FilledFix
from stoker.knowledge.failures import Failure, Fix, Shell, ValueSource, filled, placeholders
from stoker.knowledge.providers import ProvidedKind
from stoker.model.secrets import redact

_FACTS = {**run_facts.FACTS, **machine_facts.FACTS}
NAMES: Mapping[str, str] = {name: what for name, (what, _) in sorted(_FACTS.items())}
_OPTIONAL = "? "  # before a command that is left out if it cannot be filled in
_COMMAND = "run.command"
_GOVERNED_TWICE = re.compile(r"\bstoker run((?: \S+)*?) -- stoker (\w+)")
_LONGEST = 300  # characters of a value in a text


def answers(cause: Failure, about: About) -> tuple[FilledFix, ...]:
    """Return the fixes of a cause that can be filled in, the best first. A last one that is the
    same everywhere and has no command is offered only if no other is.
    """
    found = [fix for template in cause.fix if (fix := _filled(template, about))]
    last = cause.fix[-1]
    is_general = not (last.commands or last.build or last.placeholders)
    return tuple(found[:-1] if is_general and len(found) > 1 else found)


def headline(cause: Failure, about: About) -> str:
    """Return the title of a cause, with what the log names if it names all of it."""
    return _text(cause.headline, about) or cause.title if cause.headline else cause.title


def value(name: str, about: About) -> str | None:
    """Return the value of a placeholder, such as ``log.header``; ``None`` if it is not known."""
    source, _, rest = name.partition(".")
    if source == ValueSource.LOG:
        return _listed(about.groups.get(rest, ()))
    if source == ValueSource.KNOWN:
        return about.known[rest].value if rest in about.known else None
    if source == ValueSource.INSTALL:
        return _install(ProvidedKind(rest), about)
    if source == ValueSource.SEARCH:
        words = about.words(rest)
        return search_command(ProvidedKind(rest), words[0], about.here) if words else None
    return _FACTS[name][1](about) or None


def _filled(fix: Fix, about: About) -> FilledFix | None:
    if not all(value(name, about) for name in fix.when):
        return None
    if any(value(name, about) for name in fix.unless):
        return None
    text, commands = _text(fix.text, about), _commands(fix, about)
    if text is None or commands is None:
        return None
    return FilledFix(text=text, commands=commands, build=_build(fix, about), shell=fix.shell)


def _text(template: str, about: About) -> str | None:
    values = {name: redact(value(name, about) or "")[:_LONGEST] for name in placeholders(template)}
    return filled(template, values) if all(values.values()) else None


def _commands(fix: Fix, about: About) -> tuple[str, ...] | None:
    """Return the commands without optional ones that lack a value; ``None`` if another one does."""
    lines: list[str] = []
    for template in fix.commands:
        command = _command(template.removeprefix(_OPTIONAL), about)
        if command is None and not template.startswith(_OPTIONAL):
            return None
        lines += (command or "").splitlines()
    return tuple(lines)


def _command(template: str, about: About) -> str | None:
    """Return a command; values of the log in it must be words that cannot be commands."""
    values = {name: _word(name, about) for name in placeholders(template)}
    known = {name: text for name, text in values.items() if text}
    return redact(filled(template, known)) if len(known) == len(values) else None


def _word(name: str, about: About) -> str | None:
    source, _, rest = name.partition(".")
    return " ".join(about.words(rest)) if source == ValueSource.LOG else value(name, about)


def _build(fix: Fix, about: About) -> str:
    if fix.shell is not Shell.SH or not (fix.commands or fix.build):
        return ""
    return governed_once(_command(fix.build or f"{{{_COMMAND}}}", about) or "")


def governed_once(command: str) -> str:
    """Return the command without `stoker run`, if stoker already governs what it would run. The
    options of `run` are also those of a build.
    """
    return _GOVERNED_TWICE.sub(r"stoker \2\1", command)


def _install(kind: ProvidedKind, about: About) -> str | None:
    of_conda = any("-conda-linux-gnu-" in line.text for line in about.lines)
    commands = install_commands(
        kind, about.words(kind), about.here, python=about.python, conda_build=of_conda
    )
    return "\n".join(commands) or None


def _listed(found: Sequence[str]) -> str | None:
    if len(found) < 2:
        return found[0] if found else None
    return f"{', '.join(found[:-1])} and {found[-1]}"


def unfilled(texts: Iterable[str]) -> list[str]:
    """Return templates for people who read of a cause: a placeholder is its name in brackets."""
    return [
        filled(text.removeprefix(_OPTIONAL), {name: _shown(name) for name in placeholders(text)})
        for text in texts
    ]


def _shown(name: str) -> str:
    source, _, rest = name.partition(".")
    before = {ValueSource.INSTALL: "install the ", ValueSource.SEARCH: "search for the "}.get(
        ValueSource(source), ""
    )
    return f"<{before}{rest.replace('_', ' ')}>"
