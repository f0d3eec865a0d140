"""Fills the templates of exported files, which lie in ``templates/``.

A placeholder is written ``@@{name}``, because every target language uses the dollar sign. In a file
of YAML a value replaces a node, and the library writes it: no text of a user can become a key,
another type or a comment. Other formats get values that `quoting.py` wrote.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from io import StringIO
from itertools import takewhile
from string import Template
from typing import Any

_START = "@@{"
_WIDTH = 1 << 20  # a folded line would break commands


class _Template(Template):
    delimiter = "@@"


def fill_template(name: str, values: Mapping[str, object]) -> str:
    """Return a template with the text of each value in place of its placeholder."""
    return _Template(_text_of(name)).substitute(values)


def fill_yaml(name: str, values: Mapping[str, object]) -> str:
    """Return a template of YAML with its placeholders replaced.

    A node that is one placeholder becomes its value, which may be a number, a list or a mapping. It
    is left out if that is None, and a list within a list adds its items. Comments before the first
    node stay comments.
    """
    written = StringIO()
    _yaml().dump(filled_yaml(name, values), written)
    lines = _text_of(name).splitlines()
    comments = takewhile(lambda line: line.startswith("#"), lines)
    return "".join(_comments(comments, values)) + written.getvalue()


def filled_yaml(name: str, values: Mapping[str, object]) -> Any:
    """Return the first node of a template of YAML with its placeholders replaced."""
    return _filled(_yaml().load(_text_of(name)), values)


def _yaml() -> Any:
    from ruamel.yaml import YAML  # only exports need it

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    yaml.allow_unicode = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _text_of(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.template").read_text()


def _comments(lines: Iterable[str], values: Mapping[str, object]) -> Iterator[str]:
    """Yield lines of comments, all of whose lines stay comments."""
    for line in lines:
        beginning = line[: len(line) - len(line.lstrip("# "))]
        text = _Template(line.removeprefix(beginning)).substitute(values)
        for each in text.splitlines():
            yield beginning + "".join(c if c.isprintable() else " " for c in each) + "\n"


def _filled(node: Any, values: Mapping[str, object]) -> Any:
    """Return a node of a template with its values, in the style that the template gives it."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(node, CommentedMap):
        filled: Any = CommentedMap()
        for key, each in node.items():
            value = _filled(each, values)
            if value is not None or each is None:
                filled[_filled(key, values)] = value
    elif isinstance(node, CommentedSeq):
        filled = CommentedSeq()
        for each in node:
            value = _filled(each, values)
            splice = isinstance(value, CommentedSeq) and not isinstance(each, CommentedSeq)
            filled.extend(value if splice else [] if value is None else [value])
    elif not isinstance(node, str) or _START not in node:
        return node
    elif (name := _only_placeholder(node)) is not None:
        return _written(values[name])
    else:
        return type(node)(_Template(node).substitute(values))
    if node.fa.flow_style():
        filled.fa.set_flow_style()
    return filled


def _only_placeholder(text: str) -> str | None:
    """Return the name of the placeholder if a text is nothing else."""
    name = text.removeprefix(_START).removesuffix("}")
    return name if text == f"{_START}{name}}}" and name.isidentifier() else None


def _written(value: object) -> Any:
    """Return a value as a node. A text has quotes, so that every version of YAML reads a text;
    one that ends a line is a script.
    """
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, CommentedMap):
        return value
    if isinstance(value, str):
        kind = LiteralScalarString if value.endswith("\n") else DoubleQuotedScalarString
        return kind(value)
    if isinstance(value, Mapping):
        return CommentedMap((key, _written(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return CommentedSeq(map(_written, value))
    return value
