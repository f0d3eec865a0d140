"""Reads versions, requirements and tags of Python packages from untrusted text.

``packaging`` reads them. What would make it fail with other errors than its own is refused first:
numbers with too many digits, deep nesting, tags that stand for millions.
"""

import re
from collections.abc import Iterable
from itertools import islice

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import NormalizedName, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_LONGEST = 10_000  # characters of a requirement, which may hold a URL and a marker
_HUGE_NUMBER = re.compile(r"\d{100}")
_TAG = re.compile(r"[0-9A-Za-z_.]+-[0-9A-Za-z_.]+-[0-9A-Za-z_.]+")
_MOST_IN_A_TAG = 30  # dots: a line stands for the product of its three sets
_MOST_IN_A_NAME = 40  # dots of a wheel's name, with those of its version
_MOST_TAGS = 5000  # of a wheel


def read_version(text: str) -> Version:
    """Return the version; raise InvalidVersion if the text is none."""
    if len(text) > _LONGEST or _HUGE_NUMBER.search(text):
        raise InvalidVersion(f"Invalid version: {text[:40]!r}... has {len(text)} characters")
    return Version(text)


def read_wheel_name(file: str) -> tuple[NormalizedName, Version, frozenset[Tag]]:
    """Return project, version and tags of a wheel's file name; raise ValueError if it is none."""
    if file.count(".") > _MOST_IN_A_NAME:
        raise ValueError(f"{file[:40]!r}... stands for too many tags")
    name, version, _, tags = parse_wheel_filename(file)
    return name, version, tags


def read_requirement(text: str) -> Requirement:
    """Return the requirement; raise InvalidRequirement if the text is none."""
    if len(text) > _LONGEST or _HUGE_NUMBER.search(text):
        raise InvalidRequirement(f"{text[:40]!r}... has {len(text)} characters, or a huge number")
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement(f"{text[:40]!r}... is nested too deeply") from None


def read_tags(lines: Iterable[str]) -> frozenset[Tag]:
    """Return every tag that the lines stand for, up to some thousands."""
    tags: set[Tag] = set()
    for line in islice(lines, _MOST_TAGS):
        if len(tags) > _MOST_TAGS:
            break
        tags |= read_tag(line)
    return frozenset(tags)


def read_tag(line: str) -> frozenset[Tag]:
    """Return every tag that a line such as ``py2.py3-none-any`` stands for; none if it is wrong."""
    if not _TAG.fullmatch(line) or line.count(".") > _MOST_IN_A_TAG:
        return frozenset()
    try:
        return parse_tag(line)
    except ValueError:  # an empty part
        return frozenset()
