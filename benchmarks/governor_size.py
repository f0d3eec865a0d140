"""Counts what a reader of the governor has to know: `python benchmarks/governor_size.py`.

Constants are numbers with a name, of a module or a class, in govern/policy, which predicts and
decides: everything that was chosen and could have been chosen otherwise. Branches are the places in
the same modules at which the code goes one way or another. Lines are those of all files of govern/.
``--names`` lists the constants, each with its value and the comment that says what it means.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

GOVERN = Path(__file__).parents[1] / "src/stoker/govern"
DECIDING = GOVERN / "policy"
# Of a graph, not of what may start.
NOT_DECIDING = {"__init__", "bounds", "critical_path"}
_BRANCHES = (ast.If, ast.IfExp, ast.While, ast.For, ast.comprehension, ast.ExceptHandler, ast.Match)


def deciding() -> list[Path]:
    return sorted(path for path in DECIDING.glob("*.py") if path.stem not in NOT_DECIDING)


class Chosen(NamedTuple):
    """A constant: its name, its value as it is written, and what the comment says of it."""

    name: str
    value: str
    meaning: str


def constants(text: str) -> Iterator[Chosen]:
    """Yield the numbers that a module or one of its classes defines."""
    tree, lines = ast.parse(text), text.splitlines()
    bodies = [tree.body, *(each.body for each in ast.walk(tree) if isinstance(each, ast.ClassDef))]
    for statement in (each for body in bodies for each in body):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, statement.value
        else:
            continue
        if value is not None and _is_chosen(value):
            yield Chosen(name, ast.unparse(value), _comment(lines, statement))


def _comment(lines: list[str], statement: ast.stmt) -> str:
    """Return the comment above a statement and behind it."""
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    begin = first
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    said = [*lines[begin:first], lines[last].partition("  #")[2]]
    return " ".join(line.strip().lstrip("# ") for line in said if line.strip())


def _is_chosen(value: ast.expr) -> bool:
    """Return whether an expression is a number, or has one in it; 0 and 1 say nothing."""
    if any(isinstance(each, ast.Call | ast.Subscript | ast.Lambda) for each in ast.walk(value)):
        return False
    numbers = (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
    return any(
        (isinstance(each, float) and each != 0.0) or (isinstance(each, int) and each not in (0, 1))
        for each in numbers
    )


def branches(tree: ast.Module) -> int:
    found = sum(isinstance(each, _BRANCHES) for each in ast.walk(tree))
    return found + sum(
        len(each.values) - 1 for each in ast.walk(tree) if isinstance(each, ast.BoolOp)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true", help="list the constants")
    options = parser.parse_args()
    total = [0, 0]
    sys.stdout.write(f"{'module':18} {'constants':>9} {'branches':>9} {'lines':>6}\n")
    for path in deciding():
        text = path.read_text()
        chosen = list(constants(text))
        counts = len(chosen), branches(ast.parse(text))
        total = [before + new for before, new in zip(total, counts, strict=True)]
        lines = len(text.splitlines())
        sys.stdout.write(f"{path.stem:18} {counts[0]:9} {counts[1]:9} {lines:6}\n")
        for each in chosen if options.names else ():
            about = f"{each.name} = {each.value}: {each.meaning}"
            sys.stdout.write(fill(about, 100, initial_indent="    ", subsequent_indent=" " * 8))
            sys.stdout.write("\n")
    lines = sum(len(path.read_text().splitlines()) for path in GOVERN.rglob("*.py"))
    sys.stdout.write(f"{'all that decide':18} {total[0]:9} {total[1]:9}\n")
    sys.stdout.write(f"{'all of govern/':18} {'':9} {'':9} {lines:6}\n")


if __name__ == "__main__":
    main()
