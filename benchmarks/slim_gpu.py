"""Slims the installed PyTorch on a machine with a GPU and compares it with the original.

    python3 benchmarks/slim_gpu.py [--quick] [--for sm90] [--foreign sm86] [--with OPTIONS]

Run it with the interpreter that has torch. If the machine has no access to a package index, put
stoker's dependencies into the folder `.device` of this checkout, on any other machine:

    pip install --target .device --only-binary :all: --platform manylinux2014_x86_64 \\
        --python-version 3.12 archspec click msgspec packaging zlib-ng

Nothing of the installation is changed: its files get second names in a temporary folder, and are
slimmed there in place, as those of an environment are. Then the same operations run on both, each
in a process of its own, with lazy and eager loading of device code; what is the same twice with
the original must be the same to the bit. A copy that keeps only code for another GPU must fail
with 'no kernel image'. Sizes, seconds and the time of an import go to slim_gpu.json in $OUT, or in
benchmarks/results. Takes less than four minutes; `--quick` less than two. ``--device cpu`` tries
the script itself where there is no GPU; SLIM_GPU_SECONDS gives a slow machine more time.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# A module in this folder has the name of one that torch imports.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != ROOT / "benchmarks"]
NEEDED = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / ".device")]
# Timeouts in seconds: for everything, and for one process.
BUDGET = float(os.environ.get("SLIM_GPU_SECONDS", "190"))
PROCESS_TIMEOUT_S = BUDGET / 3
STARTED = time.monotonic()

Result = dict[str, Any]

# Run by the interpreter that has torch: every operation, its results as a hash and as a file.
OPERATIONS = Path(__file__).with_name("slim_gpu_operations.py")

COMPARE = r"""
import json, sys, torch
before, after = (torch.load(file + ".pt") for file in sys.argv[1:3])
apart = {}
for name in sys.argv[3:]:
    if name in before and name in after:
        apart[name] = max(((a.double() - b.double()).abs() / (1 + a.double().abs())).max().item()
                          for a, b in zip(before[name], after[name]) if a.numel())
print(json.dumps(apart))
"""

IMPORT = r"""
import json, sys, time
start = time.perf_counter()
import torch
imported = time.perf_counter() - start
torch.ones(8, device=sys.argv[1]).mul(2).sum().item()
print(json.dumps({"import_s": imported, "first_result_s": time.perf_counter() - start}))
"""

LOADING = ("LAZY", "EAGER")
SLACK = 1e-2  # relative, for results that differ between runs of the original, too
# Sums in an undefined order: equal results are a coincidence.
UNORDERED = {
    "convolution",
    "ctc",
    "embedding",
    "scatter-add",
    "attention-cudnn",
    "attention-efficient",
    "attention-flash",
}


def left() -> float:
    return BUDGET - (time.monotonic() - STARTED)


def environment(site: Path, loading: str = "LAZY") -> dict[str, str]:
    """Return an environment with the torch of ``site`` and without stoker's packages."""
    return {**os.environ, "PYTHONPATH": str(site), "CUDA_MODULE_LOADING": loading}


def call(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *map(str, words)]
    timeout_s = min(PROCESS_TIMEOUT_S, max(10.0, left() + 30))
    try:
        return subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {timeout_s:.0f} s")


def stoker(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return call("-m", "stoker", *words, env={**os.environ, "PYTHONPATH": os.pathsep.join(NEEDED)})


# -- copies --------------------------------------------------------------------------------------


def installed() -> Path:
    """Return the folder of the installed torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("no torch is installed for this interpreter")
    return Path(spec.origin).resolve().parent


def copy_aside(torch: Path, site: Path) -> None:
    """Create a site-packages with hard links to torch and symbolic links to everything else."""
    site.mkdir(parents=True)
    for path in torch.parent.iterdir():
        own = path.name.startswith("torch-") and path.name.endswith(".dist-info")
        if path == torch or own:
            shutil.copytree(path, site / path.name, copy_function=second_name, symlinks=True)
        else:
            (site / path.name).symlink_to(path)


def second_name(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def slim(site: Path, target: str, extra: str = "") -> Result:
    """Slim the copy in place with the `stoker` command."""
    start = time.perf_counter()
    done = stoker("slim", site / "torch", "--for", target, "--json", *extra.split())
    seconds = time.perf_counter() - start
    if done.returncode:
        return {"error": (done.stdout + done.stderr)[-2000:]}
    report = json.loads(done.stdout)
    return {
        "seconds": seconds,
        "before": report["before_bytes"],
        "after": report["after_bytes"],
        "libraries": [
            {key: row[key] for key in row if key != "archs"} for row in report["libraries"]
        ],
    }


# -- what is compared ----------------------------------------------------------------------------


def operations(name: str, device: str, site: Path, loading: str = "LAZY") -> Result:
    """Return the result of every operation, and the file with the tensors."""
    target = site.with_name(name)
    done = call(OPERATIONS, device, target, env=environment(site, loading))
    if done.returncode or not target.exists():
        return {"error": (done.stdout + done.stderr)[-2000:]}
    return {**json.loads(target.read_text()), "tensors": str(target), "site": site}


def compared(originals: list[Result], other: Result) -> Result:
    """Compare results; those that are reproducible with the original must be bit-identical."""
    if failed := [run["error"] for run in (*originals, other) if "error" in run]:
        return {"holds": False, "error": failed[0]}
    before, after = originals[0]["results"], other["results"]
    steady = {
        name
        for name in before
        if name not in UNORDERED and all(run["results"][name] == before[name] for run in originals)
    }
    different = [name for name in sorted(steady) if before[name] != after[name]]
    wandering = sorted(before.keys() - steady)
    noise, there = apart(*originals[:2], wandering), apart(originals[0], other, wandering)
    broken = [name for name in before if ":" in before[name]]
    return {
        "operations": len(before),
        "equal_to_the_bit": sum(before[name] == after[name] for name in before.keys() - broken),
        "different": {name: [before[name], after[name]] for name in different},
        "order_left_open": {
            name: {"original": noise.get(name), "slimmed": there.get(name)} for name in wandering
        },
        "failing_with_the_original_too": {name: before[name] for name in broken},
        "holds": not different
        and all(there.get(name, 1.0) <= SLACK for name in wandering if name not in broken),
    }


def apart(one: Result, other: Result, names: list[str]) -> dict[str, float]:
    if not names:
        return {}
    words = (one["tensors"], other["tensors"], *names)
    done = call("-c", COMPARE, *words, env=environment(one["site"]))
    return json.loads(done.stdout) if done.returncode == 0 else {}


def foreign(site: Path, device: str, gpus: list[str]) -> Result:
    """Run a copy without code for this GPU; return CUDA's error and stoker's diagnosis."""
    sys.path[:0] = NEEDED
    from stoker.outside.process import CommandResult
    from stoker.wheel.verify.trial import GPU, judged_gpu

    runs = {loading: operations(f"foreign-{loading}", device, site, loading) for loading in LOADING}
    done = call("-c", GPU.code, env=environment(site))
    outcome = CommandResult(status=done.returncode, stdout=done.stdout, stderr=done.stderr)
    inspected = stoker("inspect", site / "torch" / "lib" / "libtorch_cuda.so", "--json")
    facts = json.loads(inspected.stdout) if inspected.returncode == 0 else {"libraries": []}
    present = {code["arch"] for one in facts["libraries"] for code in one["device_code"]}
    finding = judged_gpu(outcome, gpus, present)
    refused = {loading: no_image(run) for loading, run in runs.items()}
    return {
        "archs": runs["LAZY"].get("archs"),
        "operations_refused": {loading: len(names) for loading, names in refused.items()},
        "operations": len(runs["LAZY"].get("results", {})),
        "said": {loading: first_word(run) for loading, run in runs.items()},
        "verify_says": [finding.title, finding.evidence, *finding.fix],
        "holds": bool(refused["LAZY"]) and "holds no device code" in finding.title,
    }


def no_image(run: Result) -> list[str]:
    return [name for name, word in run.get("results", {}).items() if "no kernel image" in word]


def first_word(run: Result) -> str | None:
    return run.get("error") or run["results"].get("elementwise")


# -- the time of an import -----------------------------------------------------------------------


def forget(folders: list[Path]) -> str:
    """Drop these folders from the page cache."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return "drop_caches"
    except OSError:
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    with path.open("rb") as stream:
                        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise"


def import_times(sites: dict[str, Path], device: str, rounds: int) -> Result:
    measured: dict[str, dict[str, list[Result]]] = {}
    method = ""
    for _ in range(rounds):
        for cache in ("cold", "warm"):
            for name, site in sites.items():
                if left() < 25:
                    continue
                if cache == "cold":
                    method = forget(list(sites.values()))
                done = call("-c", IMPORT, device, env=environment(site))
                if done.returncode == 0:
                    run = json.loads(done.stdout.splitlines()[-1])
                    measured.setdefault(cache, {}).setdefault(name, []).append(run)
    return {"cold_by": method, "rounds": measured, "median": medians(measured)}


def medians(measured: dict[str, dict[str, list[Result]]]) -> Result:
    return {
        cache: {
            name: {
                field: statistics.median(run[field] for run in runs)
                for field in ("import_s", "first_result_s")
            }
            for name, runs in by_name.items()
        }
        for cache, by_name in measured.items()
    }


# -- all of it -----------------------------------------------------------------------------------


def measure(options: argparse.Namespace, folder: Path) -> Result:
    torch, device, gpu = installed(), options.device, options.device == "cuda"
    library = torch / "lib" / "libtorch_cuda.so"
    result: Result = {"for": options.targets, "foreign": options.foreign}
    result["options"] = options.extra
    untouched = digest(library)
    sites = {name: folder / name / "site-packages" for name in ("original", "slimmed", "other")}
    with step(result, "copies"):
        for site in sites.values():
            copy_aside(torch, site)
    with step(result, "slim") as note:
        note(slim(sites["slimmed"], options.targets, options.extra))
        check(result["slim"])
    with step(result, "same_results") as note:
        originals = [
            operations(f"original-{number}", device, sites["original"], loading)
            for number, loading in enumerate(("LAZY", "LAZY", "EAGER"))
        ]
        describe(result, "original", originals[0])
        for loading in LOADING:
            run = operations(f"slimmed-{loading}", device, sites["slimmed"], loading)
            describe(result, f"slimmed {loading}", run)
            note({**result.get("same_results", {}), loading: compared(originals, run)})
    with step(result, "other_gpu") as note:
        slimmed = slim(sites["other"], options.foreign)
        check(slimmed)
        judged = foreign(sites["other"], device, [str(result["original"]["capability"])])
        note({**judged, "after": slimmed["after"], "holds": judged["holds"] if gpu else None})
    with step(result, "import") as note:
        pair = {name: sites[name] for name in ("original", "slimmed")}
        note(import_times(pair, device, 1 if options.quick else 3))
    with step(result, "undo") as note:
        done = stoker("slim", sites["slimmed"] / "torch", "--undo")
        back = digest(sites["slimmed"] / "torch" / "lib" / "libtorch_cuda.so")
        note({"status": done.returncode, "holds": done.returncode == 0 and back == untouched})
    result["original_untouched"] = digest(library) == untouched
    return result


def check(slimmed: Result) -> None:
    if "error" in slimmed:
        raise RuntimeError(slimmed["error"])


def describe(result: Result, name: str, run: Result) -> None:
    fields = ("version", "gpu", "capability", "archs", "import_s", "seconds", "error")
    result[name] = {field: run.get(field) for field in fields}


@contextmanager
def step(result: Result, name: str) -> Iterator[Callable[[Result], None]]:
    """Run one step; report its failure and continue with the next."""
    start = time.monotonic()
    try:
        yield lambda found: result.__setitem__(name, found)
    except Exception as error:
        result.setdefault(name, {})
        result[name] = {**result[name], "failed": f"{type(error).__name__}: {error}"}
    taken = time.monotonic() - start
    result.setdefault("seconds", {})[name] = round(taken, 2)
    print(f"{name}: {taken:.1f} s", flush=True)


def verdict(result: Result, gpu: bool) -> dict[str, bool]:
    same = result.get("same_results", {})
    said = {
        "same results, lazy loading": same.get("LAZY", {}).get("holds") is True,
        "same results, eager loading": same.get("EAGER", {}).get("holds") is True,
        "get_arch_list() tells the truth": tells_the_truth(result),
        "undo gives the original back": result.get("undo", {}).get("holds") is True,
        "the installation was not touched": result.get("original_untouched") is True,
    }
    if gpu:
        said["another GPU's code: no kernel image"] = (
            result.get("other_gpu", {}).get("holds") is True
        )
    return said


def tells_the_truth(result: Result) -> bool:
    """Return whether torch lists exactly one target, which the original lists too."""
    listed = result.get("slimmed LAZY", {}).get("archs") or []
    return [word.replace("_", "") for word in listed] == [result["for"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--with", dest="extra", default="", help='e.g. "--strip --recompress zstd"')
    parser.add_argument("--quick", action="store_true", help="one import each")
    parser.add_argument("--for", dest="targets", default="sm90")
    parser.add_argument("--foreign", default="sm86")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slim-gpu-") as folder:
        result = measure(options, Path(folder))
    result["holds"] = verdict(result, options.device == "cuda")
    into = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
    into.mkdir(parents=True, exist_ok=True)
    name = "slim_gpu.json" if options.device == "cuda" else "slim_gpu-dry.json"
    (into / name).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result.get(key) for key in ("seconds", "import", "holds")}, indent=1))
    sys.exit(0 if all(result["holds"].values()) else 1)


if __name__ == "__main__":
    main()
