"""The folder of a build's shared headers, which the launcher reads (launcher/headers.c).

It lies in stoker's cache and not in the build folder, so that the build tool's own view of its
folder stays as it is. ninja makes the headers there, and makes one again when a file that it
contains has changed.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from stoker.headers.commands import bare_command, making_command, sample_command
from stoker.knowledge.shared_headers import header_rules
from stoker.model.headers import Compile, HeaderUse, SharedHeader, Use
from stoker.model.value import UNDECODABLE
from stoker.outside import locks
from stoker.outside.files import remove_tree, write_whole
from stoker.outside.folders import cache, private_folder, short_name

_NINJA = """\
builddir = {folder}
rule header
  command = rm -f $out && touch $begun && $compile >$said 2>&1
  depfile = $out.d
  deps = gcc
rule sample
  command = $compile >$said 2>&1 && times >$took
"""
# Compiles that show what a header changes: a source with and without it, the header alone with and
# without precompiling.
_SAMPLES = ("with", "without", "bare-with", "bare")
_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_decoder = msgspec.msgpack.Decoder(tuple[SharedHeader, ...])


def header_name(group: Iterable[str], text: str) -> str:
    """Return a name that changes with the flags and with the text of a header."""
    content = "\0".join((*group, text)).encode(errors="surrogateescape")
    return blake2b(content, digest_size=8).hexdigest()


class HeaderFolder:
    """The files of the shared headers of one build folder. A lock keeps other runs out of it until
    ``close``; BusyError if another run has it.
    """

    def __init__(self, build: Path):
        path = private_folder(cache() / "headers") / short_name(str(build))
        self._lock = ExitStack()
        self._lock.enter_context(locks.held(path.with_name(f"{path.name}.lock")))
        self.path = private_folder(path)
        self.cost_s = 0.0  # CPU time to choose and make the headers in this run
        self.left_out = 0  # headers that this run does without, to save memory
        self._offered: frozenset[str] = frozenset()  # names of headers that this run can use

    def close(self) -> None:
        self._lock.close()

    def kept(self) -> tuple[SharedHeader, ...]:
        """Return the headers of an earlier run that are newer than all that they contain."""
        return tuple(header for header in self._known() if self._is_fresh(header))

    def refused(self) -> frozenset[str]:
        """Return the outputs of compiles that had to be repeated without a header."""
        with suppress(OSError):
            return frozenset((self.path / "refused").read_text(errors="replace").splitlines())
        return frozenset()

    def write_source(self, header: SharedHeader) -> Path:
        """Write the text of a header, unless it is there: its time decides what is made again."""
        path = self.path / f"{header.name}.source.hpp"
        if not path.exists():
            write_whole(path, header.text)
        return path

    def write_twice(self, header: SharedHeader) -> Path:
        """Write the text twice, to find headers without a guard."""
        path = self.path / f"{header.name}.twice.hpp"
        write_whole(path, header.text * 2)
        return path

    def failing_line(self, header: SharedHeader) -> int | None:
        """Return the number of the line, from 1, because of which a header cannot be made."""
        if self._made(header.name).exists():
            return None
        try:
            said = _beside(self._made(header.name), "said").read_text(errors="replace")
        except OSError:
            return None
        before, error, _ = said.partition("error: ")
        lines = re.findall(rf"{header.name}\.source\.hpp:(\d+)", before)
        return int(lines[-1]) if error and lines else None

    def write_ninja(self, headers: Iterable[SharedHeader], samples: Mapping[str, Compile]) -> Path:
        """Write the file by which ninja makes headers and a sample of each with and without it."""
        lines = [_NINJA.format(folder=_escaped(str(self.path)))]
        for header in headers:
            made, source = self._made(header.name), self.write_source(header)
            command = making_command(header, str(source), str(made))
            lines += self._statement("header", made, source, command, begun=header.name)
            for path, command in self._samples(header, samples[header.name]).items():
                lines += self._statement("sample", path, made, command)
        path = self.path / "headers.ninja"
        write_whole(path, "\n".join(lines) + "\n")
        return path

    def problem(self, header: SharedHeader, *, exact: bool) -> str | None:
        """Return why a header that ninja was to make cannot be used. ``exact`` asks for a sample
        with the same object.
        """
        if not self._made(header.name).exists():
            return "cannot be made"
        try:
            one, other, *_ = (self._sample(header, kind).read_bytes() for kind in _SAMPLES)
        except OSError:
            return "cannot be used"
        return "changes an object" if exact and one != other else None

    def write_uses(self, headers: Iterable[SharedHeader], users: Iterable[Use]) -> None:
        """Write what the launcher reads, and remove headers that are out of date."""
        others = {header.name: header for header in self.kept()}
        headers = tuple((others | {header.name: header for header in headers}).values())
        users = tuple(users)
        self._offered = frozenset(use.header.name for use in users)
        uses = self.path / "uses"
        if uses.exists():
            remove_tree(uses)
        uses.mkdir(mode=0o700)
        for use in users:
            step, twins = use.step, (twin.replace(" ", "\\ ") for twin in use.twins)
            words = (use.header.name, " ".join(twins), step.folder, *step.words)
            name = f"{_hashed(step.folder, step.output):016x}"
            (uses / name).write_bytes(b"".join(map(_ended, words)))
        for header in headers:
            files = (str(Path(header.group[0], path)) for path in _paths(header))
            write_whole(self.path / f"{header.name}.files", b"".join(map(_ended, files)))
        self._remove_others({header.name for header in headers})
        write_whole(self.path / "headers", msgspec.msgpack.encode(headers))

    def use(self) -> HeaderUse | None:
        """Return how often the launcher used headers, and how often it had to do without; ``None``
        if no compile could use one.
        """
        if not (self._offered or self.left_out):
            return None
        headers = [header for header in self._known() if header.name in self._offered]
        uses = {h: _size(self.path / f"{h.name}.used") for h in headers}
        lost = "".join(path.read_text() for path in self.path.glob("*.lost"))
        return HeaderUse(
            headers=len(headers),
            bytes=sum(_size(self._made(header.name)) for header in headers),
            used=sum(uses.values()),
            refused=sum(map(_size, self.path.glob("*.refused"))),
            saved_s=sum(count * self._saved_s(header) for header, count in uses.items()),
            cost_s=self.cost_s + sum(map(int, lost.split())) / 1e6,
            left_out=self.left_out,
        )

    def file_bytes(self, header: SharedHeader) -> int:
        """Return the size of a header's file; an estimate if it has not been made."""
        return _size(self._made(header.name)) or int(header_rules().cost.file * header.scan.size)

    def _known(self) -> tuple[SharedHeader, ...]:
        try:
            return _decoder.decode((self.path / "headers").read_bytes())
        except (OSError, *UNDECODABLE):
            return ()

    def _is_fresh(self, header: SharedHeader) -> bool:
        try:
            begun = (self.path / f"{header.name}.begun").stat().st_mtime_ns
            newest = max(Path(header.group[0], path).stat().st_mtime_ns for path in _paths(header))
        except (OSError, ValueError):
            return False
        made = self._made(header.name), self._sample(header, _SAMPLES[-1])
        return newest < begun and all(path.exists() for path in made)

    def _remove_others(self, names: set[str]) -> None:
        """Remove headers that are not in use, and the counts of the last run."""
        for path in self.path.iterdir():
            name, dot, kind = path.name.partition(".")
            of_header = len(name) == len(header_name((), "")) and dot
            if of_header and (name not in names or kind in ("used", "refused", "lost")):
                path.unlink()

    def _made(self, name: str) -> Path:
        return self.path / f"{name}.hpp.gch"

    def _sample(self, header: SharedHeader, kind: str) -> Path:
        return self.path / f"{header.name}.{kind}.o"

    def _samples(self, header: SharedHeader, sample: Compile) -> dict[Path, tuple[str, ...]]:
        """Return the samples of a header, each with its command: a source and the text of the
        header alone, with and without the header.
        """
        source, used = str(self.write_source(header)), str(self.path / f"{header.name}.hpp")
        with_, without, bare_with, bare = (self._sample(header, kind) for kind in _SAMPLES)
        return {
            with_: sample_command(sample, str(with_), header=used),
            without: sample_command(sample, str(without)),
            bare_with: bare_command(header, used, str(bare_with), using=True),
            bare: bare_command(header, source, str(bare), using=False),
        }

    def _saved_s(self, header: SharedHeader) -> float:
        """Return the CPU seconds by which a header makes a compile shorter."""
        try:
            *_, using, bare = (
                _children_s(_beside(self._sample(header, kind), "times").read_text())
                for kind in _SAMPLES
            )
        except (OSError, ValueError, IndexError):
            return 0.0
        return bare - using

    def _statement(
        self, rule: str, output: Path, after: Path, command: Iterable[str], *, begun: str = ""
    ) -> list[str]:
        variables = {
            "compile": shlex.join(command),
            "said": shlex.quote(str(_beside(output, "said"))),
            "took": shlex.quote(str(_beside(output, "times"))),
            "begun": shlex.quote(str(self.path / f"{begun}.begun")),
        }
        return [
            f"build {_escaped(str(output))}: {rule} {_escaped(str(after))}",
            *(f"  {name} = {value.replace('$', '$$')}" for name, value in variables.items()),
        ]


def _beside(output: Path, suffix: str) -> Path:
    return output.with_name(f"{output.name}.{suffix}")


def _children_s(printed: str) -> float:
    """Return the seconds of child processes from what the shell's `times` prints: user and system
    time of the shell, then those of its children, as in ``0m1.25s``.
    """
    times = (re.fullmatch(r"(\d+)m([\d.]+)s", word) for word in printed.splitlines()[1].split())
    return sum(60 * int(found[1]) + float(found[2]) for found in times if found)


def _paths(header: SharedHeader) -> Iterable[str]:
    return dict.fromkeys(inclusion.path for inclusion in header.scan.inclusions)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _escaped(path: str) -> str:
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _ended(text: str) -> bytes:
    return text.encode(errors="surrogateescape") + b"\0"


def _hashed(*texts: str) -> int:
    """Return the FNV-1a hash of the texts with a zero byte behind each, as the launcher does."""
    value = _FNV_START
    for byte in b"".join(map(_ended, texts)):
        value = (value ^ byte) * _FNV_PRIME % (1 << 64)
    return value
