"""Every reader of untrusted input as a function of bytes, for benchmarks/fuzz.py and tests.

A target raises nothing for an input that it accepts, and a ``REFUSED`` error for one that it
refuses; any other exception is a defect. ``folder`` is an empty folder, the only place where a
target may write.
"""

import io
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import NamedTuple

import msgspec

import wheel_files
from built_libraries import BytesReader
from served_history import home, serve, store
from stoker.builds.acquire import naming
from stoker.builds.acquire.archive import unpack
from stoker.catalogue import pages as catalogue_pages
from stoker.catalogue.choosing import choose, read_words
from stoker.catalogue.document import decoded
from stoker.catalogue.people_page import people_page
from stoker.catalogue.shown import selection_page
from stoker.catalogue.values import Host, HostGpu
from stoker.diagnose.pages import diagnosis_page
from stoker.diagnose.sieve import read_log
from stoker.diagnose.texts import fix_script, short_diagnosis
from stoker.diagnose.verdict import diagnose
from stoker.govern import protocol
from stoker.govern.command_line import step_of
from stoker.govern.history.simulate import simulate
from stoker.govern.history.store import History
from stoker.govern.history.trace import read_trace, write_trace
from stoker.govern.policy.policies import make_policy
from stoker.govern.policy.predict import Predictor
from stoker.model.errors import StokerError, UsageError
from stoker.model.govern import Role, Step
from stoker.model.runs import Attempt, Outcome
from stoker.model.value import UNDECODABLE, byte_count, json_bytes, second_count
from stoker.outside.package_index import parse_page
from stoker.outside.terminal import Page, rendered
from stoker.plan import grammar
from stoker.report.analysis import RecordedRun, analyse
from stoker.report.dependencies import Dependencies
from stoker.report.graphs.analysis import find_impact, make_build_graph
from stoker.report.graphs.owners import Owners
from stoker.report.graphs.steps import NeededSteps
from stoker.report.html_page import report_page
from stoker.report.perfetto import perfetto_trace
from stoker.report.phases import PhaseFormat, read_phases
from stoker.report.reported import Report, ReportedRun
from stoker.settings.toml import read_file
from stoker.settings.user_options import gather
from stoker.source.cmake_api import read_targets
from stoker.source.ninja import read_discovered, read_durations, read_graph
from stoker.source.tree import read_tree
from stoker.wheel.elf import tables as elf_tables
from stoker.wheel.elf.edit import ElfEdit, make_patch
from stoker.wheel.elf.elf import DYNAMIC_SYMBOLS, SYMBOL_TABLE, Elf
from stoker.wheel.elf.fatbin import device_regions, read_regions, read_wrappers
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect import facts_page as inspect_page
from stoker.wheel.inspect.inspecting import inspect
from stoker.wheel.inspect.library import read_library
from stoker.wheel.slim.recompressing import unpacked
from stoker.wheel.verify.cpu_level import read_local_functions
from stoker.wheel.zip.archive import open_wheel
from stoker.wheel.zip.rewriting import Edit, rewrite

REFUSED = (StokerError, protocol.ProtocolError)
Target = Callable[[bytes, Path], None]

PART, FIELD = (
    b"\x1e\n",
    b"\x1f",
)  # separators: between the members of a described archive, and within a member
_MOST_STEPS = 50  # the maximum size of a simulated trace
_MOST_SERVED = 6  # steps that a governor is asked for
_COLUMNS = (
    *("key", "role", "source", "output", "directory", "compiler", "flags", "archs", "threads"),
    *("input_bytes", "collector", "started", "wall_s", "cpu_s", "peak_bytes", "byte_seconds"),
    *("profile", "mode", "outcome", "status", "explanation"),
)


class Member(NamedTuple):
    """One member of a described archive: ``mode`` and ``kind`` as the formats write them."""

    name: bytes
    content: bytes
    mode: int = 0o100644
    kind: bytes = tarfile.REGTYPE


def described(*members: Member) -> bytes:
    """Members as bytes that can be mutated without breaking checksums and offsets."""
    return PART.join(FIELD.join((m.name, m.kind, str(m.mode).encode(), m.content)) for m in members)


def _members(data: bytes) -> list[Member]:
    found = []
    for part in data.split(PART)[:1000]:
        name, kind, mode, content, *_ = [*part.split(FIELD, 3), b"", b"", b"", b""]
        number = int(mode) if mode.isdigit() and len(mode) < 8 else 0o100644
        found.append(Member(name, content, number & 0xFFFF, kind[:1] or tarfile.REGTYPE))
    return found


def elf(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Read a library: facts, pointers, symbols, wrappers; then change its search path."""
    facts = read_library(BytesReader(data))
    msgspec.json.encode(facts)
    file = Elf(BytesReader(data))
    everywhere = range(1 << 64)
    for _ in elf_tables.read_pointers(file, everywhere):
        pass
    for kind in (SYMBOL_TABLE, DYNAMIC_SYMBOLS):
        for _ in elf_tables.read_symbols(file, kind, everywhere):
            pass
    read_local_functions(file)
    with suppress(StokerError):
        dynamic_symbols(file)
    read_wrappers(file)
    edit = ElfEdit(rpath="$ORIGIN/../lib", needed={"libc.so.6": "libd.so.7"}, soname="x.so")
    make_patch(file, edit)


def fatbin(data: bytes, folder: Path) -> None:
    """Read a section of device code, or a library that has one."""
    reader = BytesReader(data)
    if data.startswith(b"\x7fELF"):
        regions = [region for _, region in device_regions(Elf(reader))]
        path = folder / "lib.so"
        path.write_bytes(data)
        _shown(inspect_page.inspection_page(inspect(str(path))))
    else:
        name = ".cask_resource" if data.startswith(b"cask") else ".nv_fatbin"
        regions = list(read_regions(reader, name, 0, len(data)))
    for region in regions:
        for entry in region.entries:
            unpacked(reader, entry)


def wheel(data: bytes, folder: Path) -> None:
    """Inspect a wheel, compare it with its RECORD, and rewrite it."""
    path = folder / "mill-1.2-py3-none-any.whl"
    path.write_bytes(data if data.startswith(b"PK") else _zip(data, record=True))
    facts = inspect(str(path))
    msgspec.json.encode(facts)
    if len(data) % 8 == 0:  # rendering a page takes longer than everything else
        _shown(inspect_page.inspection_page(facts))
    (folder / "out").mkdir()
    with open_wheel(path) as opened:
        list(opened.mismatches())
        list(opened.wrong_hashes(workers=1))
        rewrite(opened, Edit(), folder / "out", workers=1)


def archive(data: bytes, folder: Path) -> None:
    """Unpack a source archive of any format; no file may appear outside its folder."""
    path = folder / "source"
    into = folder / "into"
    into.mkdir()
    path.write_bytes(_archive(data))
    unpack(path, into)
    real = os.path.realpath(into)
    for place, folders, files in os.walk(into):
        for name in (*folders, *files):
            target = os.path.realpath(Path(place, name))
            assert target == real or target.startswith(f"{real}/"), f"{name} leads to {target}"


def _archive(data: bytes) -> bytes:
    if data.startswith(b"zip:"):
        return _zip(data[4:])
    if data.startswith(b"tar:"):
        return _tar(data[4:])
    return _with_checksums(data) if data[257:262] == b"ustar" else data


def log(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Diagnose the log of a build."""
    diagnosis = diagnose(read_log(io.BytesIO(data)), file="build.log")
    msgspec.json.encode(diagnosis)
    fix_script(diagnosis).encode()
    short_diagnosis(diagnosis).encode()
    if len(data) % 8 == 0:
        _shown(diagnosis_page(diagnosis))


def cmake(data: bytes, folder: Path) -> None:
    """Read a CMakeLists.txt."""
    (folder / "CMakeLists.txt").write_bytes(data)
    msgspec.json.encode(read_tree(folder))


def tree(data: bytes, folder: Path) -> None:
    """Read the other files of a source tree, each a member of a described archive."""
    (folder / "CMakeLists.txt").write_bytes(b"project(mill LANGUAGES CXX)\n")
    known = {*_TREE_FILES, "CMakeLists.txt"}
    for member in _members(data):
        name = member.name.decode(errors="replace")
        if name in known:
            (folder / name).write_bytes(member.content)
    msgspec.json.encode(read_tree(folder))
    read_durations(folder)
    steps = NeededSteps(str(folder), read_graph(folder))
    owners = Owners(steps, read_targets(folder))
    json_bytes(make_build_graph(steps, owners, {}, folder="", has_reply=False))
    discovered = read_discovered(folder)
    for file in sorted(steps.files(discovered))[:3]:
        find_impact(steps, owners, {}, file, discovered)


_TREE_FILES = (
    *("pyproject.toml", "setup.py", "requirements-build.txt", "version.txt", "PKG-INFO"),
    *(".gitmodules", "build.ninja", ".ninja_log", ".ninja_deps"),
)


def toml(data: bytes, folder: Path) -> None:
    """Read a stoker.toml and the variants that it defines."""
    path = folder / "stoker.toml"
    path.write_bytes(data)
    file = read_file(path)
    for name in ("", *list(file.variants)[:3]):
        chosen = gather(file=file, environment={}, command_line={"variant": name} if name else {})
        _variant(chosen.text("variant") or "")


def words(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Parse arguments of the command line: variants, sizes, durations, sources."""
    text = data.decode(errors="surrogateescape").replace("\0", "")
    accepted = sum(_accepts(read, text) for read in (_amount, _time, _variant, naming.parse_source))
    if not accepted:
        raise UsageError("not a word")


def _accepts(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except REFUSED:
        return False
    return True


def _amount(text: str) -> None:
    amount = byte_count(text)
    assert amount is None or amount >= 0
    if amount is None:
        raise UsageError("no amount")


def _time(text: str) -> None:
    if second_count(text) is None:
        raise UsageError("no time")


def _variant(text: str) -> None:
    variant = grammar.parse(text)
    again = grammar.parse(variant.name)
    assert again == variant, f"{variant} is read back as {again}"


def wire(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Read messages of launchers and clients to the governor."""
    for line in data.split(b"\n"):
        word, fields = protocol.decode(line)
        match word:
            case "ask":
                ask = protocol.read_ask(fields)
                step_of(ask.command, ask.directory, ask.directory, threads=ask.cpus)
            case "done":
                protocol.read_done(fields)
            case "killed":
                protocol.read_usage(fields)
            case _:
                protocol.read_numbers(fields, 1)
        if word.isascii():
            assert protocol.decode(protocol.encode(word, *fields)[:-1]) == (word, fields)


def trace(data: bytes, folder: Path) -> None:
    """Import a trace into the history, learn from it, report and simulate it."""
    read = read_trace(data, "trace.json")
    assert read_trace(write_trace(read), "again").steps == read.steps
    with home(folder) as path, History(path) as history:
        run = history.start_run(read.what, "/")
        for record in read.steps:
            history.add(run, Attempt(record=record, started=0.0, outcome=Outcome.DONE))
        recent = history.recent()
        (row,) = history.runs()
        analysis = analyse(row, history.attempts(run), RecordedRun(), Dependencies({}))
    report_page(Report(stoker="", shown=ReportedRun(run=analysis)))
    perfetto_trace(analysis, {})
    if len(read.steps) <= _MOST_STEPS and sum(record.wall_s for record in read.steps) < 1e5:
        policy = make_policy("adaptive", cpus=4)
        simulate(read.steps, policy, cpus=4, memory=1 << 32, history=recent)
    with home(folder):
        serve(folder, [_compile(record.step.source) for record in read.steps[:_MOST_SERVED]])


def past(data: bytes, folder: Path) -> None:
    """Govern steps with a history of any rows: one JSON object of columns in each line."""
    rows = [row for row in map(_row, data.splitlines()[:_MOST_STEPS]) if row]
    if not rows:
        raise UsageError("no row")
    sources = [str(row.get("source", "")) for row in rows]
    with home(folder) as path:
        store(path, rows)
        serve(folder, [_compile(source) for source in sources[:_MOST_SERVED]])


def _row(line: bytes) -> dict[str, object] | None:
    """Return the columns of a row; what SQLite has no type for becomes text."""
    try:
        found = msgspec.json.decode(line, type=dict[str, object])
    except UNDECODABLE:
        return None
    plain = (int, float, str, NoneType)
    values: dict[str, object] = {
        name: v if isinstance(v, plain) else str(v) for name, v in found.items()
    }
    if isinstance(profile := values.get("profile"), str):
        values["profile"] = profile.encode("latin-1", errors="replace")
    return {name: value for name, value in values.items() if name in _COLUMNS}


def _compile(source: str) -> tuple[str, ...]:
    return ("nvcc" if source.endswith(".cu") else "g++", "-c", source or "a.cpp", "-o", "a.o")


def phases(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Read what a compiler recorded of its own phases."""
    step = Step(key="", role=Role.CUDA, source="a.cu", output="a.o")
    for form in PhaseFormat:
        read_phases(data, form, step)


def command(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Parse the command line of a compiler, with its response file."""
    line, _, response = data.partition(b"\n")
    step = step_of(
        line.decode(errors="surrogateescape").split(),
        "/build",
        "/",
        _Response(response.decode(errors="surrogateescape")),
    )
    Predictor(()).predict(step)


class _Response:
    """A file reader that returns the same content for every name."""

    def __init__(self, text: str):
        self._text = text

    def size(self, path: str) -> int:
        return len(path)

    def text(self, path: str) -> str:  # noqa: ARG002
        return self._text

    def identity(self, program: str) -> str:
        return program


def page(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Read a page of a package index, HTML or JSON."""
    kind = "application/vnd.pypi.simple.v1+json" if data.startswith(b"{") else "text/html"
    for file in parse_page(data, kind, "https://index.invalid/simple/mill/"):
        _ = file.name
        file.version_of("mill")


def catalogue(data: bytes, folder: Path) -> None:  # noqa: ARG001
    """Read `catalogue.json` of a server, choose from it, and render its pages."""
    found = decoded(data, "https://wheels.invalid/catalogue.json")
    catalogue_pages.index_pages(found, catalogue_pages.groups_of(found.wheels))
    people_page(found)
    for gpu in ((HostGpu(name="H100", capability="9.0"),), ()):
        host = Host(
            os="linux",
            cpu_family="x86_64",
            cpu="zen4",
            cpu_features=("avx2",),
            python="3.12.1",
            gpus=gpu,
            libc="glibc 2.36",
            driver="570.1",
        )
        for name in found.projects:
            with suppress(StokerError):
                _shown(selection_page(choose(host, found, read_words([name], found))))


TARGETS: dict[str, Target] = {
    "elf": elf,
    "fatbin": fatbin,
    "wheel": wheel,
    "archive": archive,
    "log": log,
    "cmake": cmake,
    "tree": tree,
    "toml": toml,
    "words": words,
    "wire": wire,
    "trace": trace,
    "past": past,
    "phases": phases,
    "command": command,
    "page": page,
    "catalogue": catalogue,
}


def _shown(page: Page) -> None:
    rendered(page, 200)


def _zip(data: bytes, *, record: bool = False) -> bytes:
    """Return a zip file of described members; on request, fill in an empty RECORD."""
    target, members = io.BytesIO(), _members(data)
    if record:
        listed = {m.name.decode(errors="replace"): m.content for m in members[:-1]}
        if not members[-1].content:
            members[-1] = members[-1]._replace(content=wheel_files.record(listed))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as opened:
        for member in members:
            info = zipfile.ZipInfo("x", date_time=(2026, 7, 3, 22, 18, 34))
            info.filename = member.name.decode(errors="replace")[:60_000]
            info.compress_type = zipfile.ZIP_DEFLATED if member.kind == b"0" else 0
            info.external_attr = member.mode << 16
            with warnings.catch_warnings(action="ignore"), opened.open(info, "w") as stream:
                stream.write(member.content)
    return target.getvalue()


def _tar(data: bytes) -> bytes:
    blocks = []
    for member in _members(data):
        linked = member.kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)
        info = tarfile.TarInfo("x")
        info.name = member.name.decode(errors="surrogateescape")
        info.type, info.mode = member.kind, stat.S_IMODE(member.mode)
        info.linkname = member.content.decode(errors="surrogateescape") if linked else ""
        info.size = 0 if linked else len(member.content)
        header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        blocks += [header, b"" if linked else member.content, bytes(-info.size % 512)]
    return b"".join([*blocks, bytes(1024)])


def _with_checksums(data: bytes) -> bytes:
    """Return the tar file with correct header checksums, so that mutations reach the reader."""
    content = bytearray(data)
    for start in range(0, len(content) - 511, 512):
        if content[start + 257 : start + 262] == b"ustar":
            content[start + 148 : start + 156] = b" " * 8
            content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
    return bytes(content)
