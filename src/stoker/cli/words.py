"""The words behind `stoker plan` and `doctor`: a variant, a source, or both in any order."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast

import click

from stoker.cli.request import F
from stoker.model.errors import UnknownWordError, UsageError
from stoker.model.source import SourceKind
from stoker.outside.looking import exists, is_file, is_folder


def variant_words(function: F) -> F:
    """Add the argument VARIANT, which may have several words; --variant says the same. A word that
    cannot be a part of the variant names the source, and a source that is no folder is put into the
    cache: the function receives a folder.
    """

    @wraps(function)
    def with_source(words: tuple[str, ...], **options: Any) -> Any:
        folders = [word for word in words if is_folder(word)]
        if (
            any("/" in word or word in (".", "..") for word in folders)
            or any(map(_is_fetched, words))
            or (options.get("variant") and folders)
        ):
            words, options = _source_among(words, options)
        try:
            return with_folder(words, options)
        except UnknownWordError as error:
            if error.text != " ".join(words) or not any(map(_names_a_source, words)):
                raise
        return with_folder(*_source_among(words, options))

    def with_folder(words: tuple[str, ...], options: dict[str, Any]) -> Any:
        with folder_of(options.get("source")) as folder:
            return function(words=words, **options | {"source": folder})

    return click.argument("words", nargs=-1, metavar="[VARIANT]...")(cast("F", with_source))


@contextmanager
def folder_of(source: str | None) -> Iterator[str | None]:
    """Yield the folder of a source as `stoker build` takes it. A word that names none is left to
    the function that reads the folder: its error names the next step.
    """
    if source is None or not (_is_fetched(source) or is_file(source)):
        yield source
        return
    from stoker.builds.acquire.kept_sources import acquired
    from stoker.outside.terminal import tell

    def say(text: str) -> None:
        tell(f"stoker: {text}")

    with acquired(source, say=say) as found:
        for note in found.notes:
            say(note)
        yield found.path


def _is_fetched(word: str) -> bool:
    """Return whether the word names a source that is not a folder. A word of a variant has none of
    the marks of a source.
    """
    if not (re.search(r"[/:@]|==", word) or _is_there(word)):
        return False
    from stoker.builds.acquire.naming import parse_source

    try:
        return parse_source(word).kind is not SourceKind.FOLDER
    except UsageError:
        return False


def _is_there(word: str) -> bool:
    """Return whether a word is a file or a folder. A path that the user spells out must be one that
    this user may look at; any other word in a closed folder is only a word.
    """
    return Path(word).exists() if "/" in word else exists(word)


def _names_a_source(word: str) -> bool:
    return _is_there(word) or word.startswith(("/", "./", "../")) or _is_fetched(word)


def _source_among(
    words: tuple[str, ...], options: dict[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the words without the one that names a source, and the options with it; the function
    that reads the source says what is wrong with it.
    """
    source = next(filter(_names_a_source, sorted(words, key=lambda word: not is_folder(word))))
    if options.get("source") or options.get("listed"):
        check_no_folder((source,), "a variant")
        if _is_fetched(source):
            raise UsageError(f"'{source}' is a source, not a variant")
    return tuple(word for word in words if word != source), options | {"source": source}


def check_no_folder(words: Sequence[str], what: str) -> None:
    """Raise an error for a folder among words that mean something else, as in `stoker plan .`."""
    for word in words:
        if is_folder(word):
            context = click.get_current_context()
            command = context.info_name if "source" in context.params else "plan"
            others = [other for other in words if other != word]
            if variant := context.params.get("variant"):
                others += ["--variant", variant]
            hint = f"`stoker {command} {shlex.join([*others, '--source', word])}`"
            raise UsageError(f"'{word}' is a folder, not {what}", hints=[hint])
