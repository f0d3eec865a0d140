"""A place beside the package indexes where wheels of some projects are published.

Apart from the table of them, because the settings of every run have such places.
"""

from fnmatch import fnmatchcase

from stoker.model.value import Value


class WheelSource(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of ``index``, ``links`` and ``releases`` is given. In the first two, ``{torch}`` is the
    release of the installed PyTorch, and ``{cuda}`` its toolkit, such as ``cu130``, or ``cpu``.
    """

    projects: tuple[str, ...]  # names or patterns
    index: str = ""  # the root of a package index
    links: str = ""  # a page with links to wheels
    releases: str = ""  # OWNER/NAME on GitHub, or the address that lists releases as GitHub does
    files: str = "*.whl"  # a pattern for the names of files

    def __post_init__(self) -> None:
        if sum(map(bool, (self.index, self.links, self.releases))) != 1:
            raise ValueError("give one of index, links and releases")

    @property
    def place(self) -> str:
        return self.index or self.links or self.releases

    def serves(self, project: str) -> bool:
        return any(fnmatchcase(project, pattern) for pattern in self.projects)
