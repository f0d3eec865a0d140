"""Makes the table of which package provides a header, library, CMake package, program or module.

    python release/providers.py Contents-all.gz Contents-arm64.gz --sources Sources.gz
        [--known COLUMN FILE]...

writes src/stoker/knowledge/providers.tsv from Debian's own file lists (`apt-file update` leaves
them in /var/lib/apt/lists, and every Debian mirror has them beside the package lists) for the
packages of release/package_names.tsv. Sources.gz, beside them, says what Debian builds the projects
of PyPI with. The names of the other package managers come from there; with
a file of names of one of them, the script prints those of the column that the file does not have.
"""

import argparse
import gzip
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "release" / "package_names.tsv"
TABLE = ROOT / "src" / "stoker" / "knowledge" / "providers.tsv"
MOST_HEADERS, MOST_OTHERS = 24, 60  # rows of one kind for one package
MOST_SHARED = 60  # headers in a folder that other packages have too
TABLES: dict[str, Any] = tomllib.loads((ROOT / "release" / "provider_tables.toml").read_text())
EXTRA = {(kind, name): p for kind, names in TABLES["extra"].items() for name, p in names.items()}
TRIPLET = r"(?:[a-z0-9_]+-linux-gnu\w*/)?"
INCLUDE = re.compile(
    rf"usr/(?:include/{TRIPLET}(?:openblas-pthread/)?|lib/{TRIPLET}(?=openmpi/include/))(.+)"
)
HEADER = re.compile(r".+\.(?:h|hpp|hh|hxx|cuh|inl)|[A-Z]\w+|[a-z_]+")
# Folders whose library is a link that update-alternatives makes in the folder above.
ALTERNATIVES = re.compile(r"(?:openblas-pthread|blis-pthread|atlas|blas|lapack)/")

HEADER_LINES = """
What provides a header, library, CMake package, program or Python module; made by
release/providers.py. Rows of Debian 12's file lists: kind, name, folder that a compiler is not told
of, Debian's package. A few development packages without names elsewhere follow. Kind
header: `x/` is any header below that folder. Kind shared: a library that the loader needs. Kind
symbol: a symbol, or with `*` all that begin like that, and the library (not the package) that
defines it; written by hand in release/provider_tables.toml.
Rows `package`: Debian's name, then Fedora's and RHEL's, conda-forge's, Alpine's, Arch's and
Homebrew's (written by hand in release/package_names.tsv, and compared with lists of names), and
PyPI's (from the metadata in Debian's package). Rows `pypi`: modules that Debian 12 does not have,
PyPI's and conda-forge's name.
Rows `project`: a compiled project of PyPI, and the packages that Debian installs to build it.
"""


class Row(NamedTuple):
    kind: str
    name: str
    root: str  # a folder that compilers do not search by default; @ is the architecture's name
    package: str


class Names(NamedTuple):
    fedora: str
    conda: str
    apk: str
    pacman: str
    brew: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contents", type=Path, nargs="+")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--known", nargs=2, action="append", default=[], metavar=("COLUMN", "FILE"))
    asked = parser.parse_args()
    names = read_names()
    files = files_by_package(asked.contents, names)
    rows = sorted({row for name in names for row in rows_of(name, files[name])})
    rows += [row for name in names for row in shared_headers(name, files[name], rows)]
    rows = [row for row in rows if (row.kind, row.name) not in EXTRA]
    rows += [Row(kind, name, "", package) for (kind, name), package in EXTRA.items()]
    rows = without_ambiguity([*rows, *find_modules(files)])
    rows += others(asked.contents, rows)
    rows += sorted(symbols(rows))
    rows += sorted(built_with(asked.sources, project_packages(asked.contents)))
    projects = {
        name: TABLES["programs_on_pypi"].get(name) or project_of(files[name]) for name in names
    }
    TABLE.write_text("".join(f"{line}\n" for line in table(rows, names, projects)))
    counts = Counter(row.kind for row in rows)
    print(*(f"{kind}: {count}" for kind, count in sorted(counts.items())), sep="\n")
    empty = [name for name in names if not any(name in row.package.split() for row in rows)]
    print("without a row:", *empty)
    for column, file in asked.known:
        there = set(Path(file).read_text().split())
        missing = sorted({getattr(one, column) for one in names.values()} - there - {"-"})
        print(f"not in the list of {column}:", *missing)
    return 0


def read_names() -> dict[str, Names]:
    lines = (line.split("\t") for line in NAMES.read_text().splitlines() if line[0] != "#")
    return {debian: Names(*others) for debian, *others in lines}


def files_by_package(contents: Iterable[Path], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each listed package, read from Debian's lists of contents."""
    wanted = [(name, re.compile(files_of(name))) for name in names]
    owners: dict[str, list[str]] = {}
    found: dict[str, list[str]] = defaultdict(list)
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                path, _, packages = line.rstrip("\n").rpartition(" ")
                for package in (one.rpartition("/")[2] for one in packages.split(",")):
                    if package not in owners:
                        owners[package] = [
                            name for name, is_it in wanted if is_it.fullmatch(package)
                        ]
                    for name in owners[package]:
                        found[name].append(path.rstrip())
    return found


def others(contents: Iterable[Path], rows: Iterable[Row]) -> list[Row]:
    """Return what the development packages without names elsewhere provide, if no other package of
    Debian does. Those of all of Debian would make the table three times as large, and hardly one
    of them is ever missing in a build.
    """
    taken = {(row.kind, row.name) for row in rows}
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                path, _, packages = line.rstrip("\n").rpartition(" ")
                owners = [one.rpartition("/")[2] for one in packages.split(",")]
                if len(owners) == 1 and owners[0].endswith("-dev"):
                    for one in provided(path.rstrip()):
                        found[one].add(owners[0])
    unique = {one: packages for one, packages in found.items() if len(packages) == 1}
    return sorted(
        Row(kind, name, "", *packages)
        for (kind, name), packages in unique.items()
        if (kind, name) not in taken and packages <= set(TABLES["without_names"])
    )


def provided(path: str) -> Iterator[tuple[str, str]]:
    """Yield the header, library, module of pkg-config or program like it that a file is. Headers in
    folders, and those with a name that any project could use, are left out.
    """
    if match := re.fullmatch(rf"usr/include/{TRIPLET}([\w.+-]+\.(?:h|hpp))", path):
        if match[1].partition(".")[0].lower() not in TABLES["any_project"]:
            yield "header", match[1]
    elif match := re.fullmatch(rf"usr/lib/{TRIPLET}lib([^/]+)\.(?:so|a)", path):
        yield "library", match[1]
    elif match := re.fullmatch(rf"usr/(?:lib|share)/{TRIPLET}pkgconfig/([^/]+)\.pc", path):
        yield "pkgconfig", match[1]
    elif match := re.fullmatch(r"usr/bin/([\w.+]+[-_]config)", path):
        yield "program", match[1]


def files_of(name: str) -> str:
    for alias, pattern in TABLES["files_of"].items():
        if found := re.fullmatch(alias, name):
            parts = {key: re.escape(value) for key, value in found.groupdict().items()}
            return str(pattern.format(**parts) if parts else pattern)
    return re.escape(name)


def rows_of(package: str, files: list[str]) -> Iterator[Row]:
    yield from (Row("header", *header, package) for header in headers(files))
    if package.startswith("python3-") or package in ("cython3", "flit"):
        yield from (Row("module", name, "", package) for name in modules(files))
    library = first(MOST_OTHERS, libraries(files), package)
    yield from (Row("library", name, root, package) for name, root in library)
    names = {
        "shared": re.compile(
            rf"usr/lib/{TRIPLET}(lib[^/]+\.so\.[\d.]+)|lib/{TRIPLET}(lib[^/]+\.so\.[\d.]+)"
        ),
        "cmake": re.compile(r"usr/(?:lib|share)/.*cmake/.*?([\w.+-]+?)(?:-c|C)onfig\.cmake"),
        "pkgconfig": re.compile(r"usr/(?:lib|share)/(?:.*/)?pkgconfig/([^/]+)\.pc"),
        "program": re.compile(r"(?:usr/)?s?bin/([^/]+?)(?:\.openmpi)?"),
    }
    for kind, pattern in names.items():
        if kind == "program" and (is_library(package) or package.endswith("-dev")):
            pattern = re.compile(
                r"usr/bin/([^/]+[-_]config|pg_config|h5cc|mpicc|mpicxx|protoc)(?:\.openmpi)?"
            )
        found = {
            next(filter(None, match.groups()))
            for path in files
            if (match := pattern.fullmatch(path))
        }
        yield from (Row(kind, name, "", package) for name in sorted(found)[:MOST_OTHERS])


def is_library(package: str) -> bool:
    return package.startswith(("lib", "python3-")) and not package.startswith("libtool")


def headers(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return the headers as they are included, each with the folder to search; ``x/`` for a folder
    of headers.
    """
    found: dict[tuple[str, str], int] = Counter()
    for path in files:
        if not (header := as_included(path)):
            continue
        name, root = header
        folder, slash, _ = name.partition("/")
        found[(f"{folder}/" if slash else name, root)] += 1
    ranked = sorted(found, key=lambda one: (one[0].endswith("/"), len(one[0]), one))
    folders = [one for one in ranked if one[0].endswith("/")]
    return [*[one for one in ranked if one not in folders][:MOST_HEADERS], *folders[:MOST_HEADERS]]


def shared_headers(package: str, files: Iterable[str], rows: Iterable[Row]) -> list[Row]:
    """Return the headers of a package in folders that other packages have too, each as a row."""
    owners = Counter(row.name for row in rows if row.kind == "header" and row.name.endswith("/"))
    found = []
    for path in files:
        if header := as_included(path):
            name, root = header
            if owners[f"{name.partition('/')[0]}/"] > 1:
                found.append(Row("header", name, root, package))
    return sorted(found, key=lambda row: (row.name.count("/"), len(row.name), row.name))[
        :MOST_SHARED
    ]


def as_included(path: str) -> tuple[str, str] | None:
    """Return the name by which a file is included, and the folder that has to be searched for it;
    ``@`` stands for the name of the architecture.
    """
    match = INCLUDE.fullmatch(path)
    if not match or not HEADER.fullmatch(Path(path).name):
        return None
    for root in sorted(TABLES["include_roots"], key=len, reverse=True):
        if match[1].startswith(f"{root}/"):
            above = re.sub(r"[a-z0-9_]+-linux-gnu\w*", "@", path[: match.start(1)])
            return match[1].removeprefix(f"{root}/"), f"/{above}{root}"
    return match[1], ""


def libraries(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    pattern = re.compile(rf"usr/lib/{TRIPLET}((?:[\w.-]+/){{0,2}})lib([^/]+?)\.(?:so|a)")
    for path in files:
        if match := pattern.fullmatch(path):
            root = "" if ALTERNATIVES.fullmatch(match[1]) else match[1].rstrip("/")
            if root == "" or root in TABLES["library_roots"]:
                yield match[2], f"/usr/lib/@/{root}" if root else ""


def first(most: int, found: Iterable[tuple[str, str]], package: str) -> list[tuple[str, str]]:
    def order(one: tuple[str, str]) -> tuple[bool, int, str]:
        return one[0].lower() not in package.lower(), len(one[0]), one[0]

    return sorted(set(found), key=order)[:most]


def modules(files: Iterable[str]) -> list[str]:
    pattern = re.compile(
        r"usr/lib/python3[\d.]*/(?:dist-packages/)?([A-Za-z]\w*)(?:/__init__\.py|\.py|\.cpython-.+\.so)"
    )
    found = {match[1] for path in files if (match := pattern.fullmatch(path))}
    return sorted(found)[:MOST_OTHERS]


def project_of(files: Iterable[str]) -> str:
    """Return the name of the project on PyPI, which the metadata of a Python package has."""
    pattern = re.compile(
        r"usr/lib/python3/dist-packages/([^/]+?)-\d[^/]*\.(?:dist|egg)-info(?:/.+)?"
    )
    found = {match[1] for path in files if (match := pattern.fullmatch(path))}
    return min(found, key=len).replace("_", "-") if found else "-"


def project_packages(contents: Iterable[Path]) -> dict[str, str]:
    """Return the projects of PyPI by Debian's package, which has their metadata."""
    pattern = re.compile(
        r"usr/lib/python3/dist-packages/([^/]+?)-\d[^/]*\.(?:dist|egg)-info(?:/\S+)?\s+(\S+)"
    )
    found: dict[str, str] = {}
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if match := pattern.match(line):
                    package = match[2].partition(",")[0].rpartition("/")[2]
                    found[package] = re.sub(r"[-_.]+", "-", match[1]).lower()
    return found


def built_with(sources: Path, projects: dict[str, str]) -> Iterator[Row]:
    """Yield the projects of PyPI with what Debian builds them with, if that is more than one
    package. Sources that are more than a Python project need more than its extensions do.
    """
    with gzip.open(sources, "rt", encoding="utf-8") as stream:
        entries = stream.read().split("\n\n")
    for entry in entries:
        fields = dict(re.findall(r"^([\w-]+):((?:.*\n?)(?: .*\n?)*)", entry, re.MULTILINE))
        binaries = re.findall(r"[^\s,]+", fields.get("Binary", ""))
        if all(re.match(r"python|.*-(?:doc|common|dbg|tests)$", name) for name in binaries):
            needs = f"{fields.get('Build-Depends', '')},{fields.get('Build-Depends-Arch', '')}"
            packages = sorted({name for one in needs.split(",") if (name := needed(one))})
            named = {projects[name] for name in binaries if name in projects}
            if len(packages) > 1:
                yield from (Row("project", name, "", " ".join(packages)) for name in named)


def needed(requirement: str) -> str | None:
    """Return the package of a build requirement that compiled extensions may need: the development
    files of a library, or a tool. Requirements of tests and of some architectures are left out.
    """
    match = re.fullmatch(r"([a-z0-9.+-]+)(?::\w+)?(?: \([^)]*\))?", requirement.strip())
    if not match or re.match(r"python|libpython|pypy|dpkg|libtorch|pybind", match[1]):
        return None
    name = TABLES["renamed"].get(match[1], match[1])
    return name if name.endswith("-dev") or name in TABLES["tools"] else None


def find_modules(files: dict[str, list[str]]) -> Iterator[Row]:
    pattern = re.compile(r"usr/share/cmake-[\d.]+/Modules/Find(\w+)\.cmake")
    there = {match[1] for path in files["cmake"] if (match := pattern.fullmatch(path))}
    for name, packages in TABLES["find_modules"].items():
        if packages and (name in there or not there):
            yield Row("cmake", name, "", packages)


def symbols(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the beginnings of symbols. Their library is in the table, or part of every system."""
    there = {row.name for row in rows if row.kind == "library"}
    always = {
        "pthread",
        "dl",
        "rt",
        "m",
        "stdc++fs",
        "stdc++",
        "gcov",
        "crypt",
        "resolv",
        "util",
        "nsl",
    }
    of_compiler = {"atomic", "gfortran", "quadmath", "gomp", "omp"}
    beside_musl = {"fts", "argp", "obstack"}  # glibc has them itself
    for library, beginnings in TABLES["symbols"].items():
        if library not in there | always | of_compiler | beside_musl:
            raise SystemExit(f"no package has lib{library}.so")
        for beginning in beginnings.split():
            name = beginning.replace("~", " ")
            yield Row("symbol", f"{name}*" if name.endswith(("_", "::")) else name, "", library)


def without_ambiguity(rows: list[Row]) -> list[Row]:
    """Return one row for each name: that of the package which is closest to the name; a Find module
    of CMake wins. A folder of headers that several packages share is not a name.
    """
    by_name: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.kind, row.name.lower() if row.kind == "cmake" else row.name].append(row)
    return sorted(min(same, key=closeness) for same in by_name.values())


def closeness(row: Row) -> tuple[bool, bool, int, str]:
    plain = re.sub(r"[\W_]|\d+$", "", row.name.lower())
    package = re.sub(r"[\W_]", "", row.package.lower())
    return (
        TABLES["find_modules"].get(row.name) != row.package,
        plain not in package,
        len(row.package),
        row.package,
    )


def table(rows: list[Row], names: dict[str, Names], projects: dict[str, str]) -> Iterator[str]:
    yield from (f"# {line}" for line in HEADER_LINES.strip().splitlines())
    provided = [row for row in rows if row.kind not in ("symbol", "project")]
    used = {package for row in provided for package in row.package.split()}
    for name in sorted(used & names.keys()):
        yield "\t".join(("package", name, *names[name], projects[name]))
    for module, (project, conda) in sorted(TABLES["modules_elsewhere"].items()):
        yield "\t".join(("pypi", module, project, conda))
    yield from ("\t".join(row) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
