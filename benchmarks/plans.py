"""Plans real source trees for several GPUs and judges each plan by what the tree itself reads.

    python benchmarks/plans.py TREES [--only NAME...] [--configure] [--json FILE]
    python benchmarks/plans.py TREES --truths benchmarks/plan_truths.toml [--only NAME...]

TREES is a folder with one source tree of each project in it, under the name of its repository; a
file `.commit` in a tree names its commit. For every tree and variant the plan is made as `stoker
plan VARIANT --source TREE` makes it, and judged:

    right    a plan that breaks none of the rules below
    refused  no plan, and the reason
    wrong    a setting that nothing reads; a reader that does not hold the name it is said to read;
             a GPU build whose targets no setting chooses and the tree does not fix; targets whose
             code does not run on the GPU; a choice of GPU targets that is left open

With --configure, the plans of CMake projects for h100 are also configured with the CMake and nvcc
of this machine, in a temporary folder, and the commands that ninja would run are held against the
targets of the plan. Nothing is compiled. Projects whose configuration fails here, for example
because a submodule or a library is missing, are listed with the last line of CMake.

With --truths, plans are judged by what is known of the builds, once as files are read and once
with the answers of the builds themselves (plan_truths.py). They need PyTorch in the active
environment, and a CUDA toolkit.

Prints a table and writes results/plans.json, with --truths results/plans-asked.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "plans.json"
import plan_truths  # noqa: E402

sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != HERE]

from stoker.builds.device_compiles import check_configured, ninja_commands  # noqa: E402
from stoker.knowledge.gpus import runs_on  # noqa: E402
from stoker.model.errors import StokerError, TargetsError  # noqa: E402
from stoker.model.finding import Severity  # noqa: E402
from stoker.model.plan import Plan  # noqa: E402
from stoker.model.setting import Origin, OriginKind  # noqa: E402
from stoker.model.variant import Backend, GpuTarget  # noqa: E402
from stoker.plan.estimates import estimate  # noqa: E402
from stoker.plan.planning import make_plan  # noqa: E402
from stoker.plan.subject import Subject, wanted_variant  # noqa: E402
from stoker.plan.survey import survey  # noqa: E402
from stoker.settings.declared import CommandLine  # noqa: E402
from stoker.source.tree import read_tree  # noqa: E402

VARIANTS = ("h100", "rtx4090", "b200", "cpu", "mi300x", "native")
# Folders of a repository that are projects of their own, besides the root.
PARTS = {
    "flash-attention": (".", "hopper"),
    "flashinfer": (".", "flashinfer-jit-cache"),
    "sglang": ("python/sglang/kernels/aot",),
    "FBGEMM": ("fbgemm_gpu",),
    "tiny-cuda-nn": ("bindings/torch",),
    "onnxruntime": (".", "cmake"),
    "faiss": (".",),
    "LightGBM": (".",),
    "xgboost": (".", "python-package"),
}
UNREAD = ("setting-unread", "option-not-passed", "setting-overwritten", "targets-in-the-tree")
OPEN = ("gpu-choice-unset",)

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trees", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--configure", action="store_true")
    parser.add_argument("--truths", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.truths:
        file = arguments.json or RESULTS.with_name("plans-asked.json")
        raise SystemExit(
            bool(plan_truths.run(arguments.trees, arguments.truths, file, list(arguments.only)))
        )
    rows = [row for tree in trees(arguments.trees, arguments.only) for row in judged(tree)]
    print(table(rows))
    chosen = trees(arguments.trees, arguments.only) if arguments.configure else ()
    configured = [row for row in map(configure, chosen) if row]
    for row in configured:
        print(f"{row['project']}: {row['verdict']}: {row['why']}")
    counts = Counter(row["verdict"] for row in rows)
    result = {"counts": dict(counts), "rows": rows, "configured": configured}
    (arguments.json or RESULTS).write_text(plan_truths.as_text(result))
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    raise SystemExit(1 if counts["wrong"] else 0)


def trees(folder: Path, only: list[str]) -> Iterator[Path]:
    for repository in sorted(folder.iterdir()):
        if repository.is_dir() and (not only or repository.name in only):
            for part in PARTS.get(repository.name, (".",)):
                yield folder / repository.name / part


def judged(tree: Path) -> Iterator[Row]:
    read = surveyed(tree)
    for variant in VARIANTS:
        row = {"project": short(tree), "commit": commit_of(tree), "variant": variant}
        try:
            if isinstance(read, StokerError):
                raise read
            made = planned(read, variant)
        except StokerError as error:
            why = error.message.replace(str(tree.resolve()), short(tree))
            why = why.replace(str(tree), short(tree))
            yield row | {"verdict": "refused", "why": why}
            continue
        problems = list(dict.fromkeys(wrong(made, tree)))
        targets = made.targets
        yield row | {
            "verdict": "wrong" if problems else "right",
            "why": "; ".join(problems),
            "recipe": made.recipe,
            "targets": targets_of(made),
            "settings": [
                f"{s.name}={s.value}  [{s.reader}]"
                for s in (*made.environment, *made.cmake)
                if s.origin.kind is not OriginKind.MACHINE
            ],
            "notes": [f.title for f in made.findings if f.severity is not Severity.OK],
            "compiles": bool(targets and targets.compiles),
        }


def surveyed(tree: Path) -> Subject | StokerError:
    """Return what a plan of this tree depends on, or why there is none."""
    try:
        return msgspec.structs.replace(this_machine(tree), tree=read_tree(tree))
    except StokerError as error:
        return error


def this_machine(tree: Path) -> Subject:
    """Return what plans of all trees depend on: machine and tools are read once."""
    if not _MACHINE:
        _MACHINE.append(survey(CommandLine(options={"variant": "cpu", "source": str(tree)})))
    return _MACHINE[0]


_MACHINE: list[Subject] = []


def planned(read: Subject, words: str) -> Plan:
    """Return the plan for another variant, without reading tree and machine once more."""
    origin = Origin(kind=OriginKind.VARIANT, where=words)
    variant, origins = wanted_variant((words, origin), parts={}, features=[], machine=read.machine)
    subject = msgspec.structs.replace(read, variant=variant, name=variant.name, origins=origins)
    return make_plan(subject, estimate(subject))


def short(tree: Path) -> str:
    """Return the repository, and the folder in it that is the project."""
    for parent in (tree, *tree.parents):
        if (parent / ".commit").is_file():
            part = tree.relative_to(parent).as_posix()
            return parent.name if part == "." else f"{parent.name}/{part}"
    return tree.name


def commit_of(tree: Path) -> str:
    for parent in (tree, *tree.parents):
        if (parent / ".commit").is_file():
            return (parent / ".commit").read_text().strip()[:12]
    return ""


def targets_of(made: Plan) -> str:
    if made.targets is None or made.targets.backend is Backend.CPU:
        return ""
    if not made.targets.compiles:
        return "compiles no device code"
    ptx = [f"PTX of {arch}" for arch in made.targets.ptx]
    return ", ".join((*made.targets.cubins, *ptx)) or "not named"


# -- the rules -------------------------------------------------------------------------------------


def wrong(made: Plan, tree: Path) -> Iterator[str]:
    for finding in made.findings:
        if finding.name in (*UNREAD, *OPEN) and finding.severity is Severity.WARNING:
            yield finding.title
        if finding.severity is Severity.ERROR:
            yield finding.title
    for setting in (*made.environment, *made.cmake):
        yield from plan_truths.unfounded(setting, tree)
    targets = made.targets
    if targets is None or not targets.compiles:
        return
    if not targets.set_by and not targets.fixed:
        yield "no setting chooses the targets"
    yield from unserved(made)


def unserved(made: Plan) -> Iterator[str]:
    targets = made.targets
    if targets is None or targets.backend is not Backend.CUDA:
        return
    code = [GpuTarget(arch=arch) for arch in targets.cubins]
    code += [GpuTarget(arch=arch, ptx=True) for arch in targets.ptx]
    for gpu in targets.gpus:
        if not any(runs_on(each, gpu.rstrip("af")) for each in code):
            yield f"none of its targets runs on {gpu}"


# -- configuring -----------------------------------------------------------------------------------


def configure(tree: Path) -> Row | None:
    """Configure the plan for h100 where it is CMake's, and check the commands of ninja."""
    read = surveyed(tree)
    try:
        made = planned(read, "h100") if isinstance(read, Subject) else None
    except StokerError:
        return None
    if made is None:
        return None
    source = next(
        (tree / c.words[2] for c in made.commands if c.words[:2] == ("cmake", "-S")), None
    )
    if source is None and made.cmake and (tree / "CMakeLists.txt").is_file():
        source = tree
    if source is None or made.targets is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        options = [f"-D{s.name}={s.value}" for s in made.cmake]
        environment = os.environ | {s.name: s.value for s in made.environment}
        words = ["cmake", "-S", str(source), "-B", folder, "-G", "Ninja", *options]
        told = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        row = {"project": short(tree)}
        if told.returncode:
            said = [line.strip() for line in told.stderr.splitlines() if line.strip()]
            return row | {"verdict": "not configured here", "why": " ".join(said[:3])[:200]}
        found = ninja_commands(Path(folder), source, environment)
        if found is None:
            return row | {"verdict": "not configured here", "why": "ninja lists no commands"}
        try:
            check_configured(made.targets, found, told.stdout)
        except TargetsError as error:
            return row | {"verdict": "wrong", "why": error.message}
        return row | {
            "verdict": "right",
            "why": f"{len(found.compiles)} device compiles, all for {targets_of(made)}",
        }


def table(rows: list[Row]) -> str:
    """Return the verdicts, one line for each project."""
    projects = list(dict.fromkeys(row["project"] for row in rows))
    by_place = {(row["project"], row["variant"]): row for row in rows}
    width = max(map(len, projects))
    lines = ["".ljust(width) + "".join(variant.rjust(10) for variant in VARIANTS)]
    for project in projects:
        verdicts = [by_place[project, variant]["verdict"] for variant in VARIANTS]
        lines.append(project.ljust(width) + "".join(verdict.rjust(10) for verdict in verdicts))
    wrongs = [row for row in rows if row["verdict"] == "wrong"]
    lines += [f"wrong: {row['project']} {row['variant']}: {row['why']}" for row in wrongs]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
