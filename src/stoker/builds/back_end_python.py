"""The Python that runs a build back end, and the packages that it sees there."""

import json
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.builds import named_torch
from stoker.builds.backend import BackEnd, Execute
from stoker.builds.digests import digest
from stoker.builds.work import Task
from stoker.machine.installers import pip_in
from stoker.model.build import Isolation
from stoker.model.errors import CommandError, MissingError
from stoker.model.source import ProjectKind, SourceTree
from stoker.outside import process
from stoker.outside.deleting import remove_tree
from stoker.plan.doctor_tools import unmet_requirements
from stoker.wheel.zip.metadata import required_name

# setup.py files of extensions import these, and few declare it.
_OF_EXTENSIONS = ("ninja", "packaging", "psutil", "setuptools", "wheel")
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


class BackEndPython:
    """The installed Python, or an environment of its own in ``folder``.

    ``isolation`` is None if the build runs no back end.
    """

    def __init__(self, task: Task, *, runs: bool):
        self.folder = task.work.environment
        self.isolation: Isolation | None = None
        if runs:
            self.isolation = task.request.isolation or _fitting_isolation(task)
        self.isolated = self.isolation in (Isolation.FULL, Isolation.TORCH)
        self._installed = task.subject.toolbox.python
        self.executable = self._installed.executable
        if self.isolated:
            self.executable = str(self.folder / "bin" / "python")
        self._tree = task.tree
        self._request = task.request
        self._variant = task.subject.variant

    def requirements(self) -> tuple[str, ...]:
        """Return what the back end needs."""
        return build_requirements(self._tree, self._request.torch, self.isolation)

    def torch_index(self) -> str | None:
        """Return the address from which the PyTorch that the user names comes."""
        address = self._request.torch_index if self._request.torch else None
        return named_torch.index_for(address, self._variant) if address else None

    def torch_version(self) -> str | None:
        """Return the version of the PyTorch that the back end sees."""
        if self.isolation is not Isolation.FULL:
            return self._installed.packages.get("torch")
        found = self.folder.glob("lib/python*/site-packages/torch-*.dist-info")
        name = next((path.name for path in found), None)
        return name.removesuffix(".dist-info").partition("-")[2] if name else None

    def digest(self) -> str:
        """Return a digest of the interpreter and of the packages that the back end sees."""
        python = self._installed
        installed = python.packages.items() if self.isolation is not Isolation.FULL else ()
        # An installed version of the project itself changes nothing.
        own = canonicalize_name(self._tree.name)
        others = {name: version for name, version in installed if name != own}
        return digest([python.executable, python.version, others])

    def make(self, execute: Execute) -> None:
        """Make the environment, replacing an old one, with all that the back end needs."""
        remove_tree(self.folder)
        base = self._installed.executable
        if execute([base, "-m", "venv", str(self.folder)], self.folder.parent, {}):
            raise MissingError(f"{base} cannot make an environment", hints=[_NO_VENV])
        if any(self.folder.glob("lib/python*/site-packages/setuptools-*")):
            # Before Python 3.12, it is so old that few need it, but it meets their requirements.
            execute([*pip_in(self.executable), "uninstall", "--yes", "setuptools"], self.folder, {})
        if self.isolation is Isolation.TORCH:
            here = self.folder / "here"
            here.mkdir()
            parts = process.check([base, "-c", _PARTS_OF_TORCH], timeout=_TIMEOUT_S)
            for name, path in json.loads(parts).items():
                (here / name).symlink_to(path)
            (packages,) = self.folder.glob("lib/python*/site-packages")
            (packages / "here.pth").write_text(f"{here}\n")
        requirements = self.requirements()
        if index := self.torch_index():
            self._install(requirements[:1], execute, "--index-url", index)
        self._install(requirements, execute)
        back_end = BackEnd(Path(self._tree.path), self.executable, execute)
        self._install(back_end.extra_requirements(), execute)
        if self._request.torch:
            named_torch.check_toolkit(self.folder, self._variant)

    def _install(self, requirements: Sequence[str], execute: Execute, *options: str) -> None:
        words = [*pip_in(self.executable), "install", *options, *requirements]
        if requirements and execute(words, self.folder, {}):
            raise CommandError(
                "what the build needs could not be installed",
                hints=["--isolation none builds with the packages that are here"],
            )


def build_requirements(
    tree: SourceTree, torch: str | None, isolation: Isolation | None = None
) -> tuple[str, ...]:
    """Return what the back end needs; ``torch`` is the PyTorch that the user names."""
    if torch is None:
        with_torch = isolation is Isolation.TORCH
        return tuple(dict.fromkeys((*tree.requirements, *(_OF_EXTENSIONS if with_torch else ()))))
    others = [one for one in tree.requirements if required_name(one) != "torch"]
    return tuple(dict.fromkeys((named_torch.requirement(torch), *others, *_OF_EXTENSIONS)))


def _fitting_isolation(task: Task) -> Isolation:
    """Return the isolation: PyTorch and its extensions see the installed packages unless the user
    names another PyTorch, others only if those suffice.
    """
    tree = task.tree
    if task.request.torch:
        return Isolation.FULL
    needs_torch = any(line.startswith("torch") for line in tree.requirements)
    if tree.kind in (ProjectKind.PYTORCH, ProjectKind.EXTENSION) or needs_torch:
        return Isolation.NONE
    unmet = unmet_requirements(tree.requirements, task.subject.toolbox.python)
    return Isolation.FULL if unmet else Isolation.NONE
