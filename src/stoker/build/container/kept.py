"""Containers of ours that are there still."""

from stoker.build.container.arguments import LABEL, exec_words
from stoker.model.container import Engine, EngineKind, KeptContainer
from stoker.model.errors import UsageError, unknown
from stoker.outside import process

_TIMEOUT_S = 300.0  # seconds
_IMAGE = {
    EngineKind.PODMAN: f'{{{{index .Labels "{LABEL}"}}}}',
    EngineKind.DOCKER: f'{{{{.Label "{LABEL}"}}}}',
}


def kept_containers(engine: Engine) -> tuple[KeptContainer, ...]:
    form = f"{{{{.Names}}}}\t{_IMAGE[engine.kind]}\t{{{{.Status}}}}"
    words = ("ps", "--all", "--filter", f"label={LABEL}", "--format", form)
    told = process.check([engine.program, *words], timeout=_TIMEOUT_S)
    rows = (line.split("\t") for line in told.splitlines() if line.count("\t") == 2)
    return tuple(
        KeptContainer(name=name, engine=engine.kind, image=image, status=status)
        for name, image, status in rows
    )


def shell_words(engine: Engine, name: str, *, terminal: bool) -> tuple[str, ...]:
    """Start the container where it does not run; the command that leads into it."""
    _check(engine, name)
    process.check([engine.program, "start", name], timeout=_TIMEOUT_S)
    return exec_words(
        engine, name, ("sh",), variables=("TERM",), interactive=True, terminal=terminal
    )


def remove(engine: Engine, name: str) -> None:
    _check(engine, name)
    process.check([engine.program, "rm", "--force", name], timeout=_TIMEOUT_S)


def _check(engine: Engine, name: str) -> None:
    """Another's is none of our business."""
    names = [container.name for container in kept_containers(engine)]
    if not names:
        raise UsageError("no container is kept", hints=["`stoker build --container --keep` does"])
    if name not in names:
        raise unknown("container", name, names, hint="`stoker container list` names them")
