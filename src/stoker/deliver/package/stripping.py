"""Debug information moved out of a library into a file of its own, which the library names."""

import shutil
from pathlib import Path

from stoker.model.errors import CommandError, MissingError
from stoker.outside import process

_TOOLS = ("objcopy", "llvm-objcopy")
_PATIENCE = 600.0
DEBUG_SUFFIX = ".debug"


def find_tool() -> str:
    for name in _TOOLS:
        if tool := shutil.which(name):
            return tool
    raise MissingError(
        f"stripping takes {' or '.join(_TOOLS)}, and neither is here",
        hints=["apt-get install binutils, or leave out --strip"],
    )


def split(library: Path, debug: Path, *, tool: str) -> None:
    """Strip a library in place; what was taken out becomes ``debug``."""
    stripped = library.with_name(f"{library.name}.stripped")
    try:
        process.check([tool, "--only-keep-debug", library, debug], timeout=_PATIENCE)
        process.check(
            [tool, "--strip-unneeded", f"--add-gnu-debuglink={debug}", library, stripped],
            timeout=_PATIENCE,
        )
    except CommandError as error:
        raise CommandError(
            f"{library.name} cannot be stripped: {error.message}",
            output=error.output,
            hints=["binutils strips libraries of its own machine; llvm-objcopy strips all"],
        ) from None
    stripped.replace(library)
