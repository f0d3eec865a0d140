"""The folder of toolchains, and the locks that keep a toolchain while a build uses it.

Every run imports this module, so it does not import what makes toolchains.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from stoker.model.errors import StorageError
from stoker.outside import folders, locks


def root() -> Path:
    return folders.data() / "toolchains"


def lock_of(path: Path) -> Path:
    """Return the lock that a build holds while it uses this toolchain."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def held_for(environment: Mapping[str, str]) -> Iterator[None]:
    """Keep the toolchains that a build with this environment uses while the block runs."""
    with ExitStack() as stack:
        for path in root().glob("[!.]*/"):
            if any(str(path) in value for value in environment.values()):
                # Where we cannot write, a toolchain is not removed by us either.
                with suppress(StorageError):
                    held = locks.held(lock_of(path), shared=True, waiting=lambda: None)
                    stack.enter_context(held)
        yield
