"""What the user asks of a package."""

from enum import StrEnum

from stoker.model.value import Value


class PackageMode(StrEnum):
    """Where a packaged wheel gets NVIDIA's libraries from."""

    PYPI = "pypi"  # from NVIDIA's own packages, which it requires
    BUNDLE = "bundle"  # from itself
    PLAIN = "plain"  # unchanged: only tags and search paths are corrected


class PackageRequest(Value, frozen=True, kw_only=True):
    """The user's options; ``None`` means that the wheel decides."""

    mode: PackageMode
    libraries: tuple[str, ...] = ()  # folders, wheels and folders of wheels to search
    exclude: tuple[str, ...] = ()  # patterns of libraries that the target machine provides
    requires: tuple[str, ...] = ()
    like: str | None = None  # the PyTorch release whose requirements are used
    torch: str | None = None  # the PyTorch version that an extension was built against
    cuda: str | None = None
    label: str | None = None  # of the version; empty removes it
    strip: bool = False
