"""Shared headers of a build: finds what its compiles have in common, has it precompiled under the
governor, and tells the launcher which compile uses which header.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from stoker.build.generated import generated_sources
from stoker.flows.governed import Session
from stoker.govern.history import History
from stoker.headers.choice import (
    Candidate,
    Offer,
    Source,
    choose_beginnings,
    header_names,
    twins,
    within_memory,
)
from stoker.headers.commands import (
    compiles_in,
    folders_command,
    header_scan_command,
    scan_command,
)
from stoker.headers.files import HeaderFolder, header_name
from stoker.headers.scanning import (
    has_repeated_text,
    read_folders,
    read_scan,
    words_in,
    words_of_file,
)
from stoker.knowledge.memory_priors import usual_seconds
from stoker.knowledge.shared_headers import Tolerance, header_rules
from stoker.knowledge.tools import names
from stoker.model.errors import StokerError, StorageError
from stoker.model.govern import Role, StepRecord
from stoker.model.headers import Compile, HeaderSharing, Scan, SharedHeader, Use
from stoker.outside import parallel, process
from stoker.outside.folders import current_folder
from stoker.outside.locks import BusyError
from stoker.plan.chain import ungoverned
from stoker.source.ninja import read_edges

Say = Callable[[str], None]
Scanned = tuple[Compile, Source]
_NAME = re.compile(r"<(.*)>")
_NINJAS = ("ninja", "ninja-build")


def ninja_words(command: Sequence[str]) -> tuple[Path, list[str]] | None:
    """Return the build folder of a command that starts ninja, and ninja's own command; ``None`` for
    other commands.
    """
    name = Path(command[0]).name
    if name in _NINJAS and "-t" not in command:
        return current_folder() / _value_of(command, "-C", "."), list(command)
    if name == "cmake" and "--build" in command:
        folder = _value_of(command, "--build", ".")
        if (current_folder() / folder / "build.ninja").exists():
            target = _value_of(command, "--target", "")
            return current_folder() / folder, ["ninja", "-C", folder, *filter(None, [target])]
    return None


def _value_of(command: Sequence[str], option: str, otherwise: str) -> str:
    for word, following in pairwise(command):
        if word == option:
            return following
    joined = (word.removeprefix(option) for word in command if word.startswith(option))
    return next(filter(None, joined), otherwise)


def share_headers(
    governed: Session, folder: Path, words: Sequence[str], environment: Mapping[str, str], say: Say
) -> dict[str, str]:
    """Prepare shared headers for what ninja is about to build. Return the variables for the
    launcher; empty if there is nothing to share.

    ``words`` are ninja's command. Generated sources are made first, because headers include them.
    """
    if reason := governed.headers_problem:
        say(f"shared headers are not used: {reason}")
        return {}
    plain = ungoverned(environment)
    if generated := generated_sources(read_edges(folder), "all"):
        governed.run(["ninja", "-C", str(folder), *generated], env=environment, output=_drop)
    try:
        kept = governed.headers = HeaderFolder(folder)
    except BusyError:
        say("shared headers are not used: another run of this build folder uses them")
        return {}
    before = _cpu_s()
    lines, refused = _listed(words, plain), kept.refused()
    if wrapper := next(filter(names("wrappers").__contains__, map(_program, lines)), None):
        say(f"commands that start {wrapper} use no shared headers: configure the build without it")
    found, seconds = compiles_in(lines, str(folder.resolve())), compile_seconds()
    most = header_rules().limits.seconds
    compiles = [each for each in found if each.output not in refused and seconds(each) <= most]
    scanned = list(_scanned(compiles, kept, plain))
    tolerance = header_rules().tolerance[governed.sharing]
    chosen = [
        header
        for group in _groups(scanned)
        for header in chosen_headers(group, kept, plain, tolerance)
    ]
    fitting = _within_memory(governed, kept, chosen, scanned)
    if left_out := len(chosen) - len(fitting):
        kept.left_out = left_out
        what = "1 shared header is" if left_out == 1 else f"{left_out} shared headers are"
        say(f"{what} left out to save memory")
    headers = list(_made(governed, kept, fitting, scanned, environment, say))
    users = list(_users(scanned, headers, tolerance))
    kept.write_uses(headers, users)
    kept.cost_s = _cpu_s() - before
    if not users:
        return {}
    say(f"{len(users)} of {len(compiles)} compiles can use {len(headers)} shared headers")
    loud = {"STOKER_HEADERS_LOUD": "1"} if governed.sharing is HeaderSharing.ALWAYS else {}
    return {"STOKER_HEADERS": str(kept.path)} | loud


def compile_seconds() -> Callable[[Compile], float]:
    """Return a function that says how long a compile takes: as measured, or else as is usual for
    its source.
    """
    records: Sequence[StepRecord] = ()
    with suppress(StorageError), History() as history:
        records = history.recent()
    measured = {(row.step.directory, row.step.output): row.cpu_seconds for row in records}

    def seconds(step: Compile) -> float:
        with suppress(KeyError):
            return measured[step.folder, step.output]
        role = Role.C if step.language == "c-header" else Role.CXX
        path = Path(step.folder, step.source)
        return usual_seconds(role, step.source, path.stat().st_size if path.exists() else 0)

    return seconds


def ninja_compiles(
    folder: Path, words: Sequence[str], environment: Mapping[str, str]
) -> list[Compile]:
    """Return the compiles that ninja would start now."""
    return list(compiles_in(_listed(words, environment), str(folder.resolve())))


def _listed(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the commands that ninja would start now."""
    environment = {**environment, "NINJA_STATUS": ""}
    return process.run([*words, "-n", "-v"], timeout=None, env=environment).stdout.splitlines()


def _cpu_s() -> float:
    return time.process_time() + process.children_cpu_s()


def _program(line: str) -> str:
    return Path(line.partition(" ")[0]).name


def _scanned(
    compiles: Sequence[Compile], kept: HeaderFolder, environment: Mapping[str, str]
) -> Iterator[Scanned]:
    """Yield the scan of each compile that may be able to share something."""
    counts: dict[tuple[str, ...], int] = {}
    for each in compiles:
        counts[each.group] = counts.get(each.group, 0) + 1
    known = {header.group for header in kept.kept()}
    least = header_rules().limits.users
    worth = [each for each in compiles if counts[each.group] >= least or each.group in known]
    scan = partial(scan_of, environment=environment)
    for each, found in zip(worth, parallel.in_order(scan, worth, parallel.threads()), strict=True):
        if found is not None:
            yield each, Source(found)


def scan_of(step: Compile, environment: Mapping[str, str]) -> Scan | None:
    """Return the scan; ``None`` if the preprocessor fails, for example without a generated file."""
    text = _output(scan_command(step), step.folder, environment)
    return None if text is None else read_scan(text)


def _output(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> bytes | None:
    try:
        with process.piped(words, env=environment, cwd=Path(folder)) as stream:
            return stream.read()
    except StokerError:
        return None


def _groups(scanned: Sequence[Scanned]) -> Iterator[list[Scanned]]:
    groups: dict[tuple[str, ...], list[Scanned]] = {}
    for each, source in scanned:
        groups.setdefault(each.group, []).append((each, source))
    yield from groups.values()


def chosen_headers(
    group: Sequence[Scanned],
    kept: HeaderFolder,
    environment: Mapping[str, str],
    tolerance: Tolerance,
) -> Iterator[SharedHeader]:
    """Yield the headers for compiles with the same flags: those of an earlier run that are still
    right, and others that are worth making.
    """
    key, sources = group[0][0].group, [source for _, source in group]
    known = [header for header in kept.kept() if header.group == key]
    yield from known
    uses = map(Offer(known, tolerance).largest, sources)
    served = [used.scan.size if used else 0 for used in uses]
    said = process.run(folders_command(key), timeout=None, env=environment, cwd=Path(key[0]))
    folders = read_folders(said.stderr)
    if folders is None:
        return  # not gcc
    limits, most = header_rules().limits, tolerance.headers - len(known)
    for scan in choose_beginnings(sources, served, most=most, tolerance=tolerance):
        header = _header_of(key, header_names(scan, folders), kept, environment)
        if header and header.scan.size >= limits.bytes:
            offer = Offer([header], tolerance)
            if sum(offer.largest(source) is not None for source in sources) >= limits.users:
                yield header


def _header_of(
    group: tuple[str, ...], names: Sequence[str], kept: HeaderFolder, environment: Mapping[str, str]
) -> SharedHeader | None:
    """Return a header with as many of the names as can be included directly."""
    found = _scanned_header(group, names, kept, environment)
    if found is None:
        good: list[str] = []
        for name in names:
            if longer := _scanned_header(group, [*good, name], kept, environment):
                found = longer
                good.append(name)
    return found


def _scanned_header(
    group: tuple[str, ...], names: Sequence[str], kept: HeaderFolder, environment: Mapping[str, str]
) -> SharedHeader | None:
    """Return a header with what it contains; ``None`` if it cannot be shared."""
    text = "".join(f"#include <{name}>\n" for name in names)
    header = SharedHeader(
        name=header_name(group, text), group=group, text=text, scan=Scan(inclusions=())
    )
    command = header_scan_command(header, str(kept.write_twice(header)))
    output = _output(command, group[0], environment)
    if output is None or has_repeated_text(output):
        return None
    scan, words = read_scan(output), set(words_in(output))
    if words & header_rules().unstable.names:
        return None
    for inclusion in scan.inclusions:
        if inclusion.of_system:
            words |= words_of_file(Path(group[0], inclusion.path).read_bytes())
    return replace(header, scan=scan, words=frozenset(words))


def _users(
    scanned: Sequence[Scanned], headers: Sequence[SharedHeader], tolerance: Tolerance
) -> Iterator[Use]:
    """Yield each compile with the header that it can use."""
    for group in _groups(scanned):
        key = group[0][0].group
        offer = Offer((header for header in headers if header.group == key), tolerance)
        for each, source in group:
            if used := offer.largest(source):
                yield Use(step=each, header=used, twins=twins(used, source.scan))


def _within_memory(
    governed: Session,
    kept: HeaderFolder,
    headers: Sequence[SharedHeader],
    scanned: Sequence[Scanned],
) -> list[SharedHeader]:
    """Return the headers that leave most of the memory to the compiles: the pages of a header count
    as used memory while a compile uses it.
    """
    tolerance = header_rules().tolerance[governed.sharing]

    def candidate(header: SharedHeader) -> Candidate:
        offer = Offer([header], tolerance)
        users = (
            number
            for number, (each, source) in enumerate(scanned)
            if each.group == header.group and offer.largest(source)
        )
        return Candidate(header=header, bytes=kept.file_bytes(header), users=frozenset(users))

    room = int(header_rules().limits.memory * governed.memory)
    return within_memory(map(candidate, headers), room=room, at_once=governed.cpus)


def _made(
    governed: Session,
    kept: HeaderFolder,
    headers: Sequence[SharedHeader],
    scanned: Sequence[Scanned],
    environment: Mapping[str, str],
    say: Say,
) -> Iterator[SharedHeader]:
    """Have the headers made that compiles use, with samples of each; yield those that are good. One
    that cannot be made is tried without the line that fails.
    """
    exact = governed.sharing is HeaderSharing.AUTO
    known = {header.name for header in kept.kept()}
    yield from (header for header in headers if header.name in known)
    wanted = [header for header in headers if header.name not in known]
    while wanted:
        users = list(_users(scanned, wanted, header_rules().tolerance[governed.sharing]))
        samples = {use.header.name: use.step for use in reversed(users)}
        wanted = [header for header in wanted if header.name in samples]
        if not wanted:
            return
        words = ["ninja", "-f", str(kept.write_ninja(wanted, samples)), "-k", "0"]
        governed.run(words, env=environment, cwd=Path(wanted[0].group[0]), output=_drop)
        repaired = []
        for header in wanted:
            problem = kept.problem(header, exact=exact)
            if problem is None:
                yield header
            elif less := _without_failure(header, kept, ungoverned(environment)):
                repaired.append(less)
            else:
                say(f"a shared header of {len(header.scan.inclusions)} headers {problem}: not used")
        wanted = repaired


def _without_failure(
    header: SharedHeader, kept: HeaderFolder, environment: Mapping[str, str]
) -> SharedHeader | None:
    """Return a header without the line because of which it cannot be made."""
    if (line := kept.failing_line(header)) is None:
        return None
    names = _NAME.findall(header.text)
    return _header_of(header.group, names[: line - 1] + names[line:], kept, environment)


def _drop(chunk: bytes) -> None:
    """Ignore the output of ninja; what compilers print is in files."""
