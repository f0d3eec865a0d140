"""How many real failures the first fix of stoker repairs, without editing.

    python benchmarks/fixes.py --root ROOT [--only NAME]... [--json benchmarks/results/fixes.json]

ROOT is a root of Debian 12 with a compiler, made by
`mmdebstrap --variant=apt --include=build-essential,python3-venv,python3-dev,python3-pip,git,cmake,\
ninja-build,pkg-config bookworm ROOT`, after `apt-get update` in it. Each case of
benchmarks/fixes.toml runs in a fresh overlay of it:

1. `before` prepares the failure, for example by removing a package; it must succeed.
2. `stoker run -- sh -c BUILD` must fail. Its output is kept by stoker.
3. `stoker diagnose --fix-script` prints a script for that run.
4. `sh fix.sh` applies the fix and builds again. It counts if its status is 0.

A case that is run again keeps how its first try ended.

The checkout and its virtual environment are visible in the root at their own paths. Needs root.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
STOKER = CHECKOUT / ".venv" / "bin" / "stoker"
CASES = Path(__file__).with_suffix(".toml")
LIMIT_S = 1500  # only against builds that never end: a loaded machine is slow
# What a root needs of this machine: names of hosts, and the settings of pip.
SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "~/.config/pip/pip.conf")
PASSED_ON = ("PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS", "SSL_CERT_FILE", "UV_INDEX_URL")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="write the logs and scripts of all cases there")
    asked = parser.parse_args()
    cases: dict[str, dict[str, Any]] = tomllib.loads(CASES.read_text())
    bases = cases.pop("base")
    results = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    found: dict[str, Any] = results.get("cases", {})
    for name, case in cases.items():
        if name in asked.only or (not asked.only and name not in found):
            if case.get("machine", platform.machine()) != platform.machine():
                print(name, "is made only on", case["machine"])
                continue
            layers = [asked.root]
            if base := case.get("base"):
                layers.insert(0, prepared(asked.root, base, bases[base]))
            result = tried(name, case, layers, asked.keep)
            first = found[name].get("first") if name in found else result["end"]
            found[name] = result | ({"first": first} if first else {})
            print(name, found[name]["end"], found[name]["cause"], flush=True)
            if asked.json:
                stored = summary(found, results.get("reasons", {}))
                asked.json.write_text(json.dumps(stored, indent=2) + "\n")
    print(json.dumps({key: value for key, value in summary(found).items() if key != "cases"}))
    return 0


def summary(found: dict[str, Any], reasons: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the figures. ``first`` of a case is how its first try ended, before any correction.
    ``reasons``, which are written by hand, are kept for the cases that are not fixed.
    """
    valid = {name: one for name, one in found.items() if one["end"] != "not made"}
    new = [one["first"] for one in valid.values() if one.get("first", "not made") != "not made"]
    open_cases = sorted(name for name, one in valid.items() if one["end"] != "fixed")
    return {
        "failures": len(valid),
        "of real packages": sum(one["real"] for one in valid.values()),
        "fixed by the first fix": sum(one["end"] == "fixed" for one in valid.values()),
        "at the first try": {"failures": len(new), "fixed": new.count("fixed")},
        "not fixed": open_cases,
        "not made": sorted(found.keys() - valid.keys()),
        "reasons": {name: why for name, why in (reasons or {}).items() if name in open_cases},
        "cases": dict(sorted(found.items())),
    }


def prepared(root: Path, name: str, script: str) -> Path:
    """Return a layer over the root in which a script has run; it is kept beside the root."""
    layer = root.with_name(f"{root.name}.{name}")
    if not layer.exists():
        with overlay([root]) as top:
            status, output = run(top, top / "root", script)
            if status:
                sys.exit(f"cannot prepare {name}:\n{output}")
            upper = top.with_name("upper")
            shutil.copytree(upper, layer, symlinks=True, ignore=shutil.ignore_patterns("stoker"))
    return layer


def tried(name: str, case: dict[str, Any], layers: list[Path], keep: Path | None) -> dict[str, Any]:
    """Make a failure, apply the fix and return how it ended."""
    begin = time.monotonic()
    result = {"real": "package" in case, "end": "not made", "cause": "", "why": ""}
    with ExitStack() as stack:
        top = stack.enter_context(overlay(layers))
        project = top / "src" / name
        project.mkdir(parents=True)
        for place, options in case.get("disk", {}).items():
            small_disk(stack, project if place == "." else top / place.lstrip("/"), options)
        for path, text in case.get("files", {}).items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        limits, build = case.get("limits", ""), case["build"]
        status, output = run(top, project, case.get("before", "true"))
        if status == 0:
            words = f"{limits}\n{STOKER} run -- sh -c {quoted(build)}"
            status, output = run(top, project, words)
            result["end"] = "not fixed" if status else "not made"
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}.failed.log").write_text(output)
        if result["end"] == "not fixed":
            _, found = run(top, project, f"{limits}\n{STOKER} diagnose --json 2>/dev/null")
            result["cause"] = cause_of(found)
            script = f"{limits}\n{STOKER} diagnose --fix-script > /fix.sh; {limits}\nsh /fix.sh"
            status, output = run(top, project, script)
            result["end"] = "fixed" if status == 0 else "not fixed"
            if keep:
                shutil.copy(top / "fix.sh", keep / f"{name}.sh")
        if keep:
            (keep / f"{name}.log").write_text(output)
    if result["end"] != "fixed":
        result["why"] = plain(output)[-300:]
    return result | {"seconds": round(time.monotonic() - begin)}


def plain(output: str) -> str:
    """Return an output without the name of any host or folder of this machine."""
    return re.sub(r"https?://\S+|/(?:tmp|root|work)/\S*", "...", output)


def cause_of(found: str) -> str:
    try:
        findings = json.loads(found)["findings"]
    except ValueError:
        return "no diagnosis"
    return findings[0]["cause"] if findings else "unknown"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def run(top: Path, project: Path, script: str) -> tuple[int, str]:
    """Run a script in the root and return its status and its output."""
    inside = f"cd /{project.relative_to(top)}\nset -e\n{script}"
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "STOKER_HOME": "/stoker",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    environment |= {name: value for name, value in os.environ.items() if name in PASSED_ON}
    try:
        done = subprocess.run(
            ["chroot", top, "sh", "-c", inside],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "took too long"
    return done.returncode, done.stdout.decode(errors="replace")


@contextmanager
def overlay(lower: list[Path]) -> Iterator[Path]:
    """Yield a copy of a root, made of layers, that can be changed; what it needs of this machine is
    in it.
    """
    with tempfile.TemporaryDirectory(prefix="fixes-") as folder, ExitStack() as stack:
        mounted(stack, folder, "-t", "tmpfs", "-o", "size=3G", "tmpfs")
        upper, work, top = (Path(folder, name) for name in ("upper", "work", "top"))
        for path in (upper, work, top):
            path.mkdir()
        layers = f"lowerdir={':'.join(map(str, lower))},upperdir={upper},workdir={work}"
        mounted(stack, top, "-t", "overlay", "-o", layers, "overlay")
        mounted(stack, top / "proc", "-t", "proc", "proc")
        mounted(stack, top / "dev", "--rbind", "--make-rslave", "/dev")
        interpreter = Path(sys.base_prefix)
        for path in (CHECKOUT, interpreter):
            shared(stack, path, top)
        (top / "usr/local/bin/stoker").symlink_to(STOKER)
        for name in (*SETTINGS, *(os.environ[name] for name in PASSED_ON if name in os.environ)):
            path = Path(name).expanduser()
            if path.is_file():
                shared(stack, path, top)
                for certificates in re.findall(
                    r"^cert\s*=\s*(\S+)", path.read_text(), re.MULTILINE
                ):
                    shared(stack, Path(certificates), top)
        yield top


def small_disk(stack: ExitStack, where: Path, options: str) -> None:
    where.mkdir(parents=True, exist_ok=True)
    mounted(stack, where, "-t", "tmpfs", "-o", options, "tmpfs")


def shared(stack: ExitStack, path: Path, top: Path) -> None:
    """Make a file or folder of this machine visible in the root."""
    inside = top / path.relative_to("/")
    if path.is_dir():
        inside.mkdir(parents=True, exist_ok=True)
        mounted(stack, inside, "--bind", str(path))
        subprocess.run(["mount", "-o", "remount,bind,ro", inside], check=True)
    elif path.is_file():
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.unlink(missing_ok=True)
        shutil.copy(path, inside)


def mounted(stack: ExitStack, where: Path | str, *how: str) -> None:
    subprocess.run(["mount", *how, where], check=True)
    stack.callback(subprocess.run, ["umount", "-R", "-l", where], check=False)


if __name__ == "__main__":
    sys.exit(main())
