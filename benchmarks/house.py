"""Counts what makes the sources long or hard to read, for each package and in all.

    python benchmarks/house.py [COMMIT]            the table, of this tree or of a commit
    python benchmarks/house.py --loads             modules of stoker that three commands import
    python benchmarks/house.py --names             top-level names that several modules define
    python benchmarks/house.py --single PACKAGE    private functions with exactly one caller

A private function is a function or method whose name begins with one underscore. Its callers are
the places in its module, outside its own body, that name it. Of those with one caller, only the
straight ones could be a part of it as they are: they have one exit, are called outside of loops,
and are neither generators nor values of tables and callbacks.
"""

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BANNER = re.compile(r"^# -{2,} .* -{3,}$", re.MULTILINE)
COLUMNS = (
    *("files", "lines", "code", "blank", "docs", "comment", "banners"),
    *("private", "one caller", "straight"),
)
_REPEATING = (
    *(ast.For, ast.While, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class Module(NamedTuple):
    """One file of ``src``."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The folder below stoker, or stoker itself."""
        inner = self.path.parts[self.path.parts.index("stoker") + 1 :]
        return inner[0] if len(inner) > 1 else "stoker"


def modules(root: Path) -> list[Module]:
    """Return all modules of a tree."""
    texts = ((path, path.read_text()) for path in sorted((root / "src" / "stoker").rglob("*.py")))
    return [Module(path.relative_to(root), text, ast.parse(text)) for path, text in texts]


def counts(module: Module) -> Counter[str]:
    """Return what the table shows of one module."""
    lines = module.text.splitlines()
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
    comment = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    docs = set(_docstring_lines(module.tree))
    private = list(private_functions(module))
    return Counter(
        {
            "files": 1,
            "lines": len(lines),
            "blank": len(blank - docs),
            "docs": len(docs),
            "comment": len(comment - docs),
            "code": len(lines) - len(blank | comment | docs),
            "banners": len(BANNER.findall(module.text)),
            "private": len(private),
            "one caller": sum(callers == 1 for _, callers in private),
            "straight": len(set(straight_functions(module))),
        }
    )


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def private_functions(module: Module) -> Iterator[tuple[str, int]]:
    """Yield each private function and method with the number of its callers."""
    used = Counter(_uses(module.tree))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(
            r"_[^_]", node.name
        ):
            yield node.name, used[node.name] - Counter(_uses(node))[node.name]


def straight_functions(module: Module) -> Iterator[str]:
    """Yield the private functions with one caller that could be a part of it as they are."""
    single = {name for name, callers in private_functions(module) if callers == 1}
    split: set[str] = set()  # more than one exit, or a generator
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef):
            inner = list(ast.walk(node))
            exits = sum(isinstance(one, ast.Return | ast.Raise) for one in inner)
            if exits > 1 or node.decorator_list:
                split.add(node.name)
            if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inner):
                split.add(node.name)
    yield from (single & _called_once(module.tree)) - split


def _called_once(node: ast.AST, *, repeated: bool = False) -> set[str]:
    """Return the names that are called outside of loops, comprehensions and lambdas."""
    found: set[str] = set()
    if isinstance(node, ast.Call) and not repeated:
        found |= {getattr(node.func, "id", ""), getattr(node.func, "attr", "")}
    again = isinstance(node, _REPEATING) or (
        repeated and not isinstance(node, ast.FunctionDef | ast.ClassDef)
    )
    for inner in ast.iter_child_nodes(node):
        found |= _called_once(inner, repeated=again)
    return found


def _uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr


def shared_names(found: list[Module]) -> dict[str, list[Path]]:
    """Return the names of functions and classes that several modules define at their top."""
    places: dict[str, list[Path]] = defaultdict(list)
    for module in found:
        for name in set(_top_level(module.tree)):
            places[name].append(module.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def _top_level(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def print_table(found: list[Module]) -> None:
    """Print one row for each package, and the sum."""
    by_package: dict[str, Counter[str]] = defaultdict(Counter)
    for module in found:
        by_package[module.package].update(counts(module))
        by_package["all"].update(counts(module))
    print(f"{'':12}" + "".join(f"{column:>11}" for column in COLUMNS))
    for package, row in by_package.items():
        if package != "all":
            print(f"{package:12}" + "".join(f"{row[column]:11,}" for column in COLUMNS))
    print(f"{'all':12}" + "".join(f"{by_package['all'][column]:11,}" for column in COLUMNS))
    print(f"top-level names in several modules: {len(shared_names(found))}")
    outside = [
        f"{module.path.name} {len(module.text.splitlines())}"
        for module in found
        if len(module.text.splitlines()) > 500
    ]
    print(f"files above 500 lines: {len(outside)}: {', '.join(outside)}")


def print_loads() -> None:
    """Print how many modules of stoker three commands import in their own process."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    from slim_wheels import make_wheel, torch_members

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "tests" / "projects" / "mini-wheel", folder / "tree")
        wheel = make_wheel(
            folder, torch_members(lambda tool: shutil.which(tool) or tool, folder / "made")
        )
        commands = {
            "run -- true": ["run", "--", "true"],
            "slim WHEEL --for sm90": ["slim", str(wheel), "--for", "sm90", "-o", "slim"],
            "build TREE -v cpu": ["build", "tree", "--variant", "cpu", "-o", "dist"],
        }
        for title, words in commands.items():
            print(f"{title:32} {len(_loaded(words, folder)):4} modules")


def _loaded(words: list[str], folder: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stoker", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"stoker {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return set(re.findall(r"^import time:.*\| +(stoker\S*)$", done.stderr, re.MULTILINE))


def main() -> None:
    """Print what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commit", nargs="?", help="a commit in place of this tree")
    parser.add_argument("--loads", action="store_true", help="count the modules that are imported")
    parser.add_argument("--names", action="store_true", help="list names of several modules")
    parser.add_argument("--single", metavar="PACKAGE", help="list functions with one caller")
    wanted = parser.parse_args()
    if wanted.loads:
        print_loads()
        return
    with tempfile.TemporaryDirectory() as name:
        root = ROOT
        if wanted.commit:
            root = Path(name)
            packed = subprocess.check_output(["git", "archive", wanted.commit, "src"], cwd=ROOT)
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(root, filter="data")
        found = modules(root)
    if wanted.names:
        for shared, paths in shared_names(found).items():
            print(f"{shared:32} {' '.join(str(path.relative_to('src/stoker')) for path in paths)}")
    elif wanted.single:
        for module in found:
            names = [name for name, callers in private_functions(module) if callers == 1]
            if names and module.package == wanted.single:
                print(f"{module.path}: {', '.join(names)}")
    else:
        print_table(found)


if __name__ == "__main__":
    main()
