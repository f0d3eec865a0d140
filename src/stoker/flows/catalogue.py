"""What there is to choose from: the options of a tree, the variants we know."""

from pathlib import Path

from stoker.knowledge.torch import forwarding
from stoker.model.errors import UsageError, nearest
from stoker.model.source import CMakeOption, ProjectKind, SourceTree
from stoker.model.value import Value
from stoker.source.tree import read_tree


class Listed(Value, frozen=True, kw_only=True):
    """An option and the environment variable that reaches it, where there is a front end."""

    option: CMakeOption
    variable: str | None


def options(source: Path, pattern: str) -> tuple[SourceTree, tuple[Listed, ...]]:
    """The options whose name or help holds the pattern, in the tree's own order."""
    tree = read_tree(source)
    wanted = pattern.casefold()
    found = tuple(
        _listed(tree, option)
        for option in tree.options
        if wanted in option.name.casefold() or wanted in option.help.casefold()
    )
    if not found and tree.options:
        near = nearest(pattern, {option.name for option in tree.options})
        raise UsageError(
            f"no option of {tree.name} holds '{pattern}'",
            hints=[f"nearest: {', '.join(near)}"] if near else [],
        )
    return tree, found


def _listed(tree: SourceTree, option: CMakeOption) -> Listed:
    pytorch = tree.kind is ProjectKind.PYTORCH
    return Listed(
        option=option, variable=forwarding().variable(option.name) if pytorch else None
    )
