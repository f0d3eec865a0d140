"""How many failures of old releases with today's tools `stoker diagnose --try` proves and fixes.

    python benchmarks/tries.py --root ROOT [--only NAME]... [--json benchmarks/results/tries.json]

ROOT is a root of a current Debian, with source packages of older ones (`deb-src` lines), made as
benchmarks/fixes.py says, with autoconf, automake, libtool, bison, flex, cython3, clang, lld, mount,
and an older compiler and Python (gcc-14, g++-14, python3.13-venv). Each case of
benchmarks/tries.toml runs in a fresh overlay of it:

1. The source is fetched and unpacked; `stoker run -- sh -c BUILD` must fail.
2. `stoker diagnose --try --json` tries suspects. The cause is proven if one lets the command pass.
3. The fix that it prints runs for real. It counts if its status is 0.

Needs root, and a network with Debian and the package index.
"""

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import fixes

CASES = Path(__file__).with_suffix(".toml")
LIMIT_S = 900
FETCH = """
apt-get -qq -o Acquire::Check-Valid-Until=false source --download-only {source} \\
    > /dev/null 2>&1 || true
tar xf "$(ls *.orig.tar.* | grep -v asc | head -n 1)" --strip-components=1
rm -f *.orig.tar.* *.dsc *.debian.tar.*
"""
ENVIRONMENT = "python3 -m venv /venv && /venv/bin/pip -q install -U pip wheel"
WHEEL = "/venv/bin/pip wheel --no-deps --no-cache-dir --no-binary :all: -w out '{package}'"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="write the answers of all cases there")
    asked = parser.parse_args()
    fixes.LIMIT_S = LIMIT_S
    found: dict[str, Any] = {}
    if asked.json and asked.json.exists():
        found = json.loads(asked.json.read_text())["cases"]
    for name, case in tomllib.loads(CASES.read_text()).items():
        if name in asked.only or (not asked.only and name not in found):
            found[name] = tried(name, case, asked.root, asked.keep)
            print(name, found[name], flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(summary(found), indent=2) + "\n")
    print(json.dumps({key: value for key, value in summary(found).items() if key != "cases"}))
    return 0


def summary(found: dict[str, Any]) -> dict[str, Any]:
    made = {name: one for name, one in found.items() if one["end"] != "not made"}
    return {
        "failures": len(made),
        "cause proven": sum(one["proven"] for one in made.values()),
        "and the one written down before": sum(one["as expected"] for one in made.values()),
        "fixed by what passed": sum(one["end"] == "fixed" for one in made.values()),
        "not made": sorted(found.keys() - made.keys()),
        "cases": dict(sorted(found.items())),
    }


def tried(name: str, case: dict[str, Any], root: Path, keep: Path | None) -> dict[str, Any]:
    """Make a failure, try to prove its cause, and apply what passed."""
    begin = time.monotonic()
    result = {"end": "not made", "proven": False, "as expected": False, "cause": "", "tried": 0}
    with fixes.overlay([root]) as top:
        project = top / "src" / name
        project.mkdir(parents=True)
        is_package = "package" in case
        before = ENVIRONMENT if is_package else FETCH.format(**case)
        build = WHEEL.format(**case) if is_package else case["build"]
        status, output = fixes.run(top, project, before)
        if status == 0:
            words = f"{fixes.STOKER} run -- sh -c {fixes.quoted(build)}"
            status, output = fixes.run(top, project, words)
            result["end"] = "not proven" if status else "not made"
        if result["end"] == "not proven":
            _, output = fixes.run(top, project, f"{fixes.STOKER} diagnose --try --json 2> /told")
            result |= proven(output, case["cause"])
            if result["proven"]:
                status, output = fixes.run(top, project, result.pop("script"))
                result["end"] = "fixed" if status == 0 else "proven"
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            told = top / "told"
            (keep / f"{name}.log").write_text(output + (told.read_text() if told.exists() else ""))
    return result | {"seconds": round(time.monotonic() - begin)}


def proven(output: str, expected: list[str]) -> dict[str, Any]:
    """Return what the answer of --try says, with the script of its fix."""
    try:
        found = json.loads(output)
    except ValueError:
        return {"cause": "no answer"}
    trials, findings = found.get("trials", []), found.get("findings", [])
    if len(trials) < 2 or trials[-1]["end"] != "passed":
        return {"tried": len(trials), "cause": findings[0]["cause"] if findings else "unknown"}
    first = findings[0]
    fix = first["fix"][0]
    return {
        "proven": True,
        "as expected": first["cause"] in expected,
        "cause": first["cause"],
        "tried": len(trials),
        "script": "\n".join(["set -e", *fix["commands"], fix["build"]]),
    }


if __name__ == "__main__":
    sys.exit(main())
