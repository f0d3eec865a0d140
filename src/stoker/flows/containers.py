"""`stoker container`: what builds have left."""

import os
from collections.abc import Iterable

from stoker.build.container import kept
from stoker.build.container.engine import find_engine
from stoker.model.container import EngineKind, KeptContainer
from stoker.outside import process


def containers(engine: str | None) -> tuple[KeptContainer, ...]:
    return kept.kept_containers(find_engine(EngineKind(engine) if engine else None))


def enter(name: str, engine: str | None, *, terminal: bool) -> int:
    """The status of the shell."""
    found = find_engine(EngineKind(engine) if engine else None)
    words = kept.shell_words(found, name, terminal=terminal)
    return process.start(words, env=os.environ).wait()


def remove_containers(names: Iterable[str], engine: str | None) -> None:
    found = find_engine(EngineKind(engine) if engine else None)
    for name in names:
        kept.remove(found, name)
