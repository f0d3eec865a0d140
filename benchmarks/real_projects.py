"""Builds real packages plainly and with stoker, and compares what comes out.

    python benchmarks/real_projects.py [--only NAME] [--keep] [--json FILE]

Each package is built twice in the same folder: as its documentation says, and with `stoker run` in
front. Both must end with the same status and make the same files. strace counts the compiles of
source files that each build starts, and the run counts those that it governed: all three numbers
must agree. Tests of configure scripts do not count. Both builds run under strace, which stops
processes at execve only, so that their CPU times can be compared. A package with a wheel is also
built with `stoker build`.

Sources come from the package indexes of pip and apt (source packages). Needs strace, and the build
tools that ``TOOLS`` names in the environment of pip. The results go to results/real_projects.json.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

from stoker.machine.system import read_machine
from stoker.model.value import size

RESULTS = Path(__file__).parent / "results" / "real_projects.json"
STOKER = str(Path(sys.executable).with_name("stoker"))
TIMEOUT_S = 1200
TOOLS = [
    *("setuptools", "wheel", "setuptools-scm", "cython", "cppy", "cffi", "pybind11", "ninja"),
    *("scikit-build-core", "meson-python", "meson", "cmake<4", "versioneer"),
]
COMPILERS = re.compile(r"(?:.*-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+|gfortran)(?:-[\d.]+)?")
SOURCES = re.compile(r"\.(?:c|cc|cpp|cxx|C|S|f|f90|m)$")
TESTS = re.compile(
    r"conftest|_configtest|CMakeScratch|CMakeTmp|CMakeFiles/cmTC|CompilerId|meson-private|"
    r"sanitycheck|conf_check|testfile"
)
# What differs between two plain builds too: times, and lists of digests.
UNCOMPARED = re.compile(r"(?:^|/)(?:RECORD|WHEEL|\.ninja_\w+|.*\.log|.*\.d|.*\.stamp)$")
PIP = "python -m pip wheel --no-deps --no-build-isolation -w dist {settings} ."
IN_PLACE = "-Cbuild-dir=made"


class Package(NamedTuple):
    """A package. ``build`` is a shell script, run in the source tree; empty for ``pip wheel``."""

    name: str
    version: str  # of the package index; empty for a source package of Debian
    kind: str
    build: str = ""
    settings: str = ""


PACKAGES = [
    Package("markupsafe", "3.0.2", "setuptools"),
    Package("msgpack", "1.1.0", "setuptools, Cython"),
    Package("kiwisolver", "1.4.8", "setuptools, C++"),
    Package("argon2-cffi-bindings", "21.2.0", "setuptools, cffi"),
    Package("levenshtein", "0.26.1", "scikit-build-core, Cython", settings=IN_PLACE),
    Package("contourpy", "1.3.1", "meson-python, pybind11", settings=IN_PLACE),
    Package("hello", "", "autotools", "./configure --quiet && make -j3"),
    Package("zlib", "", "configure and make", "./configure > /dev/null && make -j3"),
    Package("lua5.4", "", "recursive make", "make -j3 linux MYLIBS= SYSLIBS='-ldl'"),
    Package("libinih", "", "meson", "meson setup made > /dev/null && ninja -C made"),
    Package(
        "fmtlib",
        "",
        "CMake and ninja",
        "cmake -G Ninja -S . -B made -DFMT_TEST=OFF -DFMT_DOC=OFF > /dev/null && ninja -C made",
    ),
    Package(
        "jansson",
        "",
        "CMake and make",
        "cmake -S . -B made -DJANSSON_BUILD_DOCS=OFF > /dev/null && make -C made -j3",
    ),
]


class Outcome(NamedTuple):
    status: int
    files: dict[str, str]
    compiles: int
    cpu_s: float


class Builder:
    """Builds packages in one folder, with one environment for pip."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.place = folder / "place"  # objects contain it, so all builds use it
        self.python = folder / "tools/bin/python"

    def prepare(self) -> None:
        venv.create(self.folder / "tools", with_pip=True)
        command = [self.python, "-m", "pip", "install", "--quiet", *TOOLS]
        subprocess.run(command, check=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "STOKER_HOME": str(self.folder / "home"),
            "STOKER_CACHE": "none",
            "SOURCE_DATE_EPOCH": "1700000000",
            "PYTHONHASHSEED": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "SETUPTOOLS_SCM_PRETEND_VERSION": "1.0",
        }

    def fetch(self, package: Package) -> Path:
        """Return the archive of the source."""
        into = self.folder / "archives" / package.name
        into.mkdir(parents=True, exist_ok=True)
        if package.version:
            wanted = f"{package.name}=={package.version}"
            words = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            command = [self.python, *words, "--no-binary", ":all:", wanted]
        else:
            command = ["apt-get", "source", "-qq", "--download-only", "--tar-only", package.name]
        subprocess.run(command, cwd=into, env=self.environment(), check=True, capture_output=True)
        return next(path for path in sorted(into.iterdir()) if ".tar." in path.name)

    def unpack(self, archive: Path) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        with tarfile.open(archive) as file:
            top = file.getnames()[0].split("/")[0]
            file.extractall(self.folder / "unpacked", filter="data")
        (self.folder / "unpacked" / top).rename(self.place)

    def build(self, package: Package, archive: Path, *before: str) -> Outcome:
        """Build from a fresh tree, with words such as `stoker run --` before the command."""
        self.unpack(archive)
        script = package.build or PIP.format(settings=package.settings)
        trace = self.folder / "trace"  # a file for each process
        shutil.rmtree(trace, ignore_errors=True)
        trace.mkdir()
        words = [
            "strace",
            "-ff",
            "--seccomp-bpf",
            "-qq",
            "-e",
            "trace=execve",
            "-s",
            "100000",
            "-v",
        ]
        command = [*words, "-o", f"{trace}/of", *before, "sh", "-c", script]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        with (self.folder / f"{package.name}.log").open("ab") as log:
            done = subprocess.run(
                command,
                cwd=self.place,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=TIMEOUT_S,
                check=False,
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        return Outcome(done.returncode, self.files(), compiles(trace), cpu_s)

    def files(self) -> dict[str, str]:
        """Return the digests of what was built: objects, libraries, programs, files of wheels."""
        found = {}
        for path in sorted(self.place.rglob("*")):
            name = str(path.relative_to(self.place))
            if path.is_symlink() or not path.is_file() or UNCOMPARED.search(name):
                continue
            if path.suffix == ".whl":
                with zipfile.ZipFile(path) as wheel:
                    for member in wheel.namelist():
                        if not UNCOMPARED.search(member):
                            found[f"{path.name}:{member}"] = _digest(wheel.read(member))
            elif path.suffix in (".o", ".a", ".so") or ".so." in name or _is_program(path):
                found[name] = _digest(path.read_bytes())
        return found

    def compare(self, package: Package) -> dict[str, object]:
        archive = self.fetch(package)
        plain = self.build(package, archive)
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        words = ("run", "--progress", "quiet", "--summary", str(summary), "--")
        governed = self.build(package, archive, STOKER, *words)
        steps = json.loads(summary.read_text()) if summary.exists() else {}
        wrong = list(differences(plain, governed))
        if (compiled := steps.get("steps", 0) - steps.get("links", 0)) < plain.compiles:
            wrong.append(f"{plain.compiles} compiles, of which {compiled} were governed")
        result: dict[str, object] = {
            "package": f"{package.name} {package.version or archive.name}",
            "kind": package.kind,
            "status": [plain.status, governed.status],
            "files": len(plain.files),
            "compiles": plain.compiles,
            "governed_steps": steps.get("steps"),
            "cpu_s": [round(plain.cpu_s, 1), round(governed.cpu_s, 1)],
        }
        if package.version:
            result["stoker_build"] = status = self.stoker_build(package, archive)
            if (status == 0) != (plain.status == 0):
                wrong.append(f"stoker build ends with {status}, pip wheel with {plain.status}")
        return {**result, "wrong": wrong}

    def stoker_build(self, package: Package, archive: Path) -> int:
        self.unpack(archive)
        words = [STOKER, "build", str(self.place), "--variant", "cpu", "--isolation", "none"]
        with (self.folder / f"{package.name}.log").open("ab") as log:
            done = subprocess.run(
                [*words, "--out", str(self.folder / "wheels"), "--progress", "log"],
                cwd=self.folder,
                env={**self.environment(), "VIRTUAL_ENV": str(self.folder / "tools")},
                stdout=log,
                stderr=log,
                timeout=TIMEOUT_S,
                check=False,
            )
        return done.returncode


def differences(plain: Outcome, governed: Outcome) -> "list[str]":
    found = []
    if plain.status != governed.status:
        found.append(f"status {governed.status}, plainly {plain.status}")
    if plain.compiles != governed.compiles:
        found.append(f"{governed.compiles} compiles, plainly {plain.compiles}")
    names = sorted({*plain.files, *governed.files})
    differing = [name for name in names if plain.files.get(name) != governed.files.get(name)]
    if differing:
        found.append(f"{len(differing)} files differ: {', '.join(differing[:5])}")
    return found


def compiles(trace: Path) -> int:
    """Return how many compiles of source files a trace contains. A driver that a launcher starts
    again with the same words counts once: the launcher is not a compiler.
    """
    count = 0
    lines = (
        line for file in trace.iterdir() for line in file.read_text(errors="replace").split("\n")
    )
    for line in lines:
        found = re.search(r'execve\("([^"]*)", \[(.*?)\], \[?.*\) = 0$', line)
        if not found or not COMPILERS.fullmatch(Path(found[1]).name):
            continue
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', found[2])
        sources = [word for word in words[1:] if SOURCES.search(word)]
        count += bool(sources) and "-c" in words and not TESTS.search(found[2])
    return count


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", help="build this package alone")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stoker-real-", dir="/var/tmp"))
    builder = Builder(folder)
    builder.prepare()
    rows = []
    for package in PACKAGES:
        if arguments.only and package.name not in arguments.only:
            continue
        try:
            row = builder.compare(package)
        except (subprocess.SubprocessError, OSError, StopIteration, tarfile.TarError) as error:
            row = {"package": package.name, "kind": package.kind, "not_built": str(error)[:300]}
        rows.append(row)
        print(json.dumps(row), flush=True)
    machine = read_machine()
    result = {
        "machine": f"{platform.machine()}, {machine.cpu.usable} CPUs, {size(machine.memory.total)}",
        "packages": rows,
    }
    if not arguments.only or arguments.json != RESULTS:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if arguments.keep:
        print(f"logs: {folder}")
    else:
        shutil.rmtree(folder)
    return int(any(row.get("wrong") or "not_built" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
