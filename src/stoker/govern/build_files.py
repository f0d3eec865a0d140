"""What files tell of a command: sizes of inputs, words of response files, which compiler it is.

Never runs anything: a compiler is known by its real name and size, which change with its version
and are the same on the next machine that has the same package.
"""

import shutil
from functools import cache
from pathlib import Path

_LONGEST = 1 << 22  # bytes of a response file that are read


class BuildFiles:
    """What is not there, or not to be read, has no size, words or identity."""

    def size(self, path: str) -> int:
        try:
            return Path(path).stat().st_size
        except (OSError, ValueError):
            return 0

    def text(self, path: str) -> str:
        try:
            if not Path(path).is_file():  # a pipe would have us wait
                return ""
            with Path(path).open("rb") as stream:
                return stream.read(_LONGEST).decode(errors="surrogateescape")
        except (OSError, ValueError):
            return ""

    def identity(self, program: str) -> str:
        return _identity(program)


@cache
def _identity(program: str) -> str:
    try:
        real = Path(shutil.which(program) or program).resolve()
        return f"{real.name} {real.stat().st_size}"
    except (OSError, ValueError, RuntimeError):
        return ""
