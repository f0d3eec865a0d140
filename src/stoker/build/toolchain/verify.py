"""Proves that an assembled toolchain works, by using it. Changes nothing in it."""

import os
import re
import shlex
from pathlib import Path

from stoker.knowledge.packages import Proof, VersionCommand
from stoker.model.errors import CommandError
from stoker.outside import process

_SECONDS = 300  # for a compile on a loaded machine; only a hang takes longer


def verify_version(home: Path, check: VersionCommand, version: str) -> None:
    """Check that the program runs and reports the version of its package (major and minor)."""
    answer = process.check(_command(home, check.command), timeout=_SECONDS)
    match = re.search(check.pattern, answer)
    said, expected = match[1] if match else "nothing", ".".join(version.split(".")[:2])
    if said != expected:
        line = shlex.join(check.command)
        raise CommandError(f"`{line}` says {said} instead of {expected}", output=answer)


def verify_proof(home: Path, proof: Proof, *, work: Path) -> None:
    """Check that the test program compiles and links."""
    folder = work / "proof"
    folder.mkdir()
    (folder / proof.file).write_text(proof.source, "utf-8")
    env = {name: value for name, value in os.environ.items() if name not in proof.without}
    try:
        for command in proof.commands:
            process.check(_command(home, command), timeout=_SECONDS, env=env, cwd=folder)
    except CommandError as error:
        raise CommandError(
            "the new toolchain does not compile or link, so it is not kept",
            output=error.output,
            hints=[proof.hint],
        ) from error


def _command(home: Path, command: tuple[str, ...]) -> list[str]:
    """Return the command; its first word is a program of the toolchain."""
    return [str(home / command[0]), *command[1:]]
