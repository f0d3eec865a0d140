"""Builds real packages plainly and with stoker, and compares what comes out.

    python benchmarks/real_projects.py [--only NAME]... [--folder FOLDER] [--json FILE]

Each package is built twice in the same folder: as its documentation says, and with `stoker run` and
a memory limit that few of its compiles fit into at once. Both must end with the same status and
make the same files. strace counts the compiles of source files that each build starts, and the
history has those that were governed: the numbers must agree, but for the compiles that were
repeated. Tests of configure scripts do not count. Both builds run under strace, which stops
processes at execve only, so that their CPU times can be compared. A package of a kind that
`stoker build` builds (CMake) is also built with that. If files differ, the plain build is repeated:
a difference between two plain builds is not stoker's.

Sources come from the package indexes of pip and apt (source packages). Needs strace, debhelper,
meson, scons and libaprutil1-dev of Debian; ``TOOLS`` are installed into an environment of pip. The
results go to results/real_projects.json; with --only, the rows of these packages replace the stored
ones.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stoker.govern.history.store import History
from stoker.machine.system import read_machine
from stoker.model.errors import StokerError
from stoker.model.govern import Role
from stoker.model.runs import Outcome as Ending
from stoker.model.value import size
from stoker.outside import package_index as index

RESULTS = Path(__file__).parent / "results" / "real_projects.json"
STOKER = str(Path(sys.executable).with_name("stoker"))
TIMEOUT_S = 1200
MEMORY = "150M"  # g++ takes about that for one file with the headers of the standard library
TOOLS = [
    *("setuptools", "wheel", "setuptools-scm", "cython", "cppy", "cffi", "pybind11", "ninja"),
    *("scikit-build-core", "meson-python", "meson", "cmake<4", "versioneer", "maturin"),
    *("pkgconfig", "rapidfuzz", "numpy", "expandvars"),
]
COMPILERS = re.compile(r"(?:.*-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+|gfortran|rustc)(?:-[\d.]+)?")
SOURCES = re.compile(r"\.(?:c|cc|cpp|cxx|C|S|f|f90|m|rs)$")
PROBES = {"-E", "-M", "-MM", "-fsyntax-only", "--version"}  # make no object
COMPILES = {Role.C, Role.CXX, Role.FORTRAN, Role.RUST}
TESTS = re.compile(
    r"conftest|_configtest|CMakeScratch|CMakeTmp|CMakeFiles/cmTC|CompilerId|meson-private|"
    r"sanitycheck|sanity_check_for_|conf_check|testfile|ztest"
)
# What differs between two plain builds too: times, and lists of digests.
UNCOMPARED = re.compile(r"(?:^|/)(?:RECORD|WHEEL|\.ninja_\w+|.*\.log|.*\.d|.*\.stamp)$")
PIP = "python -m pip wheel --no-deps --no-build-isolation -w dist {settings} ."
IN_PLACE = "-Cbuild-dir=made"


class Package(NamedTuple):
    """A package. ``build`` is a shell script, run in the source tree; empty for ``pip wheel``.
    ``needs`` is installed from the package index first.
    """

    name: str
    version: str  # of the package index; empty for a source package of Debian
    kind: str
    build: str = ""
    settings: str = ""
    needs: str = ""

    @property
    def title(self) -> str:
        """What its row and its log are called; several packages may have one name."""
        return f"{self.name} {self.version}".strip() + f", {self.kind}"

    @property
    def has_cmake(self) -> bool:
        return self.kind.startswith("scikit-build-core")


CMAKE = "cmake -G Ninja -S . -B made {} > /dev/null && ninja -C made"
CMAKE_MAKE = "cmake -S {} -B made {} > /dev/null && make -C made -j4"
AUTOTOOLS = "./configure --quiet --disable-dependency-tracking {} > /dev/null && make -j4"
DPKG = "DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -b -us -uc -j4"
TORCH = "torch==2.13.0"
# What torch.utils.cpp_extension compiles when a program runs: files, and a source in a string.
JIT = """\
TORCH_EXTENSIONS_DIR=$PWD/made python - <<'END'
from torch.utils.cpp_extension import load, load_inline

sources = ["csrc/basis.cpp", "csrc/cpu/basis_cpu.cpp"]
load("basis", sources, extra_include_paths=["csrc"], is_python_module=False)
load_inline("twice", ["int twice(int n) { return 2 * n; }"], functions=["twice"])
END
"""
PACKAGES = [
    Package("markupsafe", "3.0.2", "setuptools"),
    Package("ujson", "5.10.0", "setuptools, C and C++"),
    Package("greenlet", "3.1.1", "setuptools, C++"),
    Package("kiwisolver", "1.4.8", "setuptools, C++"),
    Package("xxhash", "3.5.0", "setuptools"),
    Package("brotli", "1.1.0", "setuptools, C"),
    Package("wrapt", "1.17.0", "setuptools"),
    Package("multidict", "6.1.0", "setuptools"),
    Package("immutables", "0.21", "setuptools"),
    Package("bitarray", "3.0.0", "setuptools"),
    Package("psutil", "6.1.1", "setuptools"),
    Package("cffi", "1.17.1", "setuptools"),
    Package("msgpack", "1.1.0", "setuptools, Cython"),
    Package("pyyaml", "6.0.2", "setuptools, Cython"),
    Package("lz4", "4.3.3", "setuptools, setuptools-scm"),
    Package("argon2-cffi-bindings", "21.2.0", "setuptools, cffi"),
    Package("hello", "", "autotools", AUTOTOOLS.format("")),
    Package("libpng1.6", "", "autotools, libtool", AUTOTOOLS.format("")),
    Package("expat", "", "CMake and make", CMAKE_MAKE.format("expat", "-DEXPAT_BUILD_DOCS=OFF")),
    Package("zlib", "", "configure and make", "./configure > /dev/null && make -j4"),
    Package("lua5.4", "", "recursive make", "make -j4 linux MYLIBS= SYSLIBS='-ldl'"),
    Package("lz4", "", "recursive make", "make -j4 lib"),
    Package("xxhash", "", "make", "make -j4"),
    Package("cjson", "", "make", "make"),
    Package("libinih", "", "meson", "meson setup made > /dev/null && ninja -C made"),
    Package("fmtlib", "", "CMake and ninja", CMAKE.format("-DFMT_TEST=OFF -DFMT_DOC=OFF")),
    Package("tinyxml2", "", "CMake and ninja", CMAKE.format("-DBUILD_TESTING=OFF")),
    Package("yaml-cpp", "", "CMake and ninja", CMAKE.format("-DYAML_CPP_BUILD_TESTS=OFF")),
    Package("libdeflate", "", "CMake and ninja", CMAKE.format("")),
    Package("brotli", "", "CMake and ninja", CMAKE.format("")),
    Package("jansson", "", "CMake and make", CMAKE_MAKE.format(".", "-DJANSSON_BUILD_DOCS=OFF")),
    Package("pugixml", "", "CMake and make", CMAKE_MAKE.format(".", "")),
    Package("levenshtein", "0.27.3", "scikit-build-core, Cython", settings=IN_PLACE),
    Package("contourpy", "1.3.1", "meson-python, pybind11", settings=IN_PLACE),
    Package("iminuit", "2.30.1", "scikit-build-core, pybind11", settings=IN_PLACE),
    Package("orjson", "3.10.12", "maturin, cargo"),
    Package("serf", "", "scons", "scons -j4 --quiet APR=/usr APU=/usr OPENSSL=/usr"),
    Package("xxhash", "", "dpkg-buildpackage", DPKG),
    Package("torch-spline-conv", "1.2.2", "setuptools, torch", needs=TORCH),
    Package("torch-spline-conv", "1.2.2", "JIT of torch", JIT, needs=TORCH),
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
        if self.python.exists():
            return
        venv.create(self.folder / "tools", with_pip=True)
        command = [self.python, "-m", "pip", "install", "--quiet", *TOOLS]
        subprocess.run(command, check=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "STOKER_HOME": str(self.folder / "home"),
            "STOKER_CACHE": "none",
            "CCACHE_DISABLE": "1",  # meson uses it by itself, and then compilers do not run
            "SOURCE_DATE_EPOCH": "1700000000",
            "PYTHONHASHSEED": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def fetch(self, package: Package) -> Path:
        """Return the archive of the source, or the description of a source package."""
        into = self.folder / "archives" / f"{package.name}-{package.version}"
        whole = package.kind == "dpkg-buildpackage"  # else the upstream source is enough
        into = into.with_name(f"{into.name}dsc") if whole else into
        if not into.exists() and package.version:
            places = index.read_index()
            file = index.find_sdist(package.name, package.version, places)
            into.mkdir(parents=True)
            return index.download(file, into, places, say=print)
        if not into.exists():
            into.mkdir(parents=True)
            command = ["apt-get", "source", "-qq", "--only-source", "--download-only", package.name]
            command += [] if whole else ["--tar-only"]
            subprocess.run(command, cwd=into, check=True, capture_output=True)
        wanted = ".dsc" if whole else ".tar."
        return next(path for path in sorted(into.iterdir()) if wanted in path.name)

    def unpack(self, archive: Path) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        if archive.suffix == ".dsc":
            command = ["dpkg-source", "--no-check", "--extract", str(archive), str(self.place)]
            subprocess.run(command, check=True, capture_output=True)
            return
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
            "-A",  # the number of a process may be used again
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
        with self.log(package).open("ab") as log:
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

    def log(self, package: Package) -> Path:
        return self.folder / f"{re.sub('[^a-z0-9.]+', '-', package.title.lower())}.log"

    def compare(self, package: Package) -> dict[str, Any]:
        archive = self.fetch(package)
        if package.needs:
            command = [self.python, "-m", "pip", "install", "--quiet", package.needs]
            subprocess.run(command, check=True)
        plain = self.build(package, archive)
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        words = ("run", "--progress", "quiet", "--memory", MEMORY, "--summary", str(summary), "--")
        governed = self.build(package, archive, STOKER, *words)
        run = json.loads(summary.read_text()) if summary.exists() else {}
        files = differing(plain, governed)
        again = differing(plain, self.build(package, archive)) if files else []
        files = [name for name in files if name not in again]
        steps, repeats = self.governed(run.get("run"))
        result = {
            "package": package.title,
            "source": archive.name,
            "status": [plain.status, governed.status],
            "files": len(plain.files),
            "files_that_plain_builds_make_differently": again,
            "compiles": [plain.compiles, governed.compiles],
            "governed_compiles": steps,
            "repeated_compiles": repeats,
            **{key: run.get(key) for key in ("pauses", "preemptions", "oom_kills", "retries")},
            "peak_bytes": run.get("peak_bytes"),
            "cpu_s": [round(plain.cpu_s, 1), round(governed.cpu_s, 1)],
        }
        wrong = list(faults(plain, governed, steps, repeats))
        if files:
            wrong.append(f"{len(files)} files differ: {', '.join(files[:5])}")
        if package.has_cmake:
            result["stoker_build"] = status = self.stoker_build(package, archive)
            if (status == 0) != (plain.status == 0):
                wrong.append(f"stoker build ends with {status}, pip wheel with {plain.status}")
        return {**result, "wrong": wrong}

    def governed(self, run: int | None) -> tuple[int, int]:
        """Return how many compiles a run governed to their end, and how many it started again."""
        if run is None:
            return 0, 0
        with History(self.folder / "home/state/history.sqlite") as history:
            attempts = [
                attempt
                for attempt in history.attempts(run)
                if attempt.record.step.role in COMPILES
                and not TESTS.search(f"{attempt.record.step.source} {attempt.record.step.output}")
            ]
        ended = sum(attempt.outcome in (Ending.DONE, Ending.FAILED) for attempt in attempts)
        return ended, len(attempts) - ended

    def stoker_build(self, package: Package, archive: Path) -> int:
        self.unpack(archive)
        words = [STOKER, "build", str(self.place), "--variant", "cpu", "--isolation", "none"]
        with self.log(package).open("ab") as log:
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


def differing(one: Outcome, other: Outcome) -> list[str]:
    names = sorted({*one.files, *other.files})
    return [name for name in names if one.files.get(name) != other.files.get(name)]


def faults(plain: Outcome, governed: Outcome, steps: int, repeats: int) -> Iterator[str]:
    """Yield how the governed build went wrong, apart from its files."""
    if plain.status != governed.status:
        yield f"status {governed.status}, plainly {plain.status}"
    if plain.status:
        yield f"the plain build fails with {plain.status}"
    if not plain.files or not plain.compiles:
        yield "nothing was built"
    if governed.compiles - repeats != plain.compiles:
        yield f"{governed.compiles} compiles and {repeats} repeats, plainly {plain.compiles}"
    if steps != plain.compiles:
        yield f"{plain.compiles} compiles, of which {steps} were governed"


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
        count += bool(sources) and not (PROBES & {*words} or TESTS.search(found[2]))
    return count


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", help="build this package, and no others")
    parser.add_argument("--folder", type=Path, help="where to build; it is kept, with the logs")
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="stoker-real-", dir="/var/tmp"))
    folder.mkdir(exist_ok=True)
    builder = Builder(folder)
    builder.prepare()
    rows = _stored(arguments.json) if arguments.only else {}
    built = [one for one in PACKAGES if not arguments.only or one.name in arguments.only]
    for package in built:
        rows[package.title] = row = _row(builder, package)
        print(json.dumps(row), flush=True)
        _store(rows, arguments.json)
    if arguments.folder is None:
        shutil.rmtree(folder)
    return int(any(rows[package.title]["wrong"] for package in built))


Rows = dict[str, dict[str, Any]]


def _stored(file: Path) -> Rows:
    packages = json.loads(file.read_text())["packages"] if file.exists() else []
    return {row["package"]: row for row in packages}


def _store(rows: Rows, file: Path) -> None:
    machine = read_machine()
    result = {
        "machine": f"{platform.machine()}, {machine.cpu.usable} CPUs, {size(machine.memory.total)}",
        "memory_limit": MEMORY,
        "packages": [rows[one.title] for one in PACKAGES if one.title in rows],
    }
    file.write_text(json.dumps(result, indent=2) + "\n")


def _row(builder: Builder, package: Package) -> dict[str, Any]:
    try:
        return builder.compare(package)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or b"").decode(errors="replace")[-300:] or str(error)
    except (subprocess.SubprocessError, OSError, StokerError, tarfile.TarError) as error:
        reason = str(error)[:300]
    return {"package": package.title, "wrong": [f"not built: {reason}"]}


if __name__ == "__main__":
    sys.exit(main())
