"""The step of a launcher's request, with text that is valid in events and in the history.

Names of files may be any bytes; JSON and the database take none that are no UTF-8.
"""

from functools import lru_cache

from msgspec.structs import replace

from stoker.govern.build_files import BuildFiles
from stoker.govern.command_line import as_remote, custom_step, step_of
from stoker.govern.protocol import Ask
from stoker.model.govern import Step


def asked_step(ask: Ask, root: str, files: BuildFiles) -> Step:
    """Return the step of a request. ``root`` is the folder of its run."""
    if ask.custom:
        step = custom_step(ask.command, ask.directory, root)
    else:
        threads = 1 if ask.remote else ask.cpus
        step = step_of(ask.command, ask.directory, root, files, threads=threads)
    if ask.remote:
        step = as_remote(step)
    return replace(
        step,
        source=valid_text(step.source),
        output=valid_text(step.output),
        directory=valid_text(step.directory),
        dependency_file=valid_text(step.dependency_file),
        compiler=valid_text(step.compiler),
        flags=_texts(step.flags),
    )


@lru_cache(256)  # steps of a target have the same flags
def _texts(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(valid_text, words))


def valid_text(words: str) -> str:
    """Return the text with what is no UTF-8 replaced."""
    if words.isascii():
        return words
    return words.encode(errors="surrogateescape").decode(errors="replace")
