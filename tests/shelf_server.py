"""A server with thirty wheels that do not fit and the source of their project, and machines that
install from it.
"""

import os
import platform
import sysconfig
import venv
from pathlib import Path

from catalogue_wheels import make_wheel
from conftest import Need
from ranged_server import Sent
from shelf import Shelf, full_shelf
from shelf_source import put_source
from torch_extensions import WARN, installed_torch

TORCH = "2.13.0"
TOOLS = ("ninja", "packaging", "psutil", "setuptools", "wheel")  # the build uses none of them


class Server:
    """An index with the wheels and the source, and machines with a PyTorch that install from it."""

    def __init__(self, need: Need, folder: Path, url: str, sent: Sent):
        self._need, self._folder = need, folder
        self.url, self.sent = url, sent
        pages = folder / "server/simple/mill"
        python = platform.python_version()
        self.shelf: Shelf = full_shelf(need, pages, python=python, torch=TORCH)
        put_source(pages)
        self.page = self.shelf.write_page()
        for tool in TOOLS:
            make_wheel(folder / "tools", name=tool, version="99")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_FIND_LINKS": str(self._folder / "tools"),
            "no_proxy": "127.0.0.1",
        }

    def wrong(self, said: str) -> dict[str, tuple[str, str | None]]:
        """Return the wheels that a text on standard error refuses for another reason, or not at
        all.
        """
        refusals = dict(line.split(": ", 1) for line in said.splitlines() if ".whl: " in line)
        return {
            file: (reason, refusals.get(file))
            for file, reason in self.shelf.reasons.items()
            if reason not in refusals.get(file, "")
        }

    def machine(self, name: str) -> str:
        """Return the Python of an environment that has PyTorch and sees the tools of this one."""
        folder = self._folder / name
        venv.create(folder, with_pip=False, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        installed_torch(self._need, site, [WARN], version=TORCH)
        (site / "tools.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return str(folder / "bin/python")
