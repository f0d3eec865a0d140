"""The environment of an isolated build back end."""

import json
from collections.abc import Sequence
from pathlib import Path

from stoker.builds.backend import Execute
from stoker.machine.installers import pip_in
from stoker.model.build import Isolation
from stoker.model.errors import CommandError, MissingError
from stoker.outside import process
from stoker.outside.deleting import remove_tree

# Run by the Python that has it: everything that torch needs, as files and folders to link to.
_PARTS_OF_TORCH = """
import sys; sys.path[:] = [folder for folder in sys.path if folder]  # not the current folder
import json, re
from importlib.metadata import PackageNotFoundError, distribution
waiting, seen, parts = ["torch"], set(), {}
while waiting:
    name = waiting.pop()
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        continue
    seen.add(key)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        if key == "torch":
            sys.exit("torch is not installed in " + sys.prefix)
        continue
    for file in found.files or ():
        if file.parts[0] != ".." and file.parts[0] != "__pycache__":
            parts[file.parts[0]] = str(found.locate_file(file.parts[0]))
    for line in found.requires or ():
        if "extra ==" not in line:
            waiting.append(re.match(r"[\\w.-]+", line)[0])
print(json.dumps(parts))
"""
_TIMEOUT_S = 60.0  # seconds
_NO_VENV = "Debian and Ubuntu have it in a package of its own: apt-get install -y python3-venv"


class Isolated:
    """The environment in ``folder``; commands go through ``execute``."""

    def __init__(self, folder: Path, execute: Execute):
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self._execute = execute

    def make(self, base: str, kind: Isolation) -> None:
        """Make the environment, replacing an old one, for the interpreter ``base``."""
        remove_tree(self.folder)
        if self._execute([base, "-m", "venv", str(self.folder)], self.folder.parent, {}):
            raise MissingError(f"{base} cannot make an environment", hints=[_NO_VENV])
        if kind is Isolation.TORCH:
            self._link(process.check([base, "-c", _PARTS_OF_TORCH], timeout=_TIMEOUT_S))

    def install(self, requirements: Sequence[str], *, index: str | None = None) -> None:
        """Install with pip, from its own index unless another one is named."""
        if not requirements:
            return
        source = ["--index-url", index] if index else []
        words = [*pip_in(self.python), "install", *source, *requirements]
        if self._execute(words, self.folder, {}):
            raise CommandError(
                "what the build needs could not be installed",
                hints=["--isolation none builds with the packages that are here"],
            )

    @staticmethod
    def version(folder: Path, package: str) -> str | None:
        """Return the version of a package in the environment."""
        found = folder.glob(f"lib/python*/site-packages/{package}-*.dist-info")
        name = next((path.name for path in found), None)
        return name.removesuffix(".dist-info").partition("-")[2] if name else None

    def _link(self, parts: str) -> None:
        here = self.folder / "here"
        here.mkdir()
        for name, path in json.loads(parts).items():
            (here / name).symlink_to(path)
        (packages,) = self.folder.glob("lib/python*/site-packages")
        (packages / "here.pth").write_text(f"{here}\n")
