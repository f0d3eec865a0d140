"""What tools say in other languages than English, and what Microsoft's tools say by code."""

from functools import cache

from stoker.knowledge import Row, file_content, load


class SystemMessages(Row, frozen=True, kw_only=True):
    """What Windows says itself: English texts with those of other languages, and what programs
    print before them.
    """

    begins: tuple[str, ...]
    said: dict[str, tuple[str, ...]]


class MicrosoftMessages(Row, frozen=True, kw_only=True):
    """The content of msvc_messages.toml: messages by code, with what they quote as numbers."""

    message: dict[str, str]
    system: SystemMessages


@cache
def microsoft_messages() -> dict[str, str]:
    return load("msvc_messages", MicrosoftMessages).message


@cache
def windows_messages() -> SystemMessages:
    return load("msvc_messages", MicrosoftMessages).system


@cache
def translations() -> tuple[str, ...]:
    """Return the rows of translations.tsv. The first one has the words for an error by language;
    the others have a language, an English message and its translation.
    """
    rows = file_content("translations.tsv").decode().splitlines()
    return tuple(row for row in rows if not row.startswith("#"))
