"""Fetches source trees with git: one commit with its submodules, and as little else as possible.

Every step can be repeated where a killed one left off. Git runs with the user's own configuration,
but may not ask for a password. Where the trees are kept is not known here.
"""

import os
import re
import shlex
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import unquote

from stoker.model.errors import CommandError, MissingError, StokerError, UsageError, nearest
from stoker.model.secrets import redact, without_login
from stoker.model.value import Value, first_of
from stoker.outside import process
from stoker.outside.deleting import remove_file, remove_tree
from stoker.outside.long_work import Say
from stoker.source.git_state import submodule_states

_TIMEOUT_S = 120  # seconds for a server to list its references
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_UNREACHABLE = re.compile(
    r"Could not resolve host|Connection (refused|timed out|reset)|Network is unreachable"
    r"|No route to host|Operation timed out|Failed to connect|Temporary failure in name"
)
_MOST_NAMED = 12  # submodules in an error
# Run by git when a server wants to know who we are; its other questions need no answer.
_HELPER = (
    '!f() { test "$1" = get || exit 0; '
    'printf "username=%s\\npassword=%s\\n" "$STOKER_GIT_USER" "$STOKER_GIT_PASSWORD"; }; f'
)


class FoundCommit(Value, frozen=True, kw_only=True):
    """The commit of a name in a repository, and the full name unless it is a commit id."""

    full: str | None  # refs/tags/v1.0
    commit: str


class ServerUnreachableError(MissingError):
    """The server does not answer; an existing copy may be used."""


def find_commit(url: str, reference: str | None) -> FoundCommit:
    """Ask the server; of a tag and a branch with one name the tag counts."""
    names = [f"refs/tags/{reference}", f"refs/heads/{reference}"] if reference else ["HEAD"]
    listed = _listed(url, [*names, *(f"{name}^{{}}" for name in names)])
    for name in names:
        if name in listed:
            peeled = listed.get(f"{name}^{{}}")  # the commit that an annotated tag is of
            return FoundCommit(full=name, commit=peeled or listed[name])
    if reference and _COMMIT.fullmatch(reference):
        return FoundCommit(full=None, commit=reference)
    raise _unknown(url, reference)


def fetch_commit(
    url: str, found: FoundCommit, tree: Path, *, say: Say, keep_open: Collection[int]
) -> str:
    """Make or finish the tree; gives the commit that it is at."""
    git = _Git(url, tree, say=say, keep_open=keep_open)
    tree.mkdir(exist_ok=True)
    git.do("init", "--quiet")
    for lock in (tree / ".git").rglob("*.lock"):
        remove_file(lock, below=tree)  # left by a killed git: our lock excludes other processes
    git.do("config", "remote.origin.url", without_login(url))
    _fetch_commit(git, found)
    git.do("checkout", "--quiet", "--force", "--detach", found.commit)
    if (tree / ".gitmodules").is_file():
        update = ("submodule", "update", "--init", "--recursive", "--force", "--jobs", "4")
        git.do("submodule", "--quiet", "sync", "--recursive")
        if not git.tried(*update, "--depth", "1"):
            # A shallow copy that lacks the commit would stay shallow, so it is deleted.
            git.do("submodule", "--quiet", "deinit", "--all", "--force")
            remove_tree(git.tree / ".git" / "modules", below=git.tree)
            git.do(*update)
    states = submodule_states(tree)
    if lacking := [path for path, state in states.items() if state != " "]:
        raise incomplete(tree, lacking)
    return process.check(_command(tree, "rev-parse", "HEAD"), timeout=_TIMEOUT_S).strip()


def incomplete(tree: Path, lacking: Collection[str]) -> UsageError:
    named = first_of(sorted(lacking), _MOST_NAMED)
    path = shlex.quote(str(tree))
    return UsageError(
        f"{len(lacking)} submodules are missing or at another commit: {named}",
        hints=[f"git -C {path} submodule update --init --recursive --depth 1"],
    )


def _listed(url: str, patterns: Collection[str]) -> dict[str, str]:
    command = [_program(), "ls-remote", "--quiet", "--", without_login(url), *patterns]
    outcome = process.run(command, timeout=_TIMEOUT_S, env=_environment(url))
    if outcome.status is None:
        raise ServerUnreachableError(f"{without_login(url)} did not answer in time")
    if not outcome.ok:
        raise _explained(url, outcome.stderr)
    pairs = (line.split("\t", 1) for line in outcome.stdout.splitlines() if "\t" in line)
    return {name: commit for commit, name in pairs}


def _unknown(url: str, reference: str | None) -> UsageError:
    place = without_login(url)
    if reference is None:
        return UsageError(f"{place} has no default branch", hints=["name a tag"])
    names = [name.split("/", 2)[2] for name in _listed(url, ["refs/tags/*", "refs/heads/*"])]
    similar = nearest(reference, {name.removesuffix("^{}"): None for name in names}, count=5)
    hints = [f"the nearest: {', '.join(similar)}"] if similar else []
    return UsageError(
        f"{place} has no tag, branch or commit '{reference}'",
        hints=[*hints, f"git ls-remote --tags {shlex.quote(place)}"],
    )


def _fetch_commit(git: "_Git", found: FoundCommit) -> None:
    """Fetch a commit, shallowly if the server can; a tag keeps its name, because some trees derive
    their version from it.
    """
    named = found.full and found.full.startswith("refs/")
    wanted = f"+{found.full}:{found.full}" if named else found.full or found.commit
    fetch = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--update-head-ok")
    git.say(f"fetching {found.full or found.commit}")
    if git.tried(*fetch, "--depth", "1", "origin", wanted):
        return
    # A server may hand out no commit by its number, but then it hands out all.
    git.do(*fetch, "origin", wanted if found.full else "+refs/*:refs/remotes/origin/*")


class _Git:
    """Runs git in one tree, and reports submodules as they arrive."""

    _ARRIVED = re.compile(r"Submodule path '(.*)': checked out '.*'")

    def __init__(self, url: str, tree: Path, *, say: Say, keep_open: Collection[int]):
        self.say = say
        self.tree = tree
        self._url = url
        self._keep_open = keep_open

    def do(self, *words: str) -> None:
        outcome = self._run(words)
        if not outcome.ok:
            raise _explained(self._url, outcome.stdout)

    def tried(self, *words: str) -> bool:
        """Return whether the command succeeded; raise an error if another try would fail
        as well.
        """
        outcome = self._run(words)
        if _UNREACHABLE.search(outcome.stdout):
            raise _explained(self._url, outcome.stdout)
        return outcome.ok

    def _run(self, words: tuple[str, ...]) -> process.CommandResult:
        command = _command(self.tree, *words)
        keep_open = self._keep_open
        environment = _environment(self._url)
        return process.stream(command, self._hear, env=environment, keep_open=keep_open)

    def _hear(self, line: str) -> None:
        if arrived := self._ARRIVED.fullmatch(line):
            self.say(f"fetched {arrived[1]}")


def _command(tree: Path, *words: str) -> list[str]:
    return [_program(), "-C", str(tree), *words]


def _program() -> str:
    if found := shutil.which("git"):
        return found
    raise MissingError("git is not installed", hints=["install git, or name a folder or archive"])


def _environment(url: str) -> dict[str, str]:
    own = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # of a hook that we may be called from
    inherited = {name: value for name, value in os.environ.items() if name not in own}
    inherited |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    scheme, _, rest = url.partition("://")
    login, at, host = rest.partition("/")[0].rpartition("@")
    if not at or scheme not in ("http", "https"):
        return inherited
    return inherited | _credentials(f"{scheme}://{host}", login, inherited)


def _credentials(server: str, login: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return variables that make git use a login for a server and its submodules. A login in the
    URL would be stored in git's configuration and shown on command lines.
    """
    user, colon, password = (unquote(part) for part in login.partition(":"))
    settings = [("username", user), ("helper", _HELPER)]
    if colon:  # without a password the user's own helpers may know it, and are asked first
        settings.insert(0, ("helper", ""))
    count = inherited.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings, first):
        variables[f"GIT_CONFIG_KEY_{number}"] = f"credential.{server}.{name}"
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables | {"STOKER_GIT_USER": user, "STOKER_GIT_PASSWORD": password}


def _explained(url: str, said: str) -> StokerError:
    """Return the user error for a failure of git."""
    place = without_login(url)
    if _UNREACHABLE.search(said):
        hints = ["this machine may be offline; a clone or archive that is here will do"]
        return ServerUnreachableError(f"cannot reach {place}", hints=hints)
    if "transport 'file' not allowed" in said:
        return UsageError(
            "a submodule is a repository on this machine, which git does not fetch unasked",
            hints=["git config --global protocol.file.allow always"],
        )
    lines = [line for line in redact(said).splitlines() if line.strip()]
    return CommandError(f"git cannot fetch {place}", output="\n".join(lines[-20:]))
