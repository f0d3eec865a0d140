"""Containers as lines."""

from collections.abc import Sequence

from stoker.model.container import KeptContainer


def containers_text(containers: Sequence[KeptContainer]) -> str:
    if not containers:
        return "no container is kept\n"
    width = max(len(container.name) for container in containers)
    return "".join(f"{c.name:<{width}}  {c.status:<24}  {c.image}\n" for c in containers)
