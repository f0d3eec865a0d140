"""Renders the options of a tree: default, condition, help, and where each is declared."""

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.model.source import ListedOption, ProjectKind, SourceTree
from stoker.outside.terminal import Indented


def options_page(tree: SourceTree, listed: tuple[ListedOption, ...]) -> RenderableType:
    lines: list[RenderableType] = []
    for item in listed:
        lines += _lines(item, pytorch=tree.kind is ProjectKind.PYTORCH)
    noun = "option" if len(listed) == 1 else "options"
    lines.append(Text(f"{len(listed)} {noun} of {tree.name} {tree.version or ''}".strip()))
    for note in tree.notes:
        lines.append(Text(f"note: {note}", style="yellow"))
    return Group(*lines)


def _lines(item: ListedOption, *, pytorch: bool) -> list[RenderableType]:
    option = item.option
    head = Text.assemble((option.name, "bold"), f" = {option.default or '(empty)'}")
    head.append(f"  {option.kind}, {option.type}, {option.file}:{option.line}", style="dim")
    lines: list[RenderableType] = [head]
    if option.help:
        lines.append(Indented(option.help, 4))
    if option.condition:
        lines.append(_note(f"if {option.condition}, else {option.otherwise}", "cyan"))
    if option.within:
        lines.append(_note(f"declared where {option.within}", "cyan"))
    if pytorch and item.variable is None:
        lines.append(_note("not passed on by the front end: set it with cmake -D", "yellow"))
    return lines


def _note(text: str, style: str) -> Indented:
    return Indented(Text(text, style=style), 4)
