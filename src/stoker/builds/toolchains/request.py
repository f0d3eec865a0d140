"""Checks a request for a toolchain against the table, and makes the installer's requirements.

Independent of the index: ``fetch`` finds out whether it has a version.
"""

import re
from collections.abc import Iterable

from stoker.knowledge.toolchains import ToolchainKind, kinds
from stoker.model.distribution import read_version
from stoker.model.errors import UsageError, unknown
from stoker.model.value import Value

_PINNED = re.compile(r"(?P<name>[a-z0-9_.-]+)(==(?P<version>\d{1,9}(\.\d{1,9})*))?", re.ASCII)


class ToolchainRequest(Value, frozen=True, kw_only=True):
    """A toolchain to install. ``components`` are sorted and include the mandatory ones; ``pins``
    are those with a version.
    """

    kind: str
    version: str | None
    components: tuple[str, ...] = ()
    pins: dict[str, str] = {}

    @property
    def row(self) -> ToolchainKind:
        return kinds()[self.kind]

    @property
    def name(self) -> str:
        """The name of the folder it is kept in."""
        return f"{self.kind}-{self.version}" if self.version else self.kind

    @property
    def requirement(self) -> str:
        """The toolchain as the user would write it."""
        return f"{self.kind}=={self.version}" if self.version else self.kind

    def filled(self, template: str) -> str:
        """Return a string of the table with the numbers of the version filled in."""
        numbers = (self.version or "").split(".")
        return template.format(version=self.version, major=numbers[0], minor=".".join(numbers[:2]))


def parse_request(words: str, wanted: Iterable[str] = ()) -> ToolchainRequest:
    """Return the request for ``cuda==13.0`` with ``cublas``, ``cudnn==9.13`` and so on."""
    kind, version = _split(words, "a toolchain is written NAME or NAME==VERSION, as in cuda==13.0")
    if kind not in kinds():
        raise unknown(
            "toolchain", kind, kinds(), hint=f"there are {', '.join(kinds())}: see `--help`"
        )
    row = kinds()[kind]
    _check_version(kind, row, version)
    asked = dict(_split(word, "a component is written NAME or NAME==VERSION") for word in wanted)
    for name, pin in asked.items():
        if name not in row.names and name not in row.always:
            known = f"{kind} has {', '.join(row.names)}" if row.names else f"{kind} comes as one"
            raise unknown(f"component of {kind}", name, row.names, hint=known)
        if pin and name not in row.packages:
            raise UsageError(
                f"the version of {name} follows from that of {kind}",
                hints=[f"leave it out: --with {name}"],
            )
    return ToolchainRequest(
        kind=kind,
        version=version,
        components=tuple(sorted({*row.always, *_with_what_they_bring(row, asked)})),
        pins={name: pin for name, pin in asked.items() if pin},
    )


def packages_of(request: ToolchainRequest) -> tuple[str, ...]:
    """Return the requirements for the installer, in its own notation."""
    row = request.row
    extras = [name for name in request.components if name not in row.packages]
    main = f"{row.package}[{','.join(extras)}]" if extras else row.package
    own = {
        request.filled(package): request.pins.get(name)
        for name, package in row.packages.items()
        if name in request.components
    }
    return (_pinned(main, request.version), *(_pinned(name, pin) for name, pin in own.items()))


def constraints(request: ToolchainRequest) -> tuple[str, ...]:
    return tuple(request.filled(line) for line in request.row.constraints)


def _split(word: str, grammar: str) -> tuple[str, str | None]:
    match = _PINNED.fullmatch(word.strip().lower())
    if not match:
        raise UsageError(f"cannot read '{word}'", hints=[grammar])
    return match["name"], match["version"]


def _check_version(kind: str, row: ToolchainKind, version: str | None) -> None:
    if len((version or "").split(".")) < row.numbers:
        example = f"{kind}=={row.oldest}"
        raise UsageError(f"which {kind}? Name its major and minor version, as in {example}")
    if version and row.oldest and read_version(version) < read_version(row.oldest):
        request = ToolchainRequest(kind=kind, version=version)
        hints = [f"the nearest that works: stoker toolchain install {kind}=={row.oldest}"]
        if row.earlier:
            hints.append(f"conda has earlier versions: {request.filled(row.earlier)}")
        raise UsageError(
            f"{kind} {version} cannot be made from the package index: {row.because}", hints=hints
        )


def _with_what_they_bring(row: ToolchainKind, names: Iterable[str]) -> set[str]:
    """Return the components with those that they include; a set is not a component itself."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += row.brings.get(name, ())
    return found & {*row.extras, *row.packages}


def _pinned(name: str, version: str | None) -> str:
    return f"{name}=={version}.*" if version else name
