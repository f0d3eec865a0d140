"""Lists, enters and removes the containers that `stoker build --container --keep` leaves."""

import os
from collections.abc import Iterable, Sequence

from stoker.builds.containers.engine import ContainerEngine, EngineKind, find_engine
from stoker.builds.containers.words import LABEL, exec_words
from stoker.model.errors import UsageError, unknown
from stoker.model.value import Value
from stoker.outside import process

_CONTAINER_TIMEOUT_S = 300.0
_IMAGE = {
    EngineKind.PODMAN: f'{{{{index .Labels "{LABEL}"}}}}',
    EngineKind.DOCKER: f'{{{{.Label "{LABEL}"}}}}',
}


class KeptContainer(Value, frozen=True, kw_only=True):
    name: str
    engine: EngineKind
    image: str
    status: str


def containers(engine: EngineKind | None) -> tuple[KeptContainer, ...]:
    """Return the containers that builds have left."""
    return _containers(find_engine(engine))


def enter_container(name: str, engine: EngineKind | None, *, terminal: bool) -> int:
    """Start a container if it does not run, open a shell in it, and return the shell's status."""
    found = find_engine(engine)
    _check(name, found)
    process.check([found.program, "start", name], timeout=_CONTAINER_TIMEOUT_S)
    words = exec_words(
        found, name, ("sh",), variables=("TERM",), interactive=True, terminal=terminal
    )
    return process.start(words, env=os.environ).wait()


def remove_containers(names: Iterable[str], engine: EngineKind | None) -> None:
    found = find_engine(engine)
    for name in names:
        _check(name, found)
        process.check([found.program, "rm", "--force", name], timeout=_CONTAINER_TIMEOUT_S)


def _containers(engine: ContainerEngine) -> tuple[KeptContainer, ...]:
    form = f"{{{{.Names}}}}\t{_IMAGE[engine.kind]}\t{{{{.Status}}}}"
    words = ("ps", "--all", "--filter", f"label={LABEL}", "--format", form)
    told = process.check([engine.program, *words], timeout=_CONTAINER_TIMEOUT_S)
    rows = (line.split("\t") for line in told.splitlines() if line.count("\t") == 2)
    return tuple(
        KeptContainer(name=name, engine=engine.kind, image=image, status=status)
        for name, image, status in rows
    )


def _check(name: str, engine: ContainerEngine) -> None:
    """Raise UsageError for a container that stoker did not make."""
    known = [container.name for container in _containers(engine)]
    if not known:
        raise UsageError(
            "no container is kept", hints=["`stoker build --container --keep` keeps one"]
        )
    if name not in known:
        raise unknown("container", name, known, hint="`stoker container list` lists them")


def containers_text(containers: Sequence[KeptContainer]) -> str:
    if not containers:
        return "no container is kept\n"
    width = max(len(container.name) for container in containers)
    return "".join(f"{c.name:<{width}}  {c.status:<24}  {c.image}\n" for c in containers)
