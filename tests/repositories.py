"""Real git repositories for tests, with the author and the protocols that git asks for."""

import os
import subprocess
from pathlib import Path

SETTINGS = {
    "user.name": "A Tester",
    "user.email": "tester@example.org",
    "init.defaultBranch": "main",
    "protocol.file.allow": "always",  # for submodules on this machine
}


def git_environment() -> dict[str, str]:
    """Git reads no configuration but ours."""
    environment = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment["GIT_CONFIG_COUNT"] = str(len(SETTINGS))
    for number, (name, value) in enumerate(SETTINGS.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **git_environment()},
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode().strip()


def repository(folder: Path, files: dict[str, str], *, tag: str | None = None) -> Path:
    """A repository with one more commit, of these files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "More")
    if tag:
        git(folder, "tag", "--annotate", "--message", tag, tag)
    return folder


def with_submodule(folder: Path, submodule: Path, path: str, *, tag: str | None = None) -> Path:
    """A commit that adds a submodule."""
    git(folder, "submodule", "--quiet", "add", "--force", submodule.as_uri(), path)
    return repository(folder, {}, tag=tag)
