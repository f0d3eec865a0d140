"""Moves debug information out of a library into a separate file, which the library refers to."""

import shutil
from pathlib import Path

from stoker.model.errors import CommandError, MissingError
from stoker.outside import process

_TOOLS = ("objcopy", "llvm-objcopy")
_TIMEOUT_S = 600.0
DEBUG_SUFFIX = ".debug"


def find_tool() -> str:
    for name in _TOOLS:
        if tool := shutil.which(name):
            return tool
    raise MissingError(
        f"--strip needs {' or '.join(_TOOLS)}, and neither was found",
        hints=["run apt-get install binutils, or leave out --strip"],
    )


def split(library: Path, debug: Path, *, tool: str) -> None:
    """Strip a library in place; write the debug information to ``debug``."""
    stripped = library.with_name(f"{library.name}.stripped")
    try:
        process.check([tool, "--only-keep-debug", library, debug], timeout=_TIMEOUT_S)
        process.check(
            [tool, "--strip-unneeded", f"--add-gnu-debuglink={debug}", library, stripped],
            timeout=_TIMEOUT_S,
        )
    except CommandError as error:
        raise CommandError(
            f"{library.name} cannot be stripped: {error.message}",
            output=error.output,
            hints=["install llvm-objcopy: objcopy of binutils handles one architecture only"],
        ) from None
    stripped.replace(library)
