"""Facts of the compilers that this machine has or can install.

Each is read when a fix needs it. A fact that is not known has no value, and a fix that needs it is
not offered.
"""

import re

from stoker.diagnose.about import About, Facts
from stoker.diagnose.cuda_facts import first_named, used_cuda
from stoker.diagnose.installing import system_commands
from stoker.model.shell import ShellScript

FACTS = Facts()

_USED_GCC = r"/(?:c\+\+|gcc/[\w-]+)/(\d{1,2})/|gcc version (\d{1,2})\.|GNU (\d{1,2})\."


@FACTS.text("machine.nvcc_gcc", "the newest gcc that this nvcc accepts and the system has")
def _nvcc_gcc(about: About) -> str | None:
    from stoker.knowledge.gpus import cuda_releases

    release = cuda_releases().get(used_cuda(about) or "")
    limits = [int(word) for word in about.groups.get("newest", ()) if word.isdecimal()]
    limits += [number - 1 for number in _used_gccs(about)]  # nvcc has refused this one
    most = min([*limits, *([release.gcc_max] if release else [])], default=None)
    return about.here.gcc(most=most)


@FACTS.text(
    "machine.newer_gcc", "the first gcc, at least what the log asks for, that the system has"
)
def _newer_gcc(about: About) -> str | None:
    needed = _needed_gcc(about)
    return about.here.gcc(least=needed) if needed else None


@FACTS.text("machine.needed_gcc", "the version of gcc that the log asks for")
def _needed_gcc_text(about: About) -> str | None:
    needed = _needed_gcc(about)
    return str(needed) if needed else None


@FACTS.command(
    "machine.install_newer_gcc", "the command that installs the newer gcc, if it is missing"
)
def _install_newer_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_newer_gcc(about), about)


@FACTS.command(
    "machine.install_nvcc_gcc", "the command that installs the gcc for nvcc, if it is missing"
)
def _install_nvcc_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_nvcc_gcc(about), about)


@FACTS.text("machine.newest_gcc", "the newest gcc that the system has")
def _newest_gcc(about: About) -> str | None:
    return str(max(about.here.gccs)) if about.is_here and about.here.gccs else None


@FACTS.command("machine.install_newest_gcc", "the command that installs it, if it is missing")
def _install_newest_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_newest_gcc(about), about)


@FACTS.text("machine.other_gcc", "an older release of gcc than the one that was used")
def _other_gcc(about: About) -> str | None:
    newest = next(iter(_used_gccs(about)), max(about.here.gccs, default=0))
    return about.here.gcc(most=newest - 1)


@FACTS.command("machine.install_other_gcc", "the command that installs it, if it is missing")
def _install_other_gcc(about: About) -> ShellScript | None:
    return _install_gcc(_other_gcc(about), about)


def _used_gccs(about: About) -> list[int]:
    """Return the version of gcc whose files the log names, if it names any."""
    named = first_named(_USED_GCC, about)
    return [int(named)] if named else []


def _install_gcc(version: str | None, about: About) -> ShellScript | None:
    if version is None or about.here.which(f"g++-{version}"):
        return None
    return system_commands([f"g++-{version}"], about.here, "apt")


def _needed_gcc(about: About) -> int | None:
    from stoker.knowledge.tools import first_gcc

    asked = [int(match[0]) for word in about.words("needed") if (match := re.match(r"\d+", word))]
    for group in ("standard", "header", "intrinsic"):
        asked += [number for word in about.words(group) if (number := first_gcc(group, word))]
    return max(asked, default=None)
