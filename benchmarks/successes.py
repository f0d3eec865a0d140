"""Logs of builds that succeeded, none of which may have a cause.

    python benchmarks/successes.py LOGS --pip 700 --contents Contents-all.gz
    python benchmarks/successes.py LOGS --debian 200 --root ROOT --sources Sources.gz
    python benchmarks/successes.py LOGS --crates 20 --root ROOT
    python benchmarks/successes.py LOGS --miniatures
    python benchmarks/successes.py LOGS --generated N
    python benchmarks/successes.py LOGS --by-tool N
    python benchmarks/successes.py LOGS --json benchmarks/results/successes.json

All but the last add logs to the folder LOGS until it has that many of a kind: wheels that pip makes
of sdists from PyPI (the projects that Debian packages, named by its file lists), Debian's source
packages and crates built in a root of mmdebstrap, the miniature projects of tests/projects with
ninja and make, generated ones full of warnings, and such by CMake, meson, cargo and setuptools.
Only builds whose status is 0 leave a log. The last form diagnoses all of them; the logs of pip,
Debian and crates are of real projects, the others are not.
"""

import argparse
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 240
# Installed once, so that builds need no isolation.
BACK_ENDS = """setuptools<81 wheel hatchling hatch-vcs flit-core poetry-core setuptools-scm
pdm-backend meson-python scikit-build-core cython numpy pybind11 cffi ninja cmake
setuptools-rust pbr versioneer hatch-fancy-pypi-readme flit
hatch-requirements-txt expandvars calver incremental"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path)
    parser.add_argument("--pip", type=int, default=0)
    parser.add_argument("--contents", type=Path)
    parser.add_argument("--debian", type=int, default=0)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--crates", type=int, default=0)
    parser.add_argument("--miniatures", action="store_true")
    parser.add_argument("--generated", type=int, default=0)
    parser.add_argument("--by-tool", type=int, default=0)
    parser.add_argument("--at-most", type=int, default=10**6, help="builds to try in this call")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.logs.mkdir(parents=True, exist_ok=True)
    if asked.pip:
        tries = (
            (name, lambda name=name: pip_wheel(asked.logs, name))
            for name in projects(asked.contents)
        )
        collect(asked.logs, "pip", asked.pip, asked.at_most, tries)
    if asked.debian:
        tries = (
            (name, lambda name=name: debian(asked.root, name)) for name in sources(asked.sources)
        )
        collect(asked.logs, "debian", asked.debian, asked.at_most, tries)
    if asked.crates:
        tries = ((name, lambda name=name: crate(asked.root, name)) for name in CRATES.split())
        collect(asked.logs, "crate", asked.crates, asked.at_most, tries)
    if asked.miniatures:
        collect(asked.logs, "miniature", 10**6, asked.at_most, miniatures())
    if asked.generated:
        collect(asked.logs, "generated", asked.generated, asked.at_most, generated())
    for tool in ("cmake", "meson", "cargo", "setup"):
        collect(asked.logs, tool, asked.by_tool, asked.at_most, by_tool(tool))
    if asked.json:
        return report(asked.logs, asked.json)
    return 0


def collect(logs: Path, kind: str, wanted: int, at_most: int, tries: Iterator) -> None:
    tried = logs / f"tried-{kind}.txt"
    done = set(tried.read_text().split()) if tried.exists() else set()
    for name, build in tries:
        if len(list(logs.glob(f"{kind}-*.log"))) >= wanted or at_most <= 0:
            return
        if name in done:
            continue
        at_most -= 1
        with tried.open("a") as stream:
            stream.write(f"{name}\n")
        status, output = build()
        if status == 0:
            name = re.sub(r"[^\w.+-]", "_", name)
            (logs / f"{kind}-{name}.log").write_bytes(output)


def run(
    *command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> tuple[int, bytes]:
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 1, b""
    return done.returncode, done.stdout


# -- pip -------------------------------------------------------------------------------------------


def projects(contents: Path) -> list[str]:
    """Return the projects of Debian's Python packages, in an order that is always the same."""
    pattern = re.compile(r"usr/lib/python3/dist-packages/([\w.]+?)-\d[^/]*\.(?:dist|egg)-info/")
    with gzip.open(contents, "rt", encoding="utf-8", errors="replace") as stream:
        found = {match[1] for line in stream if (match := pattern.match(line))}
    names = sorted(found)
    random.Random(1).shuffle(names)
    return names


def pip_wheel(logs: Path, name: str) -> tuple[int, bytes]:
    python = environment(logs)
    with tempfile.TemporaryDirectory() as folder:
        return run(
            python, "-m", "pip", "wheel", "-v", "--no-deps", "--no-cache-dir",
            "--no-build-isolation", "--no-binary", ":all:", "-w", folder, name,
            cwd=Path(folder), env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        )  # fmt: skip


def environment(logs: Path) -> Path:
    python = logs / "environment" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", logs / "environment"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *BACK_ENDS.split()], check=True)
    return python.absolute()


# -- debian ----------------------------------------------------------------------------------------


def sources(index: Path) -> list[str]:
    """Return small source packages with compiled parts, in an order that is always the same."""
    found = []
    with gzip.open(index, "rt", encoding="utf-8") as stream:
        for entry in stream.read().split("\n\n"):
            name = re.search(r"^Package: (\S+)", entry, re.MULTILINE)
            sizes = [
                int(size)
                for size in re.findall(r"^ [0-9a-f]{32} (\d+) \S+\.orig\.tar", entry, re.MULTILINE)
            ]
            compiled = re.search(r"^Architecture:.*\bany\b", entry, re.MULTILINE)
            needs = re.search(r"^Build-Depends:((?:.*\n)(?: .*\n)*)", entry, re.MULTILINE)
            few = needs is None or needs[1].count(",") < 9
            if name and sizes and sum(sizes) < 1_500_000 and compiled and few:
                found.append(name[1])
    random.Random(1).shuffle(found)
    return found


def debian(root: Path, name: str) -> tuple[int, bytes]:
    """Build a package in the root; what it needs stays installed for the next one."""
    script = f"""set -e
    export DEBIAN_FRONTEND=noninteractive DEB_BUILD_OPTIONS="nocheck parallel=2"
    mkdir -p /build/{name} && cd /build/{name}
    apt-get -qq source --download-only {name} >/dev/null
    apt-get -qq -y --no-install-recommends build-dep {name} >/dev/null 2>&1
    exec 2>&1
    dpkg-source -x *.dsc tree
    cd tree && dpkg-buildpackage -b -uc -us
    """
    status, output = run("chroot", root, "sh", "-c", script)
    shutil.rmtree(root / "build" / name, ignore_errors=True)
    return status, output


CRATES = """serde regex rand syn clap-3 tokio itertools serde-json toml chrono uuid image libz-sys
openssl-sys bindgen criterion proc-macro2 rayon crossbeam thiserror anyhow semver url flate2 nix"""


def crate(root: Path, name: str) -> tuple[int, bytes]:
    """Build a crate of Debian, and those that it needs, as the dependency of an empty project."""
    crates = "/usr/share/cargo/registry"
    script = f"""set -e
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -y --no-install-recommends install cargo librust-{name}-dev >/dev/null 2>&1
    rm -rf /build/{name} && mkdir -p /build/{name}/src /build/{name}/.cargo && cd /build/{name}
    found=$(dpkg -L librust-{name}-dev | grep -E '^{crates}/[^/]*$' | head -n 1)
    crate=$(sed -n 's/^name = "\\(.*\\)"$/\\1/p' $found/Cargo.toml | head -n 1)
    printf '[package]\\nname = "mill"\\nversion = "1.0.0"\\n' > Cargo.toml
    printf '[dependencies]\\n%s = "*"\\n' $crate >> Cargo.toml
    printf '[source.crates-io]\\nreplace-with = "d"\\n[source.d]\\ndirectory = "{crates}"\\n' \\
        > .cargo/config
    echo > src/lib.rs
    cargo build --offline -vv 2>&1
    """
    status, output = run("chroot", root, "sh", "-c", script)
    shutil.rmtree(root / "build" / name, ignore_errors=True)
    return status, output


# -- miniatures ------------------------------------------------------------------------------------


def miniatures() -> Iterator:
    """Yield the projects of the suite with a CMakeLists.txt, each by two generators, plain and
    verbose.
    """
    for tree in sorted((ROOT / "tests" / "projects").glob("*/CMakeLists.txt")):
        for generator in ("Ninja", "Unix Makefiles"):
            for verbose in ("OFF", "ON"):
                name = f"{tree.parent.name}-{generator}-{verbose}"
                yield name, lambda t=tree.parent, g=generator, v=verbose: configured(t, g, v)


def configured(tree: Path, generator: str, verbose: str) -> tuple[int, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        options = ["-G", generator, f"-DCMAKE_VERBOSE_MAKEFILE={verbose}"]
        status, first = run("cmake", "-S", tree, "-B", folder, *options)
        if status:
            return status, b""
        status, second = run("cmake", "--build", folder)
        return status, first + second


# -- generated -------------------------------------------------------------------------------------
# Small projects with what mistakes for errors are made of: names of files, warnings, messages.


NAMES = [
    "error",
    "fatal_error",
    "failed",
    "undefined_reference",
    "no_such_file",
    "segfault",
    "out_of_memory",
    "killed",
    "abort",
    "traceback",
    "cannot_find",
    "permission_denied",
    "timeout",
    "no_space_left",
    "unsupported",
    "invalid",
    "missing",
    "ERROR",
]
SNIPPETS = (
    "int f{0}(void) {{ int error; return 0; }}",
    "#warning fatal error: this is only a warning\nint f{0};",
    "static int undefined_reference_{0}(void) {{ return 1; }}",
    'const char *f{0}(void) {{ char *e = "error: cannot find -lz"; int x = e; return e; }}',
    "int f{0}(unsigned n) {{ if (n < 0) return -1; return n; }}",
    '#include <stdio.h>\nvoid f{0}(long n) {{ printf("Error %d: failed\\n", n); }}',
    "int f{0}(int n) {{ switch (n) {{ case 1: n++; case 2: return n; }} }}",
    "[[deprecated]] int old_error{0}(void); int f{0}(void) {{ return old_error{0}(); }}",
)
SAYINGS = (
    "checking for strerror_r... no",
    "-- Looking for cublas_v2.h - not found",
    "configure: WARNING: unrecognized options: --with-error",
    "Performing Test HAS_ERROR - Failed",
    "0 errors, 0 failures, 3 tests passed",
    "warning: the following packages were not found: nvcc, error",
    "test_error_handling ... ok",
    "FAIL: 0  ERROR: 0  XFAIL: 2",
    "fatal: No names found, cannot describe anything.",
    "copying src/errors.py -> build/lib/errors.py",
)


def generated() -> Iterator:
    """Yield builds of projects that differ by their number, by make and ninja in turns."""
    for number in range(10**6):
        yield f"{number}", lambda number=number: small_build(number)


def by_tool(tool: str) -> Iterator:
    """Yield builds of small projects by CMake, meson, cargo or setuptools."""
    build = {"cmake": cmake_build, "meson": meson_build, "cargo": cargo_build, "setup": setup_build}
    for number in range(10**6):
        yield f"{number}", lambda number=number: build[tool](random.Random(number))


def write_sources(chance: random.Random, folder: Path) -> list[str]:
    names = chance.sample(NAMES, 2)
    for name in names:
        snippets = chance.sample(SNIPPETS, 3)
        lines = [text.format(f"_{name}_{place}") for place, text in enumerate(snippets)]
        (folder / f"{name}.c").write_text("\n".join(lines) + "\n")
    return names


def cmake_build(chance: random.Random) -> tuple[int, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = " ".join(f"{one}.c" for one in write_sources(chance, folder))
        said = "".join(f'message(STATUS "{text}")\n' for text in chance.sample(SAYINGS, 2))
        lacking = chance.choice(("CUDAToolkit", "MKL", "NCCL", "OpenBLAS", "Boost", "Protobuf"))
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.18)\nproject(mill C)\ninclude(CheckIncludeFile)\n"
            f"{said}find_package({lacking})\ncheck_include_file(no_such_error.h HAS_ERROR)\n"
            f'message(WARNING "{lacking} not found. Compiling without it")\n'
            f"add_library(mill SHARED {sources})\ntarget_compile_options(mill PRIVATE -Wall)\n"
        )
        generator = chance.choice(("Ninja", "Unix Makefiles"))
        configure = ("cmake", "-G", generator, "-B", "build")
        return run_in_turn(configure, ("cmake", "--build", "build", "-v"), cwd=folder)


def run_in_turn(*commands: Sequence[str], cwd: Path) -> tuple[int, bytes]:
    """Run commands until one fails; return the last status and all output."""
    status, output = 0, b""
    for command in commands:
        status, more = run(*command, cwd=cwd)
        output += more
        if status:
            break
    return status, output


def meson_build(chance: random.Random) -> tuple[int, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = ", ".join(f"'{one}.c'" for one in write_sources(chance, folder))
        lacking = chance.choice(("openblas", "libzstd", "cuda", "mpi", "gtest"))
        (folder / "meson.build").write_text(
            "project('mill', 'c', default_options: ['warning_level=3'])\n"
            f"dependency('{lacking}_no', required: false)\n"
            f"warning('error: {lacking} is not there')\nlibrary('mill', {sources})\n"
        )
        setup = ("meson", "setup", "build")
        return run_in_turn(setup, ("ninja", "-v", "-C", "build"), cwd=folder)


def cargo_build(chance: random.Random) -> tuple[int, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src").mkdir()
        modules = chance.sample([one.lower() for one in NAMES[:-1]], 3)
        for one in modules:
            (folder / "src" / f"{one}.rs").write_text(
                f"pub fn fail_{one}() -> Result<u8, String> {{\n"
                "    let error = 1;\n    Err(String::new())\n}\n"
            )
        (folder / "src" / "lib.rs").write_text("".join(f"mod {one};\n" for one in modules))
        (folder / "build.rs").write_text(
            f'fn main() {{ println!("cargo:warning=error: {modules[0]} is disabled"); }}\n'
        )
        (folder / "Cargo.toml").write_text(
            f'[package]\nname = "{modules[0]}-sys"\nversion = "0.1.0"\nedition = "2021"\n'
        )
        return run("cargo", "build", "--offline", "-vv", cwd=folder)


def setup_build(chance: random.Random) -> tuple[int, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = [f"{one}.c" for one in write_sources(chance, folder)]
        said = chance.choice(SAYINGS)
        (folder / "setup.py").write_text(
            "import warnings\nfrom setuptools import Extension, setup\n"
            f"warnings.warn({said!r})\n"
            f"setup(name='mill', version='1', ext_modules=[Extension('mill', {sources})])\n"
        )
        return run(sys.executable, "setup.py", "-v", "build", cwd=folder)


def small_build(number: int) -> tuple[int, bytes]:
    chance = random.Random(number)
    with tempfile.TemporaryDirectory() as folder:
        names = write_sources(chance, Path(folder))
        says = [f"echo '{text}'" for text in chance.sample(SAYINGS, 3)]
        flags = chance.choice(("-Wall -Wextra", "-Wall -Wno-error", "-Wall -Wextra -Wpedantic"))
        compiles = [f"cc {flags} -c {name}.c -o {name}.o" for name in names]
        commands = [*says, *compiles, f"ar rcs lib{names[0]}.a {names[0]}.o {names[1]}.o"]
        if number % 2:
            rules = "all:\n" + "".join(f"\t{command}\n" for command in commands)
            Path(folder, "Makefile").write_text(rules)
            return run("make", cwd=Path(folder))
        steps = "".join(
            f"rule r{place}\n command = {command}\nbuild s{place}: r{place} "
            f"{'|| s' + str(place - 1) if place else ''}\n"
            for place, command in enumerate(commands)
        )
        Path(folder, "build.ninja").write_text(steps)
        return run("ninja", "-v", cwd=Path(folder))


# -- report ----------------------------------------------------------------------------------------


def report(logs: Path, result: Path) -> int:
    from stoker.diagnose.diagnosing import diagnose_what

    files = sorted(logs.glob("*.log"))
    found: dict[str, list[str]] = {}
    for file in files:
        diagnosis = diagnose_what(str(file))
        if diagnosis.status != "nothing-failed":
            found[file.name] = [finding.cause for finding in diagnosis.findings] or ["unknown"]
    kinds = Counter(file.name.partition("-")[0] for file in files)
    real = sum(kinds[kind] for kind in ("pip", "debian", "crate"))
    speaking = sum(bool(re.search(rb"(?i)error|warning|fail", file.read_bytes())) for file in files)
    summary = {
        "logs": len(files), "of real projects": real, **kinds,
        "with error, warning or fail in them": speaking,
        "lines": sum(file.read_bytes().count(b"\n") for file in files), "with a cause": found,
    }  # fmt: skip
    result.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
