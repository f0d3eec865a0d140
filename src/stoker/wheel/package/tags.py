"""The platform tags of the packaged wheel, as its symbols allow. Pure."""

from collections.abc import Sequence

from stoker.knowledge.wheels import PlatformPolicy, policies
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import UsageError
from stoker.wheel.runs_on import oldest_manylinux


def new_tags(
    tags: Sequence[str], libraries: Sequence[LibraryFacts], machine: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return tags that match the symbols, and notes. Tags that match already are kept."""
    needed = oldest_manylinux(libraries)
    if needed is None:
        newest = policies()[-1].name
        plain = tuple(dict.fromkeys(_with_platform(tag, f"linux_{machine}") for tag in tags))
        return plain, (f"no manylinux tag fits: it needs newer symbols than {newest} has",)
    made = [_honest(tag, needed, machine) for tag in tags]
    return tuple(dict.fromkeys(made)), ()


def _honest(tag: str, needed: str, machine: str) -> str:
    platform = tag.rpartition("-")[2]
    if not platform.startswith(("linux_", "manylinux")) and platform != "any":
        raise UsageError(f"the wheel is for {platform}: only Linux with glibc is supported")
    enough = {name for row in _from(needed) for name in (row.name, *row.aliases)}
    kept = [part for part in platform.split(".") if part.removesuffix(f"_{machine}") in enough]
    return _with_platform(tag, ".".join(kept) or f"{needed}_{machine}")


def _from(needed: str) -> Sequence[PlatformPolicy]:
    """Return the policy of a tag and all newer ones."""
    names = [policy.name for policy in policies()]
    return policies()[names.index(needed) :]


def _with_platform(tag: str, platform: str) -> str:
    return f"{tag.rpartition('-')[0]}-{platform}"
